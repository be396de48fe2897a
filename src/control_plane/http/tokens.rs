//! Callers' tokens.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::auth::Admin;
use super::error::new_name;
use super::extract::{Body, Path};
use super::view::time;
use super::{ApiError, AppState, Code};
use crate::control_plane::admin_socket::{CreatedToken, NewToken};
use crate::control_plane::store::{CallerToken, Missing, Put, Store, TokenRow};
use crate::control_plane::tokens::{TokenKind, new_id};

/// Checks a request for a token and draws the token, without storing it.
pub(crate) fn draw(request: NewToken) -> Result<(TokenRow, CreatedToken), ApiError> {
    let name: String = new_name(&request.name)?.into();
    if !request.admin && request.namespaces.is_empty() {
        let detail = format!("token {name:?} would see nothing");
        return Err(ApiError::new(Code::InvalidField, detail).field("namespaces").cure("name at least one namespace, or make it an admin's"));
    }
    let random = |_| ApiError::new(Code::Internal, "the system gives no randomness");
    let (id, token) = (new_id().map_err(random)?, TokenKind::Caller.generate().map_err(random)?);
    let row = TokenRow {
        id: id.clone(),
        name: name.clone(),
        hash: TokenKind::hash_of(&token),
        admin: request.admin,
        bootstrap: false,
        namespaces: request.namespaces,
        created_at: Timestamp::now(),
    };
    Ok((row, CreatedToken { id, name, token, notices: vec![] }))
}

/// What the store's answer to a new token means to who asked.
pub(crate) fn stored(name: &str, put: Put) -> Result<(), ApiError> {
    match put {
        Put::Done => Ok(()),
        Put::Missing(Missing::Namespace(namespace)) => {
            Err(ApiError::new(Code::InvalidField, format!("namespace {namespace:?} does not exist")).field("namespaces"))
        }
        Put::Exists | Put::SlugTaken { .. } | Put::Missing(_) => {
            let detail = format!("a token named {name:?} exists already");
            Err(ApiError::new(Code::AlreadyExists, detail).field("name").cure("revoke it first, or choose another name"))
        }
    }
}

/// Makes and stores a token.
pub(crate) async fn create(store: &dyn Store, request: NewToken) -> Result<CreatedToken, ApiError> {
    let (row, created) = draw(request)?;
    stored(&created.name, store.create_token(row).await?)?;
    Ok(created)
}

/// `POST /v1/tokens`: the only answer that ever holds the token.
pub(super) async fn create_route(_: Admin, State(app): AppState, body: Body<NewToken>) -> Result<(StatusCode, Json<Value>), ApiError> {
    let CreatedToken { id, name, token, .. } = create(app.store.as_ref(), body.value).await?;
    Ok((StatusCode::CREATED, Json(json!({ "id": id, "name": name, "token": token.expose_secret() }))))
}

/// `GET /v1/tokens`: everything but the tokens.
pub(super) async fn list(_: Admin, State(app): AppState) -> Result<Json<Value>, ApiError> {
    let show = |token: CallerToken| {
        let CallerToken { id, name, admin, namespaces, created_at } = token;
        json!({ "id": id, "name": name, "admin": admin, "namespaces": namespaces, "createdAt": time(created_at) })
    };
    Ok(Json(app.store.tokens().await?.into_iter().map(show).collect()))
}

/// `DELETE /v1/tokens/{id}`.
pub(super) async fn revoke(_: Admin, State(app): AppState, Path(id): Path<String>) -> Result<StatusCode, ApiError> {
    if app.store.revoke_token(id.clone(), Timestamp::now()).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(ApiError::new(Code::TokenNotFound, format!("there is no token with the id {id:?}")).cure("`lakeshore tokens list` shows the ids"))
}
