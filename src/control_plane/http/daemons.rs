//! Daemons that ever connected, and how they are now.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::auth::Admin;
use super::view::time;
use super::{ApiError, AppState};

/// How sure it is who a daemon is, for people.
fn identity(account: Option<&str>) -> String {
    match account {
        Some(account) => format!("service account {account}"),
        None => "UNPROVEN: enrolment token only".to_owned(),
    }
}

/// `GET /v1/daemons`.
pub(super) async fn list(_: Admin, State(app): AppState) -> Result<Json<Value>, ApiError> {
    let mut shown = Vec::new();
    for row in app.store.daemons().await? {
        let session = app.hub.session(&row.place);
        // Of a node whose daemon is away, or may not read it, nothing is known: `null`, which is neither yes nor no.
        let facts = session.as_ref().and_then(|session| session.facts()).filter(|facts| !facts.conditions.is_empty());
        shown.push(json!({
            "cluster": row.place.cluster,
            "node": row.place.placement.node(),
            "role": row.role,
            "version": row.version,
            "connected": session.is_some(),
            "lastSeen": time(session.map_or(row.last_seen, |session| session.heard())),
            "policyDigest": row.policy_digest,
            "identity": identity(row.identity.as_deref()),
            "proven": row.identity.is_some(),
            "nodeUid": row.node_uid,
            "podUid": row.pod_uid,
            "epoch": row.epoch,
            "unschedulable": facts.as_ref().map(|facts| facts.unschedulable),
            "ready": facts.as_ref().map(|facts| facts.conditions.iter().any(|condition| condition == "Ready")),
        }));
    }
    Ok(Json(shown.into()))
}
