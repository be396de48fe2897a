//! HTTP proxies: which one, and the CONNECT request through it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper_util::client::proxy::matcher::Matcher;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::error::DialError;
use super::target::Url;

/// Longest answer to CONNECT that is read: proxies send a status line and a handful of headers.
const MAX_ANSWER: usize = 8 << 10;

/// A proxy to go through.
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// Value of `Proxy-Authorization`.
    authorization: Option<String>,
}

/// The proxy for `url`: the configured one, else what the environment says under curl's rules.
pub(super) fn choose(url: &Url, configured: Option<&str>) -> Result<Option<Proxy>, DialError> {
    let bad = |why: &str| DialError::BadProxy { why: why.to_owned() };
    let matcher = match configured {
        Some(proxy) => Matcher::builder().all(proxy).build(),
        None => Matcher::from_env(),
    };
    // The matcher knows http and https only, so that ws and wss are asked for under these names.
    let destination: http::Uri = url.as_http().parse().map_err(|_| bad("the control plane's URL cannot be matched against it"))?;
    let Some(found) = matcher.intercept(&destination) else {
        return if configured.is_some() { Err(bad("control_plane.proxy cannot be read as a URL")) } else { Ok(None) };
    };
    // ALL_PROXY may hand out socks5; an https proxy would need TLS inside TLS.
    if found.uri().scheme_str() != Some("http") {
        return Err(bad(&format!("its scheme {:?} is not supported", found.uri().scheme_str().unwrap_or_default())));
    }
    let host = found.uri().host().ok_or_else(|| bad("it names no host"))?.trim_start_matches('[').trim_end_matches(']').to_owned();
    let authorization = found
        .basic_auth()
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned)
        .or_else(|| found.raw_auth().map(|(user, password)| format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))));
    Ok(Some(Proxy { host, port: found.uri().port_u16().unwrap_or(80), authorization }))
}

/// Asks the proxy on `stream` for a tunnel to `url`. The caller sets the deadline.
pub(super) async fn tunnel(stream: &mut TcpStream, proxy: &Proxy, url: &Url) -> Result<(), DialError> {
    let address = url.authority();
    let refused = |answer: String| DialError::ProxyRefused { proxy: format!("{}:{}", proxy.host, proxy.port), address: address.clone(), answer };
    let mut request = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n");
    if let Some(value) = &proxy.authorization {
        request.push_str(&format!("Proxy-Authorization: {value}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| refused(error.to_string()))?;

    // Byte by byte: whatever follows the empty line belongs to the tunnel.
    let mut answer = Vec::with_capacity(256);
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() == MAX_ANSWER {
            return Err(refused("its answer does not end".into()));
        }
        match stream.read_u8().await {
            Ok(byte) => answer.push(byte),
            Err(error) => return Err(refused(format!("it closed the connection: {error}"))),
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let line = text.lines().next().unwrap_or_default();
    match line.split_ascii_whitespace().nth(1) {
        Some("200") => Ok(()),
        Some("407") => Err(refused(format!("{line}: it wants a user and password; write them into control_plane.proxy"))),
        _ => Err(refused(line.chars().take(200).collect())),
    }
}
