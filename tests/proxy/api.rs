//! Calls to an API server of the test's own, over TLS.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio_rustls::TlsAcceptor;

use crate::proxy::api::{ApiProxy, Verdict};
use crate::proxy::block_on;

/// The server, how many calls it carried out, and the proxy before it.
struct World {
    proxy: ApiProxy,
    acted: Arc<AtomicUsize>,
    address: String,
    _folder: tempfile::TempDir,
}

/// Answers a watch with an event every 20 ms, and others with what it was asked.
async fn carry_out(
    request: Request<Incoming>,
    acted: Arc<AtomicUsize>,
) -> Result<Response<http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>>, std::convert::Infallible> {
    acted.fetch_add(1, Ordering::SeqCst);
    if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
        let events = futures_util::stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(Frame::data(Bytes::from("event\n")))
        });
        return Ok(Response::new(StreamBody::new(events).boxed_unsync()));
    }
    let said = json!({ "token": request.headers()["authorization"].to_str().expect("text"), "path": request.uri().path() });
    Ok(Response::new(Full::from(said.to_string()).boxed_unsync()))
}

fn world() -> World {
    let folder = tempfile::tempdir().expect("a folder");
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name").self_signed(&key).expect("a certificate");
    let tls = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has them")
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(certificate.der().to_vec())], PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
        .expect("key and certificate fit");
    std::fs::write(folder.path().join("ca.crt"), certificate.pem()).expect("room");
    let acted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&acted);
    let port = block_on(async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tls, acted) = (TlsAcceptor::from(Arc::new(tls.clone())), Arc::clone(&counter));
                tokio::spawn(async move {
                    let stream = tls.accept(stream).await.expect("the proxy trusts it");
                    let service = hyper::service::service_fn(move |request| carry_out(request, Arc::clone(&acted)));
                    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await; // until it is cut
                });
            }
        });
        port
    });
    let config = json!({ "clusters": [{ "name": "c", "cluster": { "server": format!("https://localhost:{port}"), "certificate-authority": folder.path().join("ca.crt") } }] });
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, config.to_string()).expect("room");
    let proxy = ApiProxy::start(&path);
    let through = proxy.kubeconfig(&config);
    let address = through["clusters"][0]["cluster"]["server"].as_str().expect("a URL").trim_start_matches("http://").to_owned();
    World { proxy, acted, address, _folder: folder }
}

