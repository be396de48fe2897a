//! The kubelet's own HTTPS server, as far as `containerLogs` goes: without it, each ended Pod's log would be asked for again and again.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::kubelet::{Kubelet, Run};

/// Serves the logs of a kubelet's Pods until it is dropped.
pub(crate) async fn serve(listener: TcpListener, kubelet: Kubelet) {
    let acceptor = acceptor();
    loop {
        let Ok((tcp, _)) = listener.accept().await else { continue };
        let (acceptor, kubelet) = (acceptor.clone(), kubelet.clone());
        drop(tokio::spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let service = service_fn(move |request| answer(request, kubelet.clone()));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(tls), service).await; // the API server may hang up
        }));
    }
}

/// A listener on every address of the cluster's network.
pub(crate) async fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], 0))).await.expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

/// The API server asks a kubelet for no certificate of a known authority unless it is told to.
fn acceptor() -> TlsAcceptor {
    let made = rcgen::generate_simple_self_signed(["kubelet".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("key and certificate fit");
    TlsAcceptor::from(Arc::new(config))
}

/// `/containerLogs/NAMESPACE/POD/CONTAINER`: one line, and a follow ends with the container.
async fn answer(request: Request<Incoming>, kubelet: Kubelet) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let name = request.uri().path().split('/').nth(3).unwrap_or_default();
    let Some(Run { line, mut over }) = kubelet.runs().get(name).cloned() else {
        let mut absent = Response::new(Full::from("no such container").boxed_unsync());
        *absent.status_mut() = StatusCode::NOT_FOUND;
        return Ok(absent);
    };
    let follow = request.uri().query().is_some_and(|query| query.contains("follow=true"));
    let first = stream::once(async move { Ok(Frame::data(Bytes::from(line))) });
    let rest = stream::once(async move {
        if follow {
            let _ = over.wait_for(|over| *over).await;
        }
        Ok(Frame::data(Bytes::new()))
    });
    Ok(Response::new(StreamBody::new(futures_util::StreamExt::chain(first, rest)).boxed_unsync()))
}
