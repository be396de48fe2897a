//! Providers: named targets of launches.

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::auth::Caller;
use super::error::new_name;
use super::extract::{Body, Path};
use super::{ApiError, App, AppState, Code};
use crate::control_plane::launch::{self, Origin};
use crate::control_plane::store::{Missing, Provider, Put, Removal, Write};

/// The one launcher there is.
const LAUNCHER: &str = "Kube";
/// Launchers that the documents name.
const LATER_LAUNCHERS: [&str; 4] = ["EC2", "GCE", "SLURM", "SSH"];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProviderBody {
    name: Option<String>,
    launcher: Option<String>,
    #[serde(default)]
    kwargs: Map<String, Value>,
}

fn show_provider(provider: &Provider) -> Value {
    json!({
        "name": provider.name,
        "launcher": provider.launcher,
        "dispatch": provider.dispatch,
        "cluster": provider.cluster,
        "kwargs": provider.kwargs,
    })
}

/// Checks what a provider is made of, before the store is asked whether its cluster exists.
fn checked(namespace: String, name: String, body: ProviderBody) -> Result<Provider, ApiError> {
    let launcher = body.launcher.unwrap_or_default();
    if launcher != LAUNCHER {
        let shown: String = launcher.chars().take(64).collect();
        let (code, what) = match LATER_LAUNCHERS.contains(&launcher.as_str()) {
            true => (Code::LauncherNotBuilt, "is not built in this release"),
            false => (Code::LauncherUnknown, "is not a launcher"),
        };
        let detail = format!("provider {name:?}: {shown:?} {what}");
        return Err(ApiError::new(code, detail).field("launcher").cure(format!("the launcher is {LAUNCHER:?}, spelled exactly so")));
    }
    launch::check(Origin::Provider, &body.kwargs)?;
    let text = |field: &str| match body.kwargs.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(ApiError::new(Code::InvalidField, format!("provider {name:?}: {field} must be a string")).field(field)),
    };
    let dispatch = text("dispatch")?.unwrap_or_else(|| "direct".into());
    match dispatch.as_str() {
        "daemon" => {}
        "direct" => {
            let detail = format!("provider {name:?}: dispatch \"direct\", which is the default, is not built in this release");
            return Err(ApiError::new(Code::DispatchNotBuilt, detail).field("dispatch").cure("--kwarg dispatch=daemon --kwarg cluster=NAME"));
        }
        _ => {
            let detail = format!("provider {name:?}: dispatch must be \"daemon\" or \"direct\"");
            return Err(ApiError::new(Code::InvalidField, detail).field("dispatch"));
        }
    }
    let missing = || {
        let detail = format!("provider {name:?}: dispatch \"daemon\" needs the name of an enrolled cluster");
        ApiError::new(Code::InvalidField, detail).field("cluster").cure("--kwarg cluster=NAME; `lakeshore clusters list` shows the names")
    };
    let cluster = text("cluster")?.filter(|cluster| !cluster.is_empty()).ok_or_else(missing)?;
    Ok(Provider { namespace, name, launcher, dispatch, cluster, kwargs: body.kwargs })
}

fn answer(provider: &Provider, put: Put) -> Result<Json<Value>, ApiError> {
    let name = &provider.name;
    match put {
        Put::Done => Ok(Json(show_provider(provider))),
        Put::Exists => {
            let detail = format!("provider {name:?} exists already in namespace {:?}", provider.namespace);
            Err(ApiError::new(Code::AlreadyExists, detail)
                .field("name")
                .cure("replace it with PUT (`providers add --force`), or choose another name"))
        }
        Put::SlugTaken { by } => {
            let detail = format!("provider {name:?} would share its labels with {by:?}");
            Err(ApiError::new(Code::SlugTaken, detail).field("name").cure("choose a name that differs in letters or digits"))
        }
        Put::Missing(Missing::Cluster(cluster)) => {
            let detail = format!("provider {name:?}: no cluster is enrolled as {cluster:?}");
            Err(ApiError::new(Code::ClusterUnknown, detail).field("cluster").cure("`lakeshore clusters list` shows the names"))
        }
        Put::Missing(Missing::Namespace(namespace)) => Err(ApiError::new(Code::NamespaceNotFound, format!("namespace {namespace:?} does not exist"))),
        Put::Missing(Missing::Provider(_) | Missing::Itself) => Err(not_found(&provider.namespace, name)),
    }
}

fn not_found(namespace: &str, name: &str) -> ApiError {
    let detail = format!("provider {name:?} does not exist in namespace {namespace:?}");
    ApiError::new(Code::ProviderNotFound, detail).cure("`lakeshore providers list` shows the names")
}