impl World {
    fn open(&self, line: &str, body: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
        let length = body.len();
        write!(stream, "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer own\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("it reads");
        BufReader::new(stream)
    }

    /// Status, headers and body of a whole answer; `None` without one.
    fn ask(&self, line: &str, body: &str) -> Option<(u16, String, Value)> {
        let mut answer = String::new();
        self.open(line, body).read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        Some((status, head.to_ascii_lowercase(), serde_json::from_str(body).unwrap_or_default()))
    }

    fn acted(&self) -> usize {
        self.acted.load(Ordering::SeqCst)
    }
}

const PODS: &str = "/api/v1/namespaces/runs/pods";

#[test]
fn calls_pass_with_the_callers_token_and_are_told_apart() {
    let world = world();
    for (line, body) in [
        (format!("GET {PODS}?labelSelector=x"), ""),
        (format!("GET {PODS}/a"), ""),
        (format!("POST {PODS}?fieldManager=nymph"), r#"{"metadata":{"name":"a"}}"#),
        (format!("DELETE {PODS}/a"), ""),
        (format!("GET {PODS}/a/log"), ""),
        ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews".to_owned(), "{}"),
        ("GET /api/v1/nodes/n".to_owned(), ""),
        ("GET /api/v1/namespaces/kube-system".to_owned(), ""),
    ] {
        let (status, _, said) = world.ask(&line, body).expect("an answer");
        assert_eq!((status, said["token"].as_str()), (200, Some("Bearer own")), "{line}");
    }
    let calls: Vec<String> = world.proxy.calls().iter().map(|call| format!("{} {} {}", call.verb, call.resource, call.name)).collect();
    let expected = [
        "list pods ",
        "get pods a",
        "create pods a",
        "delete pods a",
        "get pods/log a",
        "create selfsubjectaccessreviews ",
        "get nodes n",
        "get namespaces kube-system",
    ];
    assert_eq!(calls, expected);
    assert_eq!(world.proxy.calls()[2].status, Some(200));
    assert_eq!(world.proxy.counts()["create pods"], 1);
    assert!(world.proxy.take_peak() == 1 && world.proxy.take_peak() == 0);
}

#[test]
fn an_answer_can_be_made_up_without_asking() {
    let world = world();
    world.proxy.hook(|call| {
        if call.before("get", "pods") {
            Verdict::Busy(3)
        } else if call.before("list", "pods") {
            Verdict::Status(503)
        } else {
            Verdict::Pass
        }
    });
    let (status, head, said) = world.ask(&format!("GET {PODS}/a"), "").expect("an answer");
    assert!(status == 429 && head.contains("retry-after: 3") && said["reason"] == "TooManyRequests", "{head}");
    assert_eq!(world.ask(&format!("GET {PODS}"), "").expect("an answer").0, 503);
    assert_eq!(world.acted(), 0);
    world.proxy.calm();
    assert_eq!(world.ask(&format!("GET {PODS}/a"), "").expect("an answer").0, 200);
}

#[test]
fn an_answer_can_be_lost_after_the_server_acted() {
    let world = world();
    world.proxy.hook(|call| if call.after("create", "pods") { Verdict::Cut } else { Verdict::Pass });
    assert!(world.ask(&format!("POST {PODS}"), "{}").is_none_or(|answer| answer.0 != 200));
    assert_eq!(world.acted(), 1);
    world.proxy.hook(|call| if call.after("create", "pods") { Verdict::BlackHole } else { Verdict::Pass });
    assert!(world.ask(&format!("POST {PODS}"), "{}").is_none(), "silence");
    assert_eq!(world.acted(), 2);
    world.proxy.hook(|call| if call.before("create", "pods") { Verdict::Cut } else { Verdict::Pass });
    assert!(world.ask(&format!("POST {PODS}"), "{}").is_none());
    assert_eq!(world.acted(), 2, "it was never asked");
}

#[test]
fn a_caller_that_gives_up_does_not_undo_what_it_asked_for() {
    let world = world();
    world.proxy.hook(|call| if call.before("create", "pods") { Verdict::Delay(Duration::from_millis(800)) } else { Verdict::Pass });
    assert!(world.ask(&format!("POST {PODS}"), "{}").is_none(), "it gave up after 500 ms");
    while world.acted() == 0 {
        std::thread::yield_now();
    }
}

#[test]
fn a_trap_holds_a_call_before_or_after_the_server_acts() {
    let world = world();
    let before = world.proxy.trap(|call| call.before("create", "pods"));
    let after = world.proxy.trap(|call| call.after("create", "pods"));
    let _stream = world.open(&format!("POST {PODS}"), r#"{"metadata":{"name":"a"}}"#);
    assert_eq!(before.sprung("the POST").name, "a");
    assert_eq!(world.acted(), 0);
    before.release(Verdict::Pass);
    assert_eq!(after.sprung("its answer").status, Some(200));
    assert_eq!(world.acted(), 1);
    after.release(Verdict::Cut);
}

#[test]
fn a_stream_flows_falls_silent_and_is_cut() {
    let world = world();
    let watch = || {
        let mut stream = world.open(&format!("GET {PODS}?watch=true"), "");
        let mut line = String::new();
        while line != "event\n" {
            line.clear();
            stream.read_line(&mut line).expect("it flows");
        }
        stream
    };
    let mut first = watch();
    assert_eq!((world.proxy.count("watch", "pods"), world.proxy.take_peak()), (1, 0));
    world.proxy.silence_streams();
    let mut rest = Vec::new();
    let error = first.read_to_end(&mut rest).expect_err("silence, and no end");
    assert!(matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut), "{error}");
    let mut second = watch();
    world.proxy.cut_streams();
    let _ = second.read_to_end(&mut rest); // an end, clean or not, instead of a time-out
    assert!(!String::from_utf8_lossy(&rest).contains("0\r\n\r\n"), "a cut stream has no proper end");
}
