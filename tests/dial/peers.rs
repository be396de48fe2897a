//! What the daemon may meet at the other end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::{SinkExt, StreamExt};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// What a peer does with a connection.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Opens a websocket and sends back what it gets.
    Echo,
    /// Opens one and sends these bytes.
    Send(Vec<u8>),
    /// Opens one and closes it with this reason.
    Close(&'static str),
    /// Opens one without agreeing to a subprotocol.
    WithoutSubprotocol,
    /// Answers HTTP.
    Http { status: u16, body: String, location: Option<String> },
    /// Answers what is neither HTTP nor TLS.
    Garbage,
    /// Takes the connection, stops the clock and says nothing.
    Silence,
}

/// A server.
pub(crate) struct Peer {
    address: SocketAddr,
    seen: watch::Receiver<BTreeMap<String, String>>,
    goodbyes: mpsc::Receiver<String>,
}

impl Peer {
    pub(crate) async fn plain(answer: Answer) -> Self {
        Self::start(None, answer).await
    }

    pub(crate) async fn tls(ca: &Ca, name: &str, answer: Answer) -> Self {
        Self::start(Some(ca.acceptor(name)), answer).await
    }

    async fn start(tls: Option<TlsAcceptor>, answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (see, seen) = watch::channel(BTreeMap::new());
        let (goodbye, goodbyes) = mpsc::channel(1);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, answer, see, goodbye) = (tls.clone(), answer.clone(), see.clone(), goodbye.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, answer, &see, &goodbye).await,
                        // A client that does not trust us hangs up here.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, answer, &see, &goodbye).await;
                            }
                        }
                    }
                });
            }
        });
        Self { address, seen, goodbyes }
    }

    /// By name: certificates are for names.
    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.port())
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Headers of the handshake, and its path.
    pub(crate) async fn request(&self) -> BTreeMap<String, String> {
        let mut seen = self.seen.clone();
        let request = seen.wait_for(|seen| !seen.is_empty()).await.expect("the peer runs");
        request.clone()
    }

    /// The reason with which the client said goodbye.
    pub(crate) async fn goodbye(&mut self) -> String {
        self.goodbyes.recv().await.expect("the peer runs")
    }
}

// The handshake callback's type is tungstenite's.
#[expect(clippy::result_large_err, reason = "the handshake callback's type is tungstenite's")]
async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    answer: Answer,
    see: &watch::Sender<BTreeMap<String, String>>,
    goodbye: &mpsc::Sender<String>,
) {
    match &answer {
        Answer::Http { status, body, location } => {
            read_head(&mut stream).await;
            let location = location.as_ref().map(|to| format!("Location: {to}\r\n")).unwrap_or_default();
            let text = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{location}\r\n{body}", body.len());
            stream.write_all(text.as_bytes()).await.expect("the client reads");
            return;
        }
        Answer::Garbage => {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\nnot what you think\r\n\r\n").await; // it may have hung up already
            return;
        }
        Answer::Silence => {
            tokio::time::pause();
            std::future::pending::<()>().await;
        }
        _ => {}
    }
    let without = matches!(answer, Answer::WithoutSubprotocol);
    let note = |request: &Request, mut response: Response| {
        let mut headers: BTreeMap<String, String> =
            request.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().expect("plain text").to_owned())).collect();
        headers.insert("path".into(), request.uri().path().to_owned());
        see.send_replace(headers);
        if !without {
            response.headers_mut().insert("sec-websocket-protocol", http::HeaderValue::from_static("nymph.v1"));
        }
        Ok(response)
    };
    // A client that finds no subprotocol hangs up.
    let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, note).await else { return };
    match answer {
        Answer::Send(bytes) => {
            let _ = socket.send(Message::binary(bytes)).await; // the client hangs up in its middle
        }
        Answer::Close(reason) => {
            let frame = CloseFrame { code: CloseCode::Away, reason: reason.into() };
            socket.close(Some(frame)).await.expect("the client reads");
        }
        _ => {}
    }
    while let Some(Ok(message)) = socket.next().await {
        match message {
            Message::Close(Some(frame)) => goodbye.send(frame.reason.to_string()).await.expect("the test waits"),
            Message::Text(_) | Message::Binary(_) => socket.send(message).await.expect("the client reads"),
            _ => {}
        }
    }
}

async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("the client writes a whole head"));
    }
    String::from_utf8(head).expect("HTTP is text")
}

/// A proxy that gives one answer, and is a tunnel when it is 200.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    seen: watch::Receiver<String>,
}

impl Proxy {
    pub(crate) async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (see, seen) = watch::channel(String::new());
        tokio::spawn(async move {
            let (mut client, _) = listener.accept().await.expect("the daemon dials");
            let head = read_head(&mut client).await;
            let to = head.split(' ').nth(1).expect("CONNECT HOST:PORT").to_owned();
            see.send_replace(head);
            client.write_all(answer.as_bytes()).await.expect("the client reads");
            if answer.contains(" 200 ") {
                let mut server = TcpStream::connect(to).await.expect("the peer listens");
                let _ = copy_bidirectional(&mut client, &mut server).await; // ends with the test
            }
        });
        Self { address, seen }
    }

    pub(crate) async fn request(&self) -> String {
        let mut seen = self.seen.clone();
        let request = seen.wait_for(|seen| !seen.is_empty()).await.expect("the proxy runs");
        request.clone()
    }
}

/// A private CA with its certificate in a file.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("ca.crt"), issuer.pem()).expect("the folder is ours");
        Self { issuer, folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    fn acceptor(&self, name: &str) -> TlsAcceptor {
        let key = KeyPair::generate().expect("a key");
        let leaf = CertificateParams::new(vec![name.to_owned()]).expect("a name").signed_by(&key, &self.issuer).expect("a certificate");
        let chain = vec![CertificateDer::from(leaf.der().to_vec())];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .expect("key and certificate fit");
        TlsAcceptor::from(Arc::new(config))
    }
}

/// An address where nobody listens.
pub(crate) async fn free_port() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    listener.local_addr().expect("it is bound")
}
