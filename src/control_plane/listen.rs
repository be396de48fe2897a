//! Connections: accepting them, TLS, HTTP/1.1, and letting go of them when the server stops.
//!
//! `axum::serve` sets no time-out on headers; here each connection has one, its TLS handshake happens in its own task, so that a
//! silent client stops nobody else, and their number is bounded.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::tls::Certificate;

/// Connections that speak HTTP at the same time; upgraded ones no longer count. Each holds some 20 KiB.
const MAX_CONNECTIONS: usize = 8192;
/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the headers of a request may take, and how long a connection may idle between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest request head, in bytes.
const MAX_HEAD: usize = 64 << 10;
/// How long to wait after a failed accept: the cause is a lack of file descriptors, which passes.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts until `stop` is cancelled. Connections that are open then finish what they are answering; `tasks` holds them.
pub(crate) async fn run(listener: TcpListener, certificate: Option<Arc<Certificate>>, router: Router, stop: CancellationToken, tasks: TaskTracker) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let next = || async {
        let slot = Arc::clone(&slots).acquire_owned().await;
        (slot, listener.accept().await)
    };
    while let Some((slot, accepted)) = stop.run_until_cancelled(next()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(error = %error, "A connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (certificate, router, stop) = (certificate.clone(), router.clone(), stop.clone());
        tasks.spawn(async move {
            let _slot = slot;
            connection(stream, certificate, router, stop).await;
        });
    }
}

async fn connection(stream: TcpStream, certificate: Option<Arc<Certificate>>, router: Router, stop: CancellationToken) {
    let _ = stream.set_nodelay(true); // only a matter of speed
    let Some(certificate) = certificate else { return http(stream, router, stop).await };
    match timeout(HANDSHAKE_TIMEOUT, TlsAcceptor::from(certificate.current()).accept(stream)).await {
        Ok(Ok(stream)) => http(stream, router, stop).await,
        Ok(Err(error)) => tracing::debug!(error = %error, "A TLS handshake failed"),
        Err(_) => tracing::debug!("A TLS handshake took too long"),
    }
}

async fn http<S>(stream: S, router: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: Request<Incoming>| router.clone().oneshot(request.map(Body::new)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %crate::error::Chain(&error), "A connection ended early");
    }
}
