//! Against a real HTTP server that answers by a script.

use std::sync::{Arc, Mutex};

use kube::{Client, Config};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::types::{InstanceName, KubeNamespace};

/// What the server says to one request.
enum Say {
    Json(u16, serde_json::Value),
    Raw(&'static str),
    /// Reads the request, and never answers.
    Nothing,
    HangUp,
}

type Requests = Arc<Mutex<Vec<String>>>;

/// Answers each request with the next line of the script, on as many connections as it takes.
async fn server(script: Vec<Say>) -> (ApiServer, Requests) {
    let _ = rustls::crypto::ring::default_provider().install_default(); // another test of this process may have
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let requests = Requests::default();
    let (script, seen) = (Arc::new(Mutex::new(script.into_iter())), Arc::clone(&requests));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&seen)));
        }
    });
    let mut config = Config::new(url.parse().expect("a URL"));
    config.default_retry = false;
    (ApiServer::new(Client::try_from(config).expect("a client")), requests)
}

async fn serve(mut stream: TcpStream, script: Arc<Mutex<std::vec::IntoIter<Say>>>, seen: Requests) {
    while let Some(request) = read_request(&mut stream).await {
        seen.lock().expect("no test panics here").push(request);
        let say = script.lock().expect("no test panics here").next().expect("no more requests than the script has lines");
        let text = match say {
            Say::Json(status, body) => {
                let body = body.to_string();
                format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
            Say::Raw(text) => text.to_owned(),
            Say::Nothing => {
                tokio::time::pause();
                return std::future::pending().await;
            }
            Say::HangUp => return,
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Method and path, then the body.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("HTTP is text");
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1");
    Some(format!("{line}\n{}", String::from_utf8(body).expect("JSON is text")))
}

fn status(code: u16, reason: &str, message: &str) -> Say {
    Say::Json(code, json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code }))
}

fn pod() -> serde_json::Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name().as_str(), "namespace": "runs", "uid": "uid-1" } })
}

fn name() -> InstanceName {
    "lakeshore-01234567".parse().expect("a name")
}

fn runs() -> KubeNamespace {
    "runs".parse().expect("a name")
}

async fn create(script: Vec<Say>) -> (CreateOutcome, Requests) {
    let (api, requests) = server(script).await;
    (api.create_pod(&runs(), &name(), &json!({ "kind": "Pod", "spec": { "odd": 1 } })).await, requests)
}

#[tokio::test]
async fn a_create_sends_every_field_and_asks_for_strict_validation() {
    let (outcome, requests) = create(vec![Say::Json(201, pod())]).await;
    assert!(matches!(outcome, CreateOutcome::Created(pod) if pod.metadata.uid.as_deref() == Some("uid-1")));
    let requests = requests.lock().expect("no test panics here");
    assert_eq!(
        requests[..],
        ["POST /api/v1/namespaces/runs/pods?fieldManager=nymph&fieldValidation=Strict\n{\"kind\":\"Pod\",\"spec\":{\"odd\":1}}"]
    );
}

#[tokio::test]
async fn only_a_4xx_is_a_definite_refusal() {
    for (code, reason) in [(400, "BadRequest"), (403, "Forbidden"), (404, "NotFound"), (413, "RequestEntityTooLarge"), (422, "Invalid")] {
        let (outcome, _) = create(vec![status(code, reason, "its words")]).await;
        assert!(matches!(&outcome, CreateOutcome::Refused { code: got, message } if *got == code && message == "its words"), "{outcome:?}");
    }
    for say in [
        status(500, "InternalError", "etcd is sad"),
        status(504, "Timeout", "too long"),
        Say::Raw("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>"),
        Say::Raw("HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 3\r\n\r\n[1]"),
        Say::HangUp,
        Say::Nothing,
    ] {
        let (outcome, _) = create(vec![say]).await;
        assert!(matches!(outcome, CreateOutcome::Unclear { .. }), "{outcome:?}");
    }
}

#[tokio::test]
async fn an_object_of_that_name_is_told_apart_from_other_conflicts() {
    let (outcome, _) = create(vec![status(409, "AlreadyExists", "pods exists")]).await;
    assert!(matches!(outcome, CreateOutcome::AlreadyExists), "{outcome:?}");
    let quota = || status(409, "Conflict", "Operation cannot be fulfilled on resourcequotas \"q\": the object has been modified");
    let (outcome, requests) = create(vec![quota(), quota(), Say::Json(201, pod())]).await;
    assert!(matches!(outcome, CreateOutcome::Created(_)), "{outcome:?}");
    assert_eq!(requests.lock().expect("no test panics here").len(), 3);
}

