//! Instances: listing, showing, waiting for a state, deleting.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::auth::Caller;
use super::extract::{Path, Query};
use super::view::{Reaches, reached, shown};
use super::{ApiError, App, AppState, Code, providers};
use crate::control_plane::hub::Found;
use crate::control_plane::launch;
use crate::control_plane::store::{Deletion, Instance, InstanceFilter};
use crate::types::{self, InstanceName};

/// Longest wait that one request may ask for.
const MAX_WAIT: Duration = Duration::from_secs(300);
/// The wait when none is asked for.
const DEFAULT_WAIT: Duration = Duration::from_secs(30);

/// What `?wait=STATE` asks for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wait {
    wait: Option<types::State>,
    timeout_seconds: Option<u64>,
}

fn not_found(namespace: &str, name: &str) -> ApiError {
    let shown: String = name.chars().take(100).collect();
    ApiError::new(Code::InstanceNotFound, format!("instance {shown:?} does not exist in namespace {namespace:?}"))
        .cure("`lakeshore instances` lists them; an id is 'lakeshore-' and 8 hex digits")
}

/// An instance that the caller may see, of any provider or of one.
pub(super) async fn visible(app: &App, caller: &Caller, namespace: &str, provider: Option<&str>, name: &str) -> Result<Instance, ApiError> {
    caller.enter(app, namespace).await?;
    let not_found = || not_found(namespace, name);
    let id = name.parse::<InstanceName>().map_err(|_| not_found())?;
    let row = app.store.instance(namespace.to_owned(), id).await?.ok_or_else(not_found)?;
    if provider.is_none_or(|provider| row.provider == provider) { Ok(row) } else { Err(not_found()) }
}

async fn list_filtered(app: &App, filter: InstanceFilter) -> Result<Json<Value>, ApiError> {
    let rows = app.store.instances(filter).await?;
    let reaches = Reaches::new(app);
    Ok(Json(rows.iter().map(|row| reaches.instance(row)).collect()))
}

/// `GET …/instances`, over all providers of the namespace.
pub(super) async fn list(caller: Caller, State(app): AppState, Path(namespace): Path<String>) -> Result<Json<Value>, ApiError> {
    caller.enter(&app, &namespace).await?;
    list_filtered(&app, InstanceFilter { namespace, provider: None }).await
}

/// `GET …/providers/{name}/instances`, newest first, ended ones included.
pub(super) async fn list_of_provider(
    caller: Caller,
    State(app): AppState,
    Path((namespace, provider)): Path<(String, String)>,
) -> Result<Json<Value>, ApiError> {
    providers::visible(&app, &caller, &namespace, &provider).await?;
    list_filtered(&app, InstanceFilter { namespace, provider: Some(provider) }).await
}

/// `GET …/instances/{id}`.
pub(super) async fn show(
    caller: Caller,
    State(app): AppState,
    Path((namespace, id)): Path<(String, String)>,
    Query(wait): Query<Wait>,
) -> Result<Json<Value>, ApiError> {
    let row = visible(&app, &caller, &namespace, None, &id).await?;
    await_state(&app, row, wait).await
}

/// `GET …/providers/{name}/instances/{id}`.
pub(super) async fn show_of_provider(
    caller: Caller,
    State(app): AppState,
    Path((namespace, provider, id)): Path<(String, String, String)>,
    Query(wait): Query<Wait>,
) -> Result<Json<Value>, ApiError> {
    let row = visible(&app, &caller, &namespace, Some(&provider), &id).await?;
    await_state(&app, row, wait).await
}

/// Answers at once, or when the state that is waited for is reached or passed, or when the time is over.
async fn await_state(app: &App, mut row: Instance, wait: Wait) -> Result<Json<Value>, ApiError> {
    let limit = wait.timeout_seconds.map_or(DEFAULT_WAIT, Duration::from_secs).min(MAX_WAIT);
    let deadline = Instant::now() + limit;
    let mut changes = app.hub.changes.subscribe(&row.dispatch_id);
    loop {
        row = app.store.instance_of(row.dispatch_id.clone()).await?.unwrap_or(row);
        let reaches = Reaches::new(app);
        let state = shown(&row, reaches.of(&row.place), app.stale_after).state;
        let done = wait.wait.is_none_or(|wanted| reached(state, wanted));
        if done || !matches!(timeout_at(deadline, app.stop.run_until_cancelled(changes.changed())).await, Ok(Some(Ok(())))) {
            return Ok(Json(reaches.instance(&row)));
        }
    }
}

/// `DELETE …/providers/{name}/instances/{id}`.
pub(super) async fn remove(
    caller: Caller,
    State(app): AppState,
    Path((namespace, provider, id)): Path<(String, String, String)>,
) -> Result<StatusCode, ApiError> {
    caller.enter(&app, &namespace).await?;
    let name = id.parse::<InstanceName>().map_err(|_| not_found(&namespace, &id))?;
    match app.store.request_delete(namespace.clone(), provider.clone(), name.clone(), Timestamp::now()).await? {
        Deletion::AlreadyEnded => Ok(StatusCode::NO_CONTENT),
        Deletion::EndedUnstarted(row) | Deletion::Requested(row) => {
            tracing::info!(dispatch = %row.dispatch_id, instance = %row.name, requested_by = %caller.0.name, "Deletion stored");
            app.hub.cancel(&row);
            app.hub.changes.touch(&row.dispatch_id);
            Ok(StatusCode::NO_CONTENT)
        }
        Deletion::Elsewhere => Err(not_found(&namespace, &id)),
        Deletion::Unknown => remove_unknown(&app, &caller, &namespace, &provider, &name).await,
    }
}

/// A name that the store does not know is asked of every live daemon of the cluster: what is not ours stays untouched (A27).
async fn remove_unknown(app: &Arc<App>, caller: &Caller, namespace: &str, provider: &str, name: &InstanceName) -> Result<StatusCode, ApiError> {
    let provider = providers::visible(app, caller, namespace, provider).await?;
    let live = app.hub.live(&provider.cluster);
    if live.is_empty() {
        let detail =
            format!("instance {name} is not known here, and no daemon of cluster {:?} is connected that could be asked for it", provider.cluster);
        return Err(ApiError::new(Code::NoLiveDaemon, detail));
    }
    let labels = launch::selector(namespace, &provider.name);
    let answers = join_all(live.iter().map(|session| session.delete_unknown(app.launch_wait, name, &labels))).await;
    if answers.contains(&Some(Found::Foreign)) {
        return Err(not_found(namespace, name.as_str()));
    }
    if answers.iter().any(Option::is_none) && !answers.contains(&Some(Found::Ours)) {
        let detail = format!("instance {name} is not known here, and a daemon that was asked for it did not answer in time");
        return Err(ApiError::new(Code::DaemonSilent, detail).cure("try again"));
    }
    Ok(StatusCode::NO_CONTENT)
}
