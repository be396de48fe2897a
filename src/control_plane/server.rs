//! Wiring.

use super::ServeOptions;

/// A server that could not start or run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Not built.
    #[error("not built")]
    NotBuilt,
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`].
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    let _ = options;
    Err(ServeError::NotBuilt)
}
