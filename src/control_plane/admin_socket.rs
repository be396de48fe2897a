//! The 0600 socket in the data folder, by which `lakeshore tokens create` reaches a running server.

use std::path::Path;

use secrecy::SecretString;

/// A caller token to make.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name; shown as who asked.
    pub name: String,
    /// May do everything, in every namespace.
    #[serde(default)]
    pub admin: bool,
    /// The namespaces that it sees when it is not an admin's.
    #[serde(default)]
    pub namespaces: Vec<String>,
}

/// A caller token that was just made. The only moment at which its text is known.
#[derive(Debug)]
pub struct CreatedToken {
    /// Its id, by which it is revoked.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The token itself.
    pub token: SecretString,
}

/// A token that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// Not built.
    #[error("not built")]
    NotBuilt,
}

/// Makes a caller token in the data folder `data`: through the running server when there is one, else in the store itself.
///
/// # Errors
/// [`TokenError`].
pub fn create_token(data: &Path, request: NewToken) -> Result<CreatedToken, TokenError> {
    let _ = (data, request);
    Err(TokenError::NotBuilt)
}
