//! `GET /healthz` and `GET /readyz`.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::telemetry::Health;

/// A probe sends a few hundred bytes at once; whoever takes longer holds a connection open for nothing.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest life of a connection: probes open a new one each time.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Connections at a time: the kubelet's probes and a handful of curious people.
const MAX_CONNECTIONS: usize = 64;

/// Binds the address, so that a port that is taken is a configuration error at start.
///
/// # Errors
/// What the system said.
pub(super) async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// Answers probes until cancelled.
pub(super) async fn serve(listener: TcpListener, health: Health, cancel: CancellationToken) {
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(Duration::from_millis(100)).await; // out of file descriptors, most likely: they come back
            continue;
        };
        let (health, cancel) = (health.clone(), cancel.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = answer(&request, &health);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .max_buf_size(8 << 10)
                .serve_connection(TokioIo::new(stream), service);
            tokio::select! {
                () = cancel.cancelled() => {}
                _ = timeout(CONNECTION_TIMEOUT, connection) => {} // a prober that hangs up early is no news
            }
            drop(slot);
        });
    }
}

fn answer(request: &Request<Incoming>, health: &Health) -> Response<Full<Bytes>> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/healthz") => (StatusCode::OK, "ok".to_owned()),
        (&Method::GET | &Method::HEAD, "/readyz") => match health.ready() {
            Ok(()) => (StatusCode::OK, "ready".to_owned()),
            Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
        },
        (&Method::GET | &Method::HEAD, _) => (StatusCode::NOT_FOUND, "only /healthz and /readyz are here".to_owned()),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET is answered".to_owned()),
    };
    let mut response = Response::new(Full::from(format!("{text}\n")));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Condition;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    async fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it answers and closes");
        answer
    }

    async fn server() -> (SocketAddr, Health) {
        let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
        let (address, health) = (listener.local_addr().expect("it is bound"), Health::starting());
        tokio::spawn(serve(listener, health.clone(), CancellationToken::new()));
        (address, health)
    }

    #[tokio::test]
    async fn readiness_tells_what_is_missing_and_liveness_does_not_care() {
        let (address, health) = server().await;
        let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        health.fail(Condition::ControlPlane, "enrolment token not accepted");
        let answer = ask(address, &get("/readyz")).await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("control_plane: enrolment token not accepted"), "{answer}");
        assert!(ask(address, &get("/healthz")).await.starts_with("HTTP/1.1 200"));
        for condition in [Condition::ControlPlane, Condition::Policy, Condition::Watches] {
            health.hold(condition);
        }
        assert!(ask(address, &get("/readyz")).await.starts_with("HTTP/1.1 200"));
        assert!(ask(address, &get("/metrics")).await.starts_with("HTTP/1.1 404"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_sends_no_request_is_hung_up_on() {
        let (address, _health) = server().await;
        let answer = ask(address, "GET /healthz HTT").await;
        assert!(!answer.contains("200"), "{answer}");
    }
}
