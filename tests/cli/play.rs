//! A control plane that does what the test says, faults included: it plays one instance and notes each request.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// The instance that is played.
pub(crate) const ID: &str = "lakeshore-0a1b2c3d";

/// A request as it came.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Method and path with query.
    pub(crate) line: String,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

/// How one opening of the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// In good order.
    Clean,
    /// The connection breaks.
    Broken,
    /// Not at all: it stays open.
    Open,
}

/// What the server plays.
#[derive(Default)]
pub(crate) struct Script {
    /// What is answered to a change, instead of 200 and the body itself.
    pub(crate) answer: Option<(u16, Value)>,
    /// How many launches are cut off without an answer.
    pub(crate) launches_to_drop: usize,
    /// The states that polls see, one after the other; the last one stays.
    pub(crate) states: Vec<Value>,
    /// The whole log.
    pub(crate) log: Vec<u8>,
    /// For each opening of the log: up to which byte it goes, and how it ends. Afterwards the whole log is given and it ends well.
    pub(crate) openings: Vec<(usize, Cut)>,
    /// The states are held back at the last but one until the whole log was given.
    pub(crate) end_after_log: bool,
    /// Every request so far.
    pub(crate) seen: Vec<Seen>,
}

type Shared = Arc<Mutex<Script>>;

/// A running server; dropping it breaks all its connections, as a killed process does.
pub(crate) struct Play {
    pub(crate) address: SocketAddr,
    pub(crate) script: Shared,
    runtime: Option<Runtime>,
}

impl Play {
    /// Starts a server that plays `script`.
    pub(crate) fn start(script: Script) -> Self {
        Self::start_at("127.0.0.1:0".parse().expect("an address"), Arc::new(Mutex::new(script)))
    }

    fn start_at(address: SocketAddr, script: Shared) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let app = Router::new().fallback(handle).with_state(script.clone());
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).expect("a free port");
        let address = listener.local_addr().expect("is bound");
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { address, script, runtime: Some(runtime) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills the server and starts it again at the same address, after `while_down` has run.
    pub(crate) fn restart(mut self, while_down: impl FnOnce()) -> Self {
        let (address, script) = (self.address, self.script.clone());
        self.kill();
        while_down();
        Self::start_at(address, script)
    }

    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5)); // all its sockets are closed when this is back
        }
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.script.lock().expect("no test thread panicked").seen.clone()
    }

    /// The requests so far whose line begins so.
    pub(crate) fn lines(&self, begins: &str) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).filter(|line| line.starts_with(begins)).collect()
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.kill();
    }
}

/// An instance in some state; the rest of its fields as a control plane gives them.
pub(crate) fn instance(state: &str, reason: &str, message: &str, exit_code: Option<i32>) -> Value {
    json!({
        "instanceId": ID, "state": state, "reason": reason, "message": message, "exitCode": exit_code, "providerName": "demo provider",
        "launchedAt": "2026-11-30T12:00:00.000Z", "node": "node-1", "kubernetesNamespace": "nymph-runs", "requestedBy": "admin",
    })
}

/// A launch that runs through: starting, running, and then stopped with this exit code.
pub(crate) fn ordinary(log: &[u8], exit_code: i32) -> Script {
    let reason = if exit_code == 0 { "completed" } else { "exit_code" };
    let states = vec![
        instance("starting", "scheduling", "", None),
        instance("starting", "image_pull", "Back-off pulling image \"x\"", None),
        instance("running", "running", "", None),
        instance("stopped", reason, "", Some(exit_code)),
    ];
    Script { states, log: log.to_vec(), end_after_log: true, ..Script::default() }
}

async fn handle(State(script): State<Shared>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let line = format!("{} {}", parts.method, parts.uri);
    let seen = Seen {
        line: line.clone(),
        idempotency_key: text("idempotency-key"),
        authorization: text("authorization"),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    let mut script = script.lock().expect("no test thread panicked");
    let sent = seen.body.clone();
    script.seen.push(seen);
    let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
    if let Some((status, answer)) = &script.answer {
        return (StatusCode::from_u16(*status).expect("a status"), axum::Json(answer.clone())).into_response();
    }
    if path.ends_with("/launch") {
        if script.launches_to_drop > 0 {
            script.launches_to_drop -= 1;
            return broken_answer();
        }
        return (StatusCode::ACCEPTED, axum::Json(script.states[0].clone())).into_response();
    }
    if path.ends_with("/logs") {
        return log(&mut script, query);
    }
    if path.contains("/modes/") {
        return axum::Json(json!({"name": "py", "provider": "demo provider", "fields": {}})).into_response();
    }
    if path.ends_with(ID) && parts.method == "GET" {
        let held = script.end_after_log && script.states.len() == 2;
        let state = if script.states.len() > 1 && !held { script.states.remove(0) } else { script.states[0].clone() };
        return axum::Json(state).into_response();
    }
    match parts.method.as_str() {
        "GET" => axum::Json(json!([])).into_response(),
        "DELETE" => StatusCode::NO_CONTENT.into_response(),
        _ => (StatusCode::CREATED, axum::Json(sent)).into_response(),
    }
}

/// Plays the next opening of the log.
fn log(script: &mut Script, query: &str) -> Response {
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default().to_owned();
    let from: usize = parameter("offset").parse().expect("an offset");
    let (to, cut) = if script.openings.is_empty() { (script.log.len(), Cut::Clean) } else { script.openings.remove(0) };
    let to = to.max(from);
    if to == script.log.len() {
        script.end_after_log = false;
    }
    // In pieces, so that a break falls behind bytes that were sent.
    let mut pieces: Vec<Result<Bytes, std::io::Error>> = script.log[from..to].chunks(1_000).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    if cut == Cut::Broken {
        pieces.push(Err(std::io::ErrorKind::ConnectionReset.into()));
    }
    // A pause between pieces lets each go out before the next; the break would otherwise overtake them.
    let pieces = futures_util::stream::unfold(pieces.into_iter(), move |mut pieces| async move {
        tokio::task::yield_now().await;
        match pieces.next() {
            Some(Err(error)) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some((Err(error), pieces))
            }
            Some(piece) => Some((piece, pieces)),
            None if cut == Cut::Open => std::future::pending().await,
            None => None,
        }
    });
    let mut response = Body::from_stream(pieces).into_response();
    response.headers_mut().insert("x-nymph-log-offset", from.into());
    response
}

/// An answer whose connection breaks before its body.
fn broken_answer() -> Response {
    let error = futures_util::stream::once(async { Err::<Bytes, std::io::Error>(std::io::ErrorKind::ConnectionReset.into()) });
    Body::from_stream(error).into_response()
}
