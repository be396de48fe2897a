//! Launches. The order is the contract: validate, write the row, offer it, wait, answer.

use std::error::Error;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::time::{Instant, timeout_at};

use super::auth::Caller;
use super::extract::{Body, Path};
use super::view::Reaches;
use super::{ApiError, App, AppState, Code, modes, providers};
use crate::control_plane::launch::{self, Fields, Resolved};
use crate::control_plane::placement;
use crate::control_plane::store::{Idempotency, Instance, Launched, NewLaunch, Phase, Provider};
use crate::types::{Attempt, DispatchId, MAX_LABEL_VALUE, Placement};
use crate::wire::{Binary, Dispatch, DispatchEnvelope, Workdir};

/// Header that makes a caller's retry safe.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Longest idempotency key, in bytes: a UUID has 36.
const MAX_KEY: usize = 255;

/// `POST …/providers/{name}/launch`.
pub(super) async fn launch(
    caller: Caller,
    State(app): AppState,
    Path((namespace, name)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body<Map<String, Value>>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let provider = providers::visible(&app, &caller, &namespace, &name).await?;
    let idempotency = idempotency(&headers, &caller, &body.bytes)?;
    // A caller that hangs up undoes nothing: from here on the work is the server's own.
    let task = match earlier(&app, &provider, idempotency.as_ref()).await? {
        // What has changed since it was launched, a mode or the room on disk, is nothing to a launch that is stored.
        Some(earlier) => app.tasks.spawn(answer(Arc::clone(&app), earlier, Instant::now() + app.launch_wait)),
        None => {
            let mode = mode(&app, &provider, &body.value).await?;
            let resolved = launch::resolve(&body.value, mode.as_ref(), &provider.kwargs)?;
            app.disk.check()?;
            app.tasks.spawn(carry_out(Arc::clone(&app), caller, provider, resolved, idempotency))
        }
    };
    task.await.unwrap_or_else(|_| Err(ApiError::new(Code::Internal, "the launch was interrupted; its row tells how far it came")))
}

async fn mode(app: &App, provider: &Provider, body: &Fields) -> Result<Option<Fields>, ApiError> {
    let name = match body.get("mode") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(name)) => name,
        Some(_) => return Err(ApiError::new(Code::InvalidField, "mode: it must be a string: a mode's name").field("mode")),
    };
    let found = app.store.mode(provider.namespace.clone(), name.clone()).await?;
    let mode = found.ok_or_else(|| modes::not_found(&provider.namespace, name).field("mode"))?;
    if mode.provider != provider.name {
        let detail = format!("mode {name:?} belongs to provider {:?}, not to {:?}", mode.provider, provider.name);
        return Err(ApiError::new(Code::ModeMismatch, detail).field("mode").cure("launch on the mode's own provider"));
    }
    Ok(Some(mode.fields))
}

fn idempotency(headers: &HeaderMap, caller: &Caller, body: &[u8]) -> Result<Option<Idempotency>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| (1..=MAX_KEY).contains(&key.len()));
    let wrong = || ApiError::new(Code::InvalidField, format!("the header Idempotency-Key must have 1 to {MAX_KEY} visible ASCII characters"));
    let key = key.ok_or_else(|| wrong().field("Idempotency-Key"))?.to_owned();
    Ok(Some(Idempotency { token: caller.0.id.clone(), key, body_hash: Sha256::digest(body).into() }))
}

/// The launch that the key stands for.
async fn earlier(app: &App, provider: &Provider, idempotency: Option<&Idempotency>) -> Result<Option<DispatchId>, ApiError> {
    let Some(used) = idempotency else { return Ok(None) };
    match app.store.launched_before(provider.namespace.clone(), provider.name.clone(), used.clone()).await? {
        None => Ok(None),
        Some(Launched::Replayed(row)) => Ok(Some(row.dispatch_id)),
        Some(_) => Err(key_reused()),
    }
}

fn key_reused() -> ApiError {
    let detail = "the idempotency key was used before, for another body";
    ApiError::new(Code::KeyReused, detail).field("Idempotency-Key").cure("use a fresh key for each launch")
}

/// Places that may get the launch. None is no error yet: a retry of what is stored needs none.
async fn candidates(app: &App, provider: &Provider, resolved: &Resolved) -> Result<Result<Vec<Placement>, ApiError>, ApiError> {
    let (cluster, named) = (&provider.cluster, resolved.node.as_ref());
    let facts = app.hub.facts(cluster);
    if named.is_none() && resolved.work.workdir == Workdir::None && app.hub.has_cluster_daemon(cluster) {
        return Ok(Ok(vec![Placement::Cluster]));
    }
    if let Some(node) = named {
        if facts.iter().any(|facts| facts.name == *node) {
            return Ok(Ok(vec![Placement::Node(node.clone())]));
        }
        let known = app.store.daemon(cluster.clone(), node.as_str().to_owned()).await?.is_some();
        let error = match known {
            true => ApiError::new(Code::NodeNotConnected, format!("the daemon of node {node} in cluster {cluster:?} is not connected"))
                .cure("look at the daemon's log on that node, or leave the node out"),
            false => ApiError::new(Code::NodeNotFound, format!("cluster {cluster:?} has no daemon for a node {node}"))
                .cure("`lakeshore daemons` lists the nodes that have one"),
        };
        return Ok(Err(error.field("node")));
    }
    if facts.is_empty() && app.hub.has_cluster_daemon(cluster) {
        let detail = format!("no node's daemon of cluster {cluster:?} is connected, and a launch with a workdir needs one");
        return Ok(Err(ApiError::new(Code::NoLiveDaemon, detail).cure("look at the logs of the DaemonSet there, or launch with `workdir: none`")));
    }
    if facts.is_empty() {
        let detail = format!("no daemon of cluster {cluster:?} is connected");
        return Ok(Err(ApiError::new(Code::NoLiveDaemon, detail)
            .cure("install the nymph chart there, or look at its daemons' logs; `lakeshore daemons` shows them")));
    }
    let (nodes, obstacles) = placement::eligible(&facts);
    if nodes.is_empty() {
        let detail = format!("no node of cluster {cluster:?} can take a launch now: {}", obstacles.join("; "));
        return Ok(Err(ApiError::new(Code::NoEligibleNode, detail).cure("make a node schedulable, or name one with `node`")));
    }
    Ok(Ok(nodes))
}

