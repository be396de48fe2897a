//! Modes: named defaults for launches on a provider.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::auth::Caller;
use super::error::new_name;
use super::extract::{Body, Path};
use super::{ApiError, AppState, Code};
use crate::control_plane::launch::{self, Origin};
use crate::control_plane::store::{Missing, Mode, Put, Write};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ModeBody {
    name: Option<String>,
    provider: Option<String>,
    #[serde(default)]
    fields: Map<String, Value>,
}

fn show_mode(mode: &Mode) -> Value {
    json!({ "name": mode.name, "provider": mode.provider, "fields": mode.fields })
}

fn checked(namespace: String, name: String, body: ModeBody) -> Result<Mode, ApiError> {
    let missing =
        || ApiError::new(Code::InvalidField, format!("mode {name:?} must name its provider")).field("provider").cure("--field provider=NAME");
    let provider = body.provider.filter(|provider| !provider.is_empty()).ok_or_else(missing)?;
    launch::check(Origin::Mode, &body.fields)?;
    Ok(Mode { namespace, name, provider, fields: body.fields })
}

fn answer(mode: &Mode, put: Put) -> Result<Json<Value>, ApiError> {
    let name = &mode.name;
    match put {
        Put::Done => Ok(Json(show_mode(mode))),
        Put::Exists | Put::SlugTaken { .. } => {
            let detail = format!("mode {name:?} exists already in namespace {:?}", mode.namespace);
            Err(ApiError::new(Code::AlreadyExists, detail).field("name").cure("replace it with PUT (`modes add --force`), or choose another name"))
        }
        Put::Missing(Missing::Provider(provider)) => {
            let detail = format!("mode {name:?}: provider {provider:?} does not exist in namespace {:?}", mode.namespace);
            Err(ApiError::new(Code::InvalidField, detail).field("provider").cure("`lakeshore providers list` shows the names"))
        }
        Put::Missing(Missing::Namespace(namespace)) => Err(ApiError::new(Code::NamespaceNotFound, format!("namespace {namespace:?} does not exist"))),
        Put::Missing(Missing::Cluster(_) | Missing::Itself) => Err(not_found(&mode.namespace, name)),
    }
}

pub(super) fn not_found(namespace: &str, name: &str) -> ApiError {
    let detail = format!("mode {name:?} does not exist in namespace {namespace:?}");
    ApiError::new(Code::ModeNotFound, detail).cure("`lakeshore modes list` shows the names")
}

/// `POST …/modes`.
pub(super) async fn create(
    caller: Caller,
    State(app): AppState,
    Path(namespace): Path<String>,
    body: Body<ModeBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    caller.enter(&app, &namespace).await?;
    let name = new_name(body.value.name.as_deref().unwrap_or_default())?.into();
    let mode = checked(namespace, name, body.value)?;
    let put = app.store.put_mode(mode.clone(), Write::Create, Timestamp::now()).await?;
    Ok((StatusCode::CREATED, answer(&mode, put)?))
}

/// `PUT …/modes/{name}`: replaces one that exists.
pub(super) async fn replace(
    caller: Caller,
    State(app): AppState,
    Path((namespace, name)): Path<(String, String)>,
    body: Body<ModeBody>,
) -> Result<Json<Value>, ApiError> {
    caller.enter(&app, &namespace).await?;
    if body.value.name.as_ref().is_some_and(|given| *given != name) {
        return Err(ApiError::new(Code::InvalidField, format!("the body names another mode than the path, {name:?}")).field("name"));
    }
    let mode = checked(namespace, name, body.value)?;
    let put = app.store.put_mode(mode.clone(), Write::Replace, Timestamp::now()).await?;
    answer(&mode, put)
}

/// `GET …/modes`.
pub(super) async fn list(caller: Caller, State(app): AppState, Path(namespace): Path<String>) -> Result<Json<Value>, ApiError> {
    caller.enter(&app, &namespace).await?;
    Ok(Json(app.store.modes(namespace).await?.iter().map(show_mode).collect()))
}

/// `GET …/modes/{name}`.
pub(super) async fn show(caller: Caller, State(app): AppState, Path((namespace, name)): Path<(String, String)>) -> Result<Json<Value>, ApiError> {
    caller.enter(&app, &namespace).await?;
    let mode = app.store.mode(namespace.clone(), name.clone()).await?.ok_or_else(|| not_found(&namespace, &name))?;
    Ok(Json(show_mode(&mode)))
}

/// `DELETE …/modes/{name}`.
pub(super) async fn remove(caller: Caller, State(app): AppState, Path((namespace, name)): Path<(String, String)>) -> Result<StatusCode, ApiError> {
    caller.enter(&app, &namespace).await?;
    let removed = app.store.remove_mode(namespace.clone(), name.clone()).await?;
    if removed { Ok(StatusCode::NO_CONTENT) } else { Err(not_found(&namespace, &name)) }
}