/// The provider, if the caller may see it.
pub(super) async fn visible(app: &App, caller: &Caller, namespace: &str, name: &str) -> Result<Provider, ApiError> {
    caller.enter(app, namespace).await?;
    app.store.provider(namespace.to_owned(), name.to_owned()).await?.ok_or_else(|| not_found(namespace, name))
}

/// `POST …/providers`.
pub(super) async fn create(
    caller: Caller,
    State(app): AppState,
    Path(namespace): Path<String>,
    body: Body<ProviderBody>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    caller.enter(&app, &namespace).await?;
    let name = new_name(body.value.name.as_deref().unwrap_or_default())?.into();
    let provider = checked(namespace, name, body.value)?;
    let put = app.store.put_provider(provider.clone(), Write::Create, Timestamp::now()).await?;
    Ok((StatusCode::CREATED, answer(&provider, put)?))
}

/// `PUT …/providers/{name}`: replaces one that exists.
pub(super) async fn replace(
    caller: Caller,
    State(app): AppState,
    Path((namespace, name)): Path<(String, String)>,
    body: Body<ProviderBody>,
) -> Result<Json<Value>, ApiError> {
    caller.enter(&app, &namespace).await?;
    if body.value.name.as_ref().is_some_and(|given| *given != name) {
        return Err(ApiError::new(Code::InvalidField, format!("the body names another provider than the path, {name:?}")).field("name"));
    }
    let provider = checked(namespace, name, body.value)?;
    let put = app.store.put_provider(provider.clone(), Write::Replace, Timestamp::now()).await?;
    answer(&provider, put)
}

/// `GET …/providers`.
pub(super) async fn list(caller: Caller, State(app): AppState, Path(namespace): Path<String>) -> Result<Json<Value>, ApiError> {
    caller.enter(&app, &namespace).await?;
    Ok(Json(app.store.providers(namespace).await?.iter().map(show_provider).collect()))
}

/// `GET …/providers/{name}`.
pub(super) async fn show(caller: Caller, State(app): AppState, Path((namespace, name)): Path<(String, String)>) -> Result<Json<Value>, ApiError> {
    Ok(Json(show_provider(&visible(&app, &caller, &namespace, &name).await?)))
}

/// `DELETE …/providers/{name}`.
pub(super) async fn remove(caller: Caller, State(app): AppState, Path((namespace, name)): Path<(String, String)>) -> Result<StatusCode, ApiError> {
    caller.enter(&app, &namespace).await?;
    match app.store.remove_provider(namespace.clone(), name.clone()).await? {
        Removal::Done => Ok(StatusCode::NO_CONTENT),
        Removal::Unknown => Err(not_found(&namespace, &name)),
        Removal::InUse(open) => {
            let detail = format!("provider {name:?} has {open} instances that have not ended");
            Err(ApiError::new(Code::ProviderInUse, detail).cure("stop them first; `lakeshore providers instances NAME` lists them"))
        }
    }
}

/// `POST …/providers/{name}/test`: asks every daemon of the cluster. Creates nothing.
pub(super) async fn test(caller: Caller, State(app): AppState, Path((namespace, name)): Path<(String, String)>) -> Result<Json<Value>, ApiError> {
    let provider = visible(&app, &caller, &namespace, &name).await?;
    let live = app.hub.live(&provider.cluster);
    let checks = live.iter().map(|session| async {
        let (node, role) = (session.place().placement.node().cloned(), session.place().placement.role());
        let Some(items) = session.check(app.launch_wait).await else {
            let items = [json!({ "name": "answer", "ok": false, "message": "the daemon did not answer in time" })];
            return (false, json!({ "node": node, "role": role, "connected": true, "ok": false, "items": items }));
        };
        let ok = items.iter().all(|item| item.ok);
        (ok, json!({ "node": node, "role": role, "connected": true, "ok": ok, "items": items }))
    });
    let (mut all_ok, mut daemons) = (!live.is_empty(), Vec::new());
    for (ok, row) in join_all(checks).await {
        all_ok &= ok;
        daemons.push(row);
    }
    let known = app.store.daemons().await?;
    let away = known.iter().filter(|row| row.place.cluster == provider.cluster && !live.iter().any(|session| *session.place() == row.place));
    daemons.extend(away.map(|row| json!({ "node": row.place.placement.node(), "role": row.role, "connected": false, "ok": false, "items": [] })));
    Ok(Json(json!({ "ok": all_ok, "daemons": daemons })))
}
