//! Whether the server lives and can work, and which release it is.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::{ApiError, AppState};

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: the database takes a transaction, and there is room for launches.
pub(super) async fn readyz(State(app): AppState) -> Result<&'static str, ApiError> {
    app.store.ping().await?;
    app.disk.check()?;
    Ok("ok\n")
}

/// `GET /v1/version`.
pub(super) async fn version() -> Json<Value> {
    Json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}
