//! The way to the real API server.

use std::path::Path;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use http::request::Parts;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;

use super::super::{locked, spawn};

pub(super) type Body = UnsyncBoxBody<Bytes, Lost>;

/// The connection ends without an answer, or in the middle of one.
#[derive(Debug, thiserror::Error)]
#[error("the fault proxy lost it")]
pub(super) struct Lost;

/// A server and the CA that vouches for it.
pub(super) struct Upstream {
    authority: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    /// Connections whose last call is over.
    idle: Arc<Mutex<Vec<SendRequest<Full<Bytes>>>>>,
}

impl Upstream {
    pub(super) fn of(kubeconfig: &Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        let config: Value = serde_yaml::from_str(&text).expect("YAML or JSON");
        let cluster = &config["clusters"][0]["cluster"];
        let server: Uri = cluster["server"].as_str().expect("it names a server").parse().expect("a URL");
        let pem = match cluster["certificate-authority-data"].as_str() {
            Some(data) => STANDARD.decode(data).expect("base64"),
            None => std::fs::read(cluster["certificate-authority"].as_str().expect("it names a CA")).expect("the CA's file"),
        };
        let mut roots = rustls::RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&pem) {
            roots.add(certificate.expect("PEM")).expect("a certificate");
        }
        let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let host = server.host().expect("it names a host");
        Self {
            authority: format!("{host}:{}", server.port_u16().unwrap_or(443)),
            name: ServerName::try_from(host.to_owned()).expect("a name or an address"),
            tls: TlsConnector::from(Arc::new(config)),
            idle: Arc::default(),
        }
    }

    /// Asks, on a connection that nobody else uses meanwhile: what happens to one call does not touch another.
    pub(super) async fn ask(&self, head: &Parts, body: Bytes) -> Result<Response<Incoming>, Lost> {
        let idle = std::iter::from_fn(|| locked(&self.idle).pop()).find(|sender| !sender.is_closed());
        let mut sender = match idle {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let mut request = Request::builder().method(head.method.clone()).uri(head.uri.clone());
        let headers = request.headers_mut().expect("nothing is wrong with it yet");
        headers.extend(head.headers.clone());
        headers.insert(header::HOST, HeaderValue::from_str(&self.authority).expect("a host"));
        let request = request.body(Full::new(body)).map_err(|_| Lost)?;
        let response = sender.send_request(request).await.map_err(|_| Lost)?;
        let idle = Arc::clone(&self.idle);
        spawn(async move {
            if sender.ready().await.is_ok() {
                locked(&idle).push(sender);
            }
        });
        Ok(response)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Lost> {
        let tcp = TcpStream::connect(&self.authority).await.map_err(|_| Lost)?;
        let _ = tcp.set_nodelay(true);
        let tls = self.tls.connect(self.name.clone(), tcp).await.map_err(|_| Lost)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls)).await.map_err(|_| Lost)?;
        spawn(async move {
            let _ = connection.await; // ends with the server's patience, or when a call on it is given up
        });
        Ok(sender)
    }
}

/// The answer's body as it comes, until stream `id` is cut or falls silent.
pub(super) fn streamed(body: Incoming, id: u64, cut: watch::Receiver<u64>, silent: watch::Receiver<u64>) -> Body {
    let stream = futures_util::stream::unfold(Some((BodyStream::new(body), cut, silent)), move |state| async move {
        let (mut body, mut cut, mut silent) = state?;
        let frame = async {
            tokio::select! {
                biased;
                () = reached(&mut silent, id) => std::future::pending().await,
                frame = body.next() => frame,
            }
        };
        let frame = tokio::select! {
            biased;
            () = reached(&mut cut, id) => return Some((Err(Lost), None)),
            frame = frame => frame?,
        };
        Some((frame.map_err(|_| Lost), Some((body, cut, silent))))
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Waits until the number has come to `id`, or nobody is left to raise it.
async fn reached(number: &mut watch::Receiver<u64>, id: u64) {
    let _ = number.wait_for(|number| id <= *number).await;
}