#[tokio::test]
async fn a_busy_server_is_waited_for_as_long_as_it_asks() {
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 4\r\n\r\nbusy";
    let before = tokio::time::Instant::now();
    let (outcome, requests) = create(vec![Say::Raw(busy), Say::Json(201, pod())]).await;
    assert!(matches!(outcome, CreateOutcome::Created(_)), "{outcome:?}");
    assert_eq!(requests.lock().expect("no test panics here").len(), 2);
    assert!(before.elapsed() >= std::time::Duration::from_secs(1), "it asked for a second");
}

#[tokio::test]
async fn a_delete_carries_the_uid_and_background_propagation() {
    let (api, requests) = server(vec![Say::Json(200, pod())]).await;
    assert_eq!(api.delete(Kind::Pod, &runs(), name().as_str(), "uid-1", false).await, DeleteOutcome::Taken);
    let requests = requests.lock().expect("no test panics here");
    let (line, body) = requests[0].split_once('\n').expect("a body");
    assert!(line.starts_with("DELETE /api/v1/namespaces/runs/pods/lakeshore-01234567"), "{line}");
    let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
    assert_eq!((&body["preconditions"]["uid"], &body["propagationPolicy"]), (&json!("uid-1"), &json!("Background")));
}

#[tokio::test]
async fn a_deletes_answers_are_told_apart() {
    for (say, expected) in [
        (status(404, "NotFound", "no"), "AlreadyGone"),
        (status(409, "Conflict", "the UID in the precondition does not match"), "AlreadyGone"),
        (status(403, "Forbidden", "no"), "Refused"),
        (status(500, "InternalError", "no"), "Unclear"),
        (Say::HangUp, "Unclear"),
    ] {
        let (api, _) = server(vec![say]).await;
        let outcome = format!("{:?}", api.delete(Kind::Pod, &runs(), name().as_str(), "uid-1", false).await);
        assert!(outcome.starts_with(expected), "{outcome} instead of {expected}");
    }
}

#[tokio::test]
async fn an_absent_pod_is_an_answer_and_an_unreachable_server_is_an_error() {
    let (api, requests) = server(vec![status(404, "NotFound", "no"), Say::Json(200, pod()), Say::HangUp]).await;
    assert!(api.read_pod(&runs(), &name()).await.expect("404 is an answer").is_none());
    assert!(api.read_pod(&runs(), &name()).await.expect("it is there").is_some());
    assert!(matches!(api.read_pod(&runs(), &name()).await, Err(CallError::Unreachable { .. })));
    let closed = TcpListener::bind("127.0.0.1:0").await.and_then(|listener| listener.local_addr()).expect("a port that nobody listens on");
    let mut config = Config::new(format!("http://{closed}").parse().expect("a URL"));
    config.default_retry = false;
    let api = ApiServer::new(Client::try_from(config).expect("a client"));
    assert!(matches!(api.create_pod(&runs(), &name(), &json!({})).await, CreateOutcome::NotSent { .. }), "nothing was sent");
    let line = "GET /api/v1/namespaces/runs/pods/lakeshore-01234567\n";
    assert_eq!(requests.lock().expect("no test panics here")[0], line, "without a resourceVersion: never from a cache that lags");
}

#[tokio::test]
async fn an_access_review_asks_for_one_verb_of_ones_own() {
    let answer = |allowed| Say::Json(201, json!({ "spec": {}, "status": { "allowed": allowed } }));
    let (api, requests) = server(vec![answer(true), answer(false)]).await;
    assert!(api.may(&runs(), Access::NEEDED[0]).await.expect("an answer"));
    assert!(!api.may(&runs(), Access::NEEDED[5]).await.expect("an answer"));
    let requests = requests.lock().expect("no test panics here");
    assert!(requests[0].contains("\"verb\":\"create\"") && requests[1].contains("\"subresource\":\"log\""), "{requests:?}");
    assert_eq!(Access::NEEDED[5].to_string(), "get pods/log");
}

#[tokio::test]
async fn an_error_never_repeats_the_answers_content() {
    let (api, _) = server(vec![Say::Json(200, json!({ "metadata": "canary-secret" }))]).await;
    let error = api.read_pod(&runs(), &name()).await.expect_err("no Pod has such metadata");
    assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
}
