//! TCP → proxy → TLS → websocket.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::{AUTHORIZATION, RETRY_AFTER, SEC_WEBSOCKET_PROTOCOL};
use secrecy::ExposeSecret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::error::DialError;
use super::link::{Reader, Writer, split};
use super::target::Target;
use super::{proxy, tls};
use crate::types::Placement;
use crate::wire::{self, IDENTITY_HEADER, MAX_BINARY, NODE_HEADER, ROLE_HEADER};

/// How long everything between an open TCP connection and an open websocket may take.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// How long one address may take to accept the TCP connection; a name with several addresses tries each.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Read and write buffers of a link. tungstenite's default of 128 KiB is allocated at once, on both ends.
const BUFFER: usize = 8 << 10;
/// Longest text of a refusal that is repeated.
const MAX_DETAIL: usize = 500;

/// What the websocket runs over.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Dials the control plane once.
///
/// # Errors
/// [`DialError`]; [`DialError::is_terminal`] says whether trying again can help.
///
/// # Cancel safety
/// Dropping the future closes whatever was open.
pub async fn connect(target: &Target) -> Result<(Reader, Writer), DialError> {
    let address = target.url.authority();
    let proxy = proxy::choose(&target.url, target.proxy.as_ref().map(|proxy| proxy.expose_secret()))?;
    let tcp = match &proxy {
        Some(proxy) => open(&proxy.host, proxy.port).await?,
        None => open(target.url.host(), target.url.port()).await?,
    };
    let (step, handshake) = ("shaking hands", handshake(target, tcp, proxy.as_ref()));
    timeout(HANDSHAKE_DEADLINE, handshake).await.unwrap_or(Err(DialError::TimedOut { address, step, after: HANDSHAKE_DEADLINE }))
}

async fn open(host: &str, port: u16) -> Result<TcpStream, DialError> {
    let address = format!("{host}:{port}");
    let unresolved = |source| DialError::Unresolved { host: host.to_owned(), source };
    let found = timeout(HANDSHAKE_DEADLINE, lookup_host((host, port)))
        .await
        .map_err(|_| DialError::TimedOut { address: address.clone(), step: "looking up its name", after: HANDSHAKE_DEADLINE })?
        .map_err(unresolved)?;
    let mut last = None;
    for candidate in found {
        match timeout(CONNECT_DEADLINE, open_one(candidate)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(source)) => last = Some(DialError::Unreachable { address: address.clone(), source }),
            Err(_) => last = Some(DialError::TimedOut { address: address.clone(), step: "connecting", after: CONNECT_DEADLINE }),
        }
    }
    Err(last.unwrap_or_else(|| unresolved(io::Error::from(io::ErrorKind::NotFound))))
}

async fn open_one(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_keepalive(true)?; // the heartbeat finds a dead peer first; this clears state in between (NAT, firewalls)
    socket.set_nodelay(true)?; // a message is one frame: waiting to fill a segment only adds delay
    socket.connect(address).await
}

async fn handshake(target: &Target, mut tcp: TcpStream, proxy: Option<&proxy::Proxy>) -> Result<(Reader, Writer), DialError> {
    if let Some(proxy) = proxy {
        proxy::tunnel(&mut tcp, proxy, &target.url).await?;
    }
    let stream: Box<dyn Stream> = if target.url.is_tls() { Box::new(encrypt(target, tcp).await?) } else { Box::new(tcp) };
    upgrade(target, stream).await
}

async fn encrypt(target: &Target, tcp: TcpStream) -> Result<tokio_rustls::client::TlsStream<TcpStream>, DialError> {
    let address = target.url.authority();
    let ca_file = target.ca_file.clone();
    let config = tokio::task::spawn_blocking(move || tls::config(ca_file.as_deref()))
        .await
        .map_err(|error| DialError::Tls { address: address.clone(), source: io::Error::other(error) })??;
    let name = tls::server_name(target.server_name.as_deref().unwrap_or(target.url.host()))?;
    TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map_err(|source| tls::explain(&address, source))
}

async fn upgrade(target: &Target, stream: Box<dyn Stream>) -> Result<(Reader, Writer), DialError> {
    let address = target.url.authority();
    let failed = |source| DialError::Handshake { address: address.clone(), source };
    let mut request = target.url.to_string().into_client_request().map_err(failed)?;
    let bearer = secret(&format!("Bearer {}", target.token.expose_secret()), "control_plane.token_file")?;
    let offered = HeaderValue::from_str(&wire::offer()).map_err(|error| failed(WsError::HttpFormat(error.into())))?;
    request.headers_mut().insert(AUTHORIZATION, bearer);
    if let Some(identity) = &target.identity {
        request.headers_mut().insert(IDENTITY_HEADER, secret(identity.expose_secret(), "control_plane.identity_token_file")?);
    }
    match &target.placement {
        Placement::Node(node) => {
            let node = HeaderValue::from_str(node.as_str()).map_err(|error| failed(WsError::HttpFormat(error.into())))?;
            request.headers_mut().insert(NODE_HEADER, node);
        }
        Placement::Cluster => drop(request.headers_mut().insert(ROLE_HEADER, HeaderValue::from_static("cluster"))),
    }
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, offered);

    // A frame and what stands in the buffer behind it: a slow peer holds up our writer, not our memory.
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_write_buffer_size(2 * MAX_BINARY)
        .max_message_size(Some(MAX_BINARY))
        .max_frame_size(Some(MAX_BINARY));
    match client_async_with_config(request, stream, Some(config)).await {
        Ok((socket, response)) => match response.headers().get(SEC_WEBSOCKET_PROTOCOL) {
            Some(agreed) if agreed.to_str().is_ok_and(|agreed| wire::negotiate(agreed).is_some()) => Ok(split(socket)),
            _ => Err(DialError::Subprotocol),
        },
        Err(WsError::Http(response)) => Err(refusal(&response)),
        // tungstenite checks the subprotocol too, by the request.
        Err(WsError::Protocol(ProtocolError::SecWebSocketSubProtocolError(_))) => Err(DialError::Subprotocol),
        Err(source) => Err(failed(source)),
    }
}

fn secret(text: &str, key: &'static str) -> Result<HeaderValue, DialError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| DialError::TokenMalformed { key })?;
    value.set_sensitive(true);
    Ok(value)
}

/// What an HTTP answer in place of an upgrade means. Its body is problem+json when a control plane sent it.
fn refusal(response: &http::Response<Option<Vec<u8>>>) -> DialError {
    #[derive(serde::Deserialize)]
    struct Problem {
        detail: Option<String>,
        title: Option<String>,
    }
    let status = response.status().as_u16();
    let problem = response.body().as_deref().and_then(|body| serde_json::from_slice::<Problem>(body).ok());
    let said = problem.and_then(|problem| problem.detail.or(problem.title)).map(|text| text.chars().take(MAX_DETAIL).collect::<String>());
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_secs);
    let not_upgraded = |meaning: &str| DialError::NotUpgraded { status, detail: said.clone().unwrap_or_else(|| meaning.into()), retry_after };
    match status {
        401 | 403 => DialError::TokenRefused { status, detail: said.clone().unwrap_or_else(|| "it gave no reason".into()) },
        404 => not_upgraded("there is no control plane at this path; check control_plane.url"),
        426 => not_upgraded("it speaks other versions of the protocol; use releases of the daemon and the control plane that overlap"),
        300..=399 => {
            DialError::NotUpgraded { status, detail: "it redirects elsewhere; set control_plane.url to the final address".into(), retry_after }
        }
        _ => not_upgraded("it gave no reason"),
    }
}