async fn carry_out(
    app: Arc<App>,
    caller: Caller,
    provider: Provider,
    resolved: Resolved,
    idempotency: Option<Idempotency>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let deadline = Instant::now() + app.launch_wait;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| ApiError::new(Code::Internal, "the system gives no randomness"))?;
    let dispatch_id = DispatchId::from_random(random);
    let candidates = candidates(&app, &provider, &resolved).await?;
    let payload = launch::encode(&provider.namespace, &provider.name, &caller.0.name, resolved.work);
    fits(&dispatch_id, &payload)?;
    let new = NewLaunch {
        dispatch_id,
        namespace: provider.namespace.clone(),
        provider: provider.name.clone(),
        cluster: provider.cluster.clone(),
        candidates: candidates.clone().unwrap_or_default(),
        node_named: resolved.node.is_some(),
        requested_by: caller.0.name.clone(),
        payload,
        idempotency,
        now: Timestamp::now(),
    };
    let row = match app.store.launch(new).await? {
        Launched::New(row) => {
            tracing::info!(dispatch = %row.dispatch_id, instance = %row.name, node = %row.place.placement, ns = %row.namespace, provider = %row.provider, "Launch stored");
            app.hub.offer(&row.place);
            row
        }
        Launched::Replayed(row) => row,
        Launched::KeyReused => return Err(key_reused()),
        Launched::ProviderGone => {
            let detail = format!("provider {:?} was removed or changed meanwhile", provider.name);
            return Err(ApiError::new(Code::ProviderNotFound, detail));
        }
        Launched::Nowhere => return Err(candidates.map_or_else(|error| error, |candidates| nodes_gone(&candidates))),
    };
    answer(app, row.dispatch_id, deadline).await
}

async fn answer(app: Arc<App>, dispatch_id: DispatchId, deadline: Instant) -> Result<(StatusCode, Json<Value>), ApiError> {
    let row = settled(&app, &dispatch_id, deadline).await?;
    match &row.rejection {
        Some(rejection) => Err(rejection.into()),
        None => Ok((StatusCode::ACCEPTED, Json(Reaches::new(&app).instance(&row)))),
    }
}

/// All that could take a launch are nodes that the cluster's daemon has read to be gone.
fn nodes_gone(candidates: &[Placement]) -> ApiError {
    let whose: Vec<String> = candidates.iter().map(Placement::whose).collect();
    let detail = format!("gone from the cluster, or out of service: {}", whose.join(", "));
    ApiError::new(Code::NoEligibleNode, detail)
        .cure("bring the node back (and take the taint node.kubernetes.io/out-of-service away), or use another one")
}

/// Refuses at the door what could never be sent.
fn fits(dispatch_id: &DispatchId, payload: &[u8]) -> Result<(), ApiError> {
    let attempt = Attempt(u32::MAX);
    let envelope = DispatchEnvelope {
        dispatch_id: dispatch_id.clone(),
        attempt,
        instance: dispatch_id.instance_name(attempt),
        install: "x".repeat(MAX_LABEL_VALUE),
        placement: Placement::Cluster,
        accepted_before: false,
    };
    let too_large = |error: &dyn Error| ApiError::new(Code::BodyTooLarge, format!("the launch is too large to send to a daemon: {error}"));
    Binary::Dispatch(envelope, payload.to_vec().into()).encode().map_err(|error| too_large(&error))?;
    // What a daemon reads is what we read: too many values, or nested too deeply.
    Dispatch::decode(payload).map(drop).map_err(|error| too_large(&error))
}

/// Waits until the daemon has said yes by creating, or no; at the deadline the row as it is, with its name fixed from then on.
async fn settled(app: &App, dispatch_id: &DispatchId, deadline: Instant) -> Result<Instance, ApiError> {
    let gone = || ApiError::new(Code::Internal, "a stored launch has no row");
    let mut changes = app.hub.changes.subscribe(dispatch_id);
    loop {
        let row = app.store.instance_of(dispatch_id.clone()).await?.ok_or_else(gone)?;
        if matches!(row.phase, Phase::Created | Phase::Ended) {
            return Ok(row);
        }
        let waited = timeout_at(deadline, app.stop.run_until_cancelled(changes.changed())).await;
        if !matches!(waited, Ok(Some(Ok(())))) {
            return app.store.mark_answered(dispatch_id.clone()).await?.ok_or_else(gone);
        }
    }
}
