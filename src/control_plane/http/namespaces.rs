//! Namespaces of the control plane; not Kubernetes' ones.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::{Admin, Caller};
use super::error::new_name;
use super::extract::Body;
use super::view::time;
use super::{ApiError, AppState, Code};
use crate::control_plane::store::Put;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewNamespace {
    name: String,
}

/// `POST /v1/namespaces`.
pub(super) async fn create(_: Admin, State(app): AppState, body: Body<NewNamespace>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let name: String = new_name(&body.value.name)?.into();
    let now = Timestamp::now();
    match app.store.create_namespace(name.clone(), now).await? {
        Put::Done => Ok((StatusCode::CREATED, Json(json!({ "name": name, "createdAt": time(now) })))),
        Put::Exists | Put::Missing(_) => Err(ApiError::new(Code::AlreadyExists, format!("namespace {name:?} exists already")).field("name")),
        Put::SlugTaken { by } => {
            let detail = format!("namespace {name:?} would share its labels with {by:?}");
            Err(ApiError::new(Code::SlugTaken, detail).field("name").cure("choose a name that differs in letters or digits"))
        }
    }
}

/// `GET /v1/namespaces`: those that the token sees.
pub(super) async fn list(caller: Caller, State(app): AppState) -> Result<Json<Value>, ApiError> {
    let mut namespaces = app.store.namespaces().await?;
    namespaces.retain(|(name, _)| caller.sees(name));
    Ok(Json(namespaces.into_iter().map(|(name, created_at)| json!({ "name": name, "createdAt": time(created_at) })).collect()))
}
