//! Who calls, and what they may see. Every protected route is behind [`require_token`]: a route that forgets to ask is refused.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::AUTHORIZATION;
use http::request::Parts;

use super::{ApiError, App, Code};
use crate::control_plane::store::CallerToken;
use crate::control_plane::tokens::TokenKind;

/// Lets a request pass that carries a caller's token, and remembers whose it is.
pub(crate) async fn require_token(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Result<Response, ApiError> {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = header.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let hash = token.and_then(|(_, token)| TokenKind::Caller.hash(token.trim()));
    let unknown = || {
        ApiError::new(Code::Unauthorized, "the token is missing, malformed, unknown or revoked")
            .cure("send `Authorization: Bearer lakeshore_…`; the first token is made on the server with `lakeshore tokens create --data DIR --name NAME --admin`")
    };
    let caller = app.store.caller_by_token(hash.ok_or_else(unknown)?).await?.ok_or_else(unknown)?;
    request.extensions_mut().insert(Caller(Arc::new(caller)));
    Ok(next.run(request).await)
}

/// Whoever sent the request.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) Arc<CallerToken>);

impl Caller {
    /// Whether a namespace is theirs to see.
    pub(crate) fn sees(&self, namespace: &str) -> bool {
        self.0.admin || self.0.namespaces.iter().any(|name| name == namespace)
    }

    /// Passes when the namespace exists and is theirs; whether it is one or the other is not told.
    pub(crate) async fn enter(&self, app: &App, namespace: &str) -> Result<(), ApiError> {
        let exists = self.sees(namespace) && app.store.namespaces().await?.iter().any(|(name, _)| name == namespace);
        if exists {
            Ok(())
        } else {
            Err(ApiError::new(Code::NamespaceNotFound, format!("namespace {namespace:?} does not exist, or the token may not see it")))
        }
    }
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ApiError::new(Code::Unauthorized, "the route was reached without a token"))
    }
}

/// Whoever sent the request, an admin.
#[derive(Clone, Debug)]
pub(crate) struct Admin;

impl FromRequestParts<Arc<App>> for Admin {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, ApiError> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let refused = || ApiError::new(Code::Forbidden, format!("the token {:?} is not an admin's", caller.0.name)).cure("use an admin's token");
        if caller.0.admin { Ok(Self) } else { Err(refused()) }
    }
}
