//! Clusters, and their enrolment tokens.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::{Admin, Caller};
use super::error::new_name;
use super::extract::{Body, Path};
use super::view::time;
use super::{ApiError, AppState, Code};
use crate::control_plane::audit;
use crate::control_plane::identity::KeySet;
use crate::control_plane::options::parse_duration;
use crate::control_plane::store::{Added, Cluster, ClusterRow, Enrolment, NewEnrolment, Put, Trust};
use crate::control_plane::tokens::{TokenKind, new_id};
use crate::types::{MAX_LABEL_VALUE, shell_word, slug};
use crate::wire::ClusterKeys;

/// Digits of the enrolment's id in `install`.
const INSTALL_DIGITS: usize = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewCluster {
    name: String,
    expires_in: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct NewToken {
    expires_in: Option<String>,
}

/// Draws an enrolment token, without storing it.
fn draw(expires_in: Option<&str>) -> Result<(NewEnrolment, SecretString), ApiError> {
    let random = |_| ApiError::new(Code::Internal, "the system gives no randomness");
    let (id, token) = (new_id().map_err(random)?, TokenKind::Enrolment.generate().map_err(random)?);
    let created_at = Timestamp::now();
    let expires_at = expires_in.map(|text| expiry(created_at, text)).transpose()?;
    Ok((NewEnrolment { id, hash: TokenKind::hash_of(&token), created_at, expires_at }, token))
}

fn expiry(now: Timestamp, text: &str) -> Result<Timestamp, ApiError> {
    let invalid = |detail: String| ApiError::new(Code::InvalidField, detail).field("expiresIn");
    let after = parse_duration(text).map_err(|error| invalid(error.to_string()))?;
    let after = SignedDuration::try_from(after).ok().filter(SignedDuration::is_positive);
    after.and_then(|after| now.checked_add(after).ok()).ok_or_else(|| invalid(format!("{text:?} is not a time in which a token can expire")))
}

/// `POST /v1/clusters`: the only answer that ever holds the enrolment token.
pub(super) async fn enroll(_: Admin, caller: Caller, State(app): AppState, body: Body<NewCluster>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let name = new_name(&body.value.name)?;
    let (enrolment, token) = draw(body.value.expires_in.as_deref())?;
    let mut install = slug(name.as_str());
    install.truncate(MAX_LABEL_VALUE - INSTALL_DIGITS - 1);
    let install = format!("{}-{}", install.trim_end_matches('-'), enrolment.id.chars().take(INSTALL_DIGITS).collect::<String>());
    let cluster = Cluster { name: name.into(), install, created_at: enrolment.created_at };
    match app.store.create_cluster(cluster.clone(), enrolment.clone()).await? {
        Put::Done => {
            audit::enrolment_created(&cluster.name, &enrolment.id, &caller.0.name, enrolment.expires_at);
            let mut body = created(&cluster.name, &enrolment, &token);
            body["install"] = cluster.install.into();
            Ok((StatusCode::CREATED, Json(body)))
        }
        Put::Exists | Put::SlugTaken { .. } | Put::Missing(_) => {
            let detail = format!("a cluster named {:?} is enrolled already", cluster.name);
            let cure = format!("`lakeshore clusters rotate {}` makes a second token for it", shell_word(&cluster.name));
            Err(ApiError::new(Code::AlreadyExists, detail).field("name").cure(cure))
        }
    }
}

fn created(cluster: &str, enrolment: &NewEnrolment, token: &SecretString) -> Value {
    json!({ "name": cluster, "id": enrolment.id, "expiresAt": enrolment.expires_at.map(time), "token": token.expose_secret() })
}

/// `POST /v1/clusters/{cluster}/tokens`: a second enrolment token, beside the one in use.
pub(super) async fn rotate(
    _: Admin,
    caller: Caller,
    State(app): AppState,
    Path(cluster): Path<String>,
    body: Body<NewToken>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let (enrolment, token) = draw(body.value.expires_in.as_deref())?;
    match app.store.add_enrolment(cluster.clone(), enrolment.clone()).await? {
        Added::Done => {
            audit::enrolment_created(&cluster, &enrolment.id, &caller.0.name, enrolment.expires_at);
            Ok((StatusCode::CREATED, Json(created(&cluster, &enrolment, &token))))
        }
        Added::Unknown => Err(not_enrolled(&cluster)),
        Added::Full(live) => {
            let detail = format!("cluster {cluster:?} has two live enrolment tokens: {}", live.join(" and "));
            let cure = format!("end the one that no daemon uses any more with `lakeshore clusters revoke {} ID`", shell_word(&cluster));
            Err(ApiError::new(Code::TwoTokens, detail).cure(cure))
        }
    }
}

/// `DELETE /v1/clusters/{cluster}/tokens/{id}`: the sessions that were opened with it are closed at once.
pub(super) async fn revoke(
    _: Admin,
    caller: Caller,
    State(app): AppState,
    Path((cluster, id)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    if app.store.revoke_enrolment(cluster.clone(), id.clone(), Timestamp::now()).await? {
        let sessions = app.hub.revoke(&id);
        audit::enrolment_revoked(&cluster, &id, &caller.0.name, sessions);
        return Ok(StatusCode::NO_CONTENT);
    }
    if !app.store.clusters().await?.iter().any(|row| row.cluster.name == cluster) {
        return Err(not_enrolled(&cluster));
    }
    let detail = format!("cluster {cluster:?} has no enrolment token with the id {id:?}");
    Err(ApiError::new(Code::TokenNotFound, detail).cure("`lakeshore clusters list` shows the ids"))
}

fn not_enrolled(cluster: &str) -> ApiError {
    ApiError::new(Code::ClusterNotFound, format!("cluster {cluster:?} is not enrolled")).cure("`lakeshore clusters list` shows those that are")
}

/// `GET /v1/clusters`.
pub(super) async fn list(_: Admin, State(app): AppState) -> Result<Json<Value>, ApiError> {
    Ok(Json(app.store.clusters().await?.into_iter().map(show).collect()))
}

fn show(row: ClusterRow) -> Value {
    let ClusterRow { cluster, daemons, enrolments, trust } = row;
    let now = Timestamp::now();
    let token = |token: Enrolment| {
        let (used, expires) = (token.last_used_at.map(time), token.expires_at.map(time));
        json!({ "id": token.id, "createdAt": time(token.created_at), "lastUsedAt": used, "expiresAt": expires, "expired": !token.is_live(now) })
    };
    json!({
        "name": cluster.name,
        "install": cluster.install,
        "createdAt": time(cluster.created_at),
        "daemons": daemons,
        "tokens": enrolments.into_iter().map(token).collect::<Vec<_>>(),
        "keys": trust.map(keys),
    })
}

/// What the proofs of a cluster's daemons are checked against.
fn keys(trust: Trust) -> Value {
    let Trust { cluster_uid, issuer, jwks, recorded_at, accounts } = trust;
    let said = ClusterKeys { issuer, jwks };
    let names: Vec<String> = KeySet::read(&said).map(|keys| keys.names().into_iter().map(str::to_owned).collect()).unwrap_or_default();
    let accounts: serde_json::Map<_, _> = accounts.iter().map(|(role, account)| (role.to_string(), account.to_string().into())).collect();
    json!({ "clusterUid": cluster_uid, "issuer": said.issuer, "names": names, "recordedAt": time(recorded_at), "accounts": accounts })
}
