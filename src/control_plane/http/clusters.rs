//! Clusters, and their enrolment.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::auth::Admin;
use super::error::new_name;
use super::extract::Body;
use super::view::time;
use super::{ApiError, AppState, Code};
use crate::control_plane::store::{Cluster, Put};
use crate::control_plane::tokens::{TokenKind, new_id};
use crate::types::{MAX_LABEL_VALUE, slug};

/// Digits of the enrolment's id in `install`.
const INSTALL_DIGITS: usize = 8;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCluster {
    name: String,
}

/// `POST /v1/clusters`: the only answer that ever holds the enrolment token.
pub(super) async fn enroll(_: Admin, State(app): AppState, body: Body<NewCluster>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let name = new_name(&body.value.name)?;
    let random = |_| ApiError::new(Code::Internal, "the system gives no randomness");
    let (enrolment, token) = (new_id().map_err(random)?, TokenKind::Enrolment.generate().map_err(random)?);
    let mut install = slug(name.as_str());
    install.truncate(MAX_LABEL_VALUE - INSTALL_DIGITS - 1);
    let install = format!("{}-{}", install.trim_end_matches('-'), enrolment.chars().take(INSTALL_DIGITS).collect::<String>());
    let cluster = Cluster { name: name.into(), install, created_at: Timestamp::now() };
    match app.store.create_cluster(cluster.clone(), enrolment, TokenKind::hash_of(&token)).await? {
        Put::Done => {
            let body = json!({ "name": cluster.name, "install": cluster.install, "token": token.expose_secret() });
            Ok((StatusCode::CREATED, Json(body)))
        }
        Put::Exists | Put::SlugTaken { .. } | Put::Missing(_) => {
            Err(ApiError::new(Code::AlreadyExists, format!("a cluster named {:?} is enrolled already", cluster.name)).field("name"))
        }
    }
}

/// `GET /v1/clusters`.
pub(super) async fn list(_: Admin, State(app): AppState) -> Result<Json<Value>, ApiError> {
    let show = |(cluster, daemons): (Cluster, u64)| json!({ "name": cluster.name, "install": cluster.install, "createdAt": time(cluster.created_at), "daemons": daemons });
    Ok(Json(app.store.clusters().await?.into_iter().map(show).collect()))
}
