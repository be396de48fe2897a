//! A daemon's handshake: who it is, before a single frame is read.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::HeaderValue;
use http::header::{AUTHORIZATION, ORIGIN, SEC_WEBSOCKET_PROTOCOL};
use hyper_util::rt::TokioIo;
use secrecy::SecretString;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::conversation;
use crate::control_plane::http::{ApiError, App, Code};
use crate::control_plane::tokens::{TokenHash, TokenKind};
use crate::types::Placement;
use crate::wire::{IDENTITY_HEADER, MAX_BINARY, NODE_HEADER, ROLE_HEADER, Version, negotiate, offer};

/// Read and write buffers of a socket, in bytes: there is one of each for every connected daemon.
const BUFFER: usize = 4 << 10;
/// What may wait in a socket's own write buffer: the longest frame, and the small ones that may stand beside it.
const MAX_WRITE_BUFFER: usize = MAX_BINARY + (256 << 10);

/// What a daemon says before its upgrade. Checked after its token: a stranger learns nothing of what else is wrong.
struct Handshake {
    token: Option<TokenHash>,
    identity: Option<SecretString>,
    placement: Option<Placement>,
    version: Option<Version>,
    response: Result<Response, String>,
}

impl Handshake {
    fn read(request: &Request) -> Self {
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let token = header(AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
        let offered = header(SEC_WEBSOCKET_PROTOCOL.as_str()).unwrap_or_default();
        Self {
            token: token.and_then(|token| TokenKind::Enrolment.hash(token.trim())),
            identity: header(IDENTITY_HEADER).map(|token| SecretString::from(token.trim())),
            placement: placement(header(ROLE_HEADER), header(NODE_HEADER)),
            version: negotiate(offered),
            response: create_response_with_body(request, Body::empty).map_err(|error| error.to_string()),
        }
    }
}

/// What the two headers say of the daemon's place; `None` when they make no sense together.
fn placement(role: Option<&str>, node: Option<&str>) -> Option<Placement> {
    match (role.unwrap_or("node"), node) {
        ("node", Some(node)) => node.parse().ok().map(Placement::Node),
        ("cluster", None) => Some(Placement::Cluster),
        _ => None,
    }
}

/// `GET /v1/daemon/connect`.
pub(crate) async fn connect(State(app): State<Arc<App>>, mut request: Request) -> Result<Response, ApiError> {
    if request.headers().contains_key(ORIGIN) {
        return Err(ApiError::new(Code::BrowserRefused, "this path is for daemons; a request with an Origin comes from a browser"));
    }
    let Handshake { token, identity, placement, version, response } = Handshake::read(&request);
    // The same words for everybody, so that who has stolen an enrolment token does not learn that it is one.
    let unknown = || {
        ApiError::new(Code::Unauthorized, "the enrolment token (unknown, revoked or expired) or the daemon's proof of identity is not accepted")
            .cure("`lakeshore clusters list` shows the tokens; the chart's controlPlane.audience must be what `lakeshore serve --audience` says")
    };
    let visitor = app.hub.at_the_door(token, placement.clone(), identity).await?.ok_or_else(unknown)?;
    let placement = placement.ok_or_else(|| {
        let detail = format!("the header {NODE_HEADER} must name the daemon's node, or {ROLE_HEADER} say that it is the cluster's");
        ApiError::new(Code::BadHandshake, detail)
    })?;
    let version = version.ok_or_else(|| {
        let detail = format!("no common protocol version: this control plane speaks {}", offer());
        ApiError::new(Code::VersionRefused, detail).cure("use releases of the daemon and the control plane that overlap")
    })?;
    let mut response = response.map_err(|error| ApiError::new(Code::BadHandshake, format!("this is no websocket handshake: {error}")))?;
    response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(version.subprotocol()));
    let upgrade = hyper::upgrade::on(&mut request);
    let hub = Arc::clone(&app.hub);
    app.hub.spawn(async move {
        let upgraded = match upgrade.await {
            Ok(upgraded) => upgraded,
            Err(error) => return tracing::warn!(node = %placement, error = %error, "A daemon's upgrade failed"),
        };
        let config = WebSocketConfig::default()
            .read_buffer_size(BUFFER)
            .write_buffer_size(BUFFER)
            .max_write_buffer_size(MAX_WRITE_BUFFER)
            .max_message_size(Some(MAX_BINARY))
            .max_frame_size(Some(MAX_BINARY));
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
        conversation::run(hub, visitor, socket).await;
    });
    Ok(response)
}
