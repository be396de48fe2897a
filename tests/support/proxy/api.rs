//! A relay of calls between a daemon and the API server: plain HTTP on loopback to the daemon, TLS to the server.
//!
//! The daemon's own bearer token goes through unchanged, so that its rights are what is tested. Bodies of watches and log follows stream.

mod call;
mod upstream;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) use call::{Call, When};
use upstream::{Body, Lost, Upstream, streamed};

use super::trap::{Trap, Traps};
use super::{listen, locked, spawn};

/// What becomes of a call.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    Pass,
    /// It goes on after this long: to the server, or with the answer to the daemon.
    Delay(Duration),
    /// This status, without asking the server (or in place of what it said), as Kubernetes would say it.
    Status(u16),
    /// 429 with `Retry-After` in seconds.
    Busy(u64),
    /// The connection ends without an answer.
    Cut,
    /// No answer ever comes; the connection stays open.
    BlackHole,
}

type Hook = Arc<dyn Fn(&Call) -> Verdict + Send + Sync>;

struct Shared {
    upstream: Upstream,
    hook: Mutex<Hook>,
    traps: Traps<Call, Verdict>,
    started: Instant,
    log: Mutex<Vec<Call>>,
    /// Calls that are neither watches nor follows: how many are under way, and the most there were.
    busy: Mutex<(usize, usize)>,
    /// Streams opened before a number are cut, or silent.
    streams: AtomicU64,
    cut: watch::Sender<u64>,
    silent: watch::Sender<u64>,
    stop: CancellationToken,
}

/// The relay.
pub(crate) struct ApiProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl ApiProxy {
    /// A relay to the server that a kubeconfig (JSON or YAML) names, trusting the CA that it names.
    pub(crate) fn start(kubeconfig: &Path) -> Self {
        let (listener, address) = listen();
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            upstream: Upstream::of(kubeconfig),
            hook: Mutex::new(Arc::new(|_| Verdict::Pass)),
            traps: Traps::default(),
            started: Instant::now(),
            log: Mutex::default(),
            busy: Mutex::default(),
            streams: AtomicU64::new(0),
            cut: watch::Sender::new(0),
            silent: watch::Sender::new(0),
            stop: stop.clone(),
        });
        let relay = Arc::clone(&shared);
        spawn(async move {
            let stop = relay.stop.clone();
            stop.run_until_cancelled(accept(relay, listener)).await;
        });
        Self { address, shared, _stop: stop.drop_guard() }
    }

    /// A kubeconfig like the given one (JSON) that leads through this proxy.
    pub(crate) fn kubeconfig(&self, original: &Value) -> Value {
        let mut config = original.clone();
        for cluster in config["clusters"].as_array_mut().into_iter().flatten() {
            cluster["cluster"] = json!({ "server": format!("http://{}", self.address) });
        }
        config
    }

    /// Decides over each call from now on, twice: before the server is asked and after it answered, unless a trap holds it.
    pub(crate) fn hook(&self, hook: impl Fn(&Call) -> Verdict + Send + Sync + 'static) {
        *locked(&self.shared.hook) = Arc::new(hook);
    }

    /// Lets everything pass again.
    pub(crate) fn calm(&self) {
        self.hook(|_| Verdict::Pass);
    }

    /// Holds the first call that fits, before the server is asked or after it answered.
    pub(crate) fn trap(&self, fits: impl Fn(&Call) -> bool + Send + 'static) -> Trap<Call, Verdict> {
        self.shared.traps.arm(fits)
    }

    /// Cuts the watches and log follows that are open.
    pub(crate) fn cut_streams(&self) {
        self.shared.cut.send_replace(self.shared.streams.load(Ordering::SeqCst));
    }

    /// Nothing comes any more on the watches and log follows that are open, and they do not end.
    pub(crate) fn silence_streams(&self) {
        self.shared.silent.send_replace(self.shared.streams.load(Ordering::SeqCst));
    }

    /// Calls so far, in the order of their arrival; with the status when they were answered.
    pub(crate) fn calls(&self) -> Vec<Call> {
        locked(&self.shared.log).clone()
    }

    /// How many calls of this verb on this resource came: `count("create", "pods")`.
    pub(crate) fn count(&self, verb: &str, resource: &str) -> usize {
        locked(&self.shared.log).iter().filter(|call| call.is(verb, resource)).count()
    }

    /// Counts of all, by `verb resource`.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in locked(&self.shared.log).iter() {
            *counts.entry(format!("{} {}", call.verb, call.resource)).or_default() += 1;
        }
        counts
    }

    /// The most unary calls that were under way at a time since this was last asked.
    pub(crate) fn take_peak(&self) -> usize {
        let mut busy = locked(&self.shared.busy);
        let (now, peak) = *busy;
        busy.1 = now;
        peak
    }

    /// Time since the proxy began: what [`Call::at`] is measured from.
    pub(crate) fn now(&self) -> Duration {
        self.shared.started.elapsed()
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        spawn(async move {
            let stop = shared.stop.clone();
            let service = service_fn(move |request| serve(Arc::clone(&shared), request));
            let served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            stop.run_until_cancelled(served).await;
        });
    }
}

/// Under way until it is dropped.
struct Underway(Arc<Shared>);

impl Underway {
    fn new(shared: &Arc<Shared>) -> Self {
        let mut busy = locked(&shared.busy);
        busy.0 += 1;
        busy.1 = busy.1.max(busy.0);
        Self(Arc::clone(shared))
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        locked(&self.0.busy).0 -= 1;
    }
}

async fn serve(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Body>, Lost> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Lost)?.to_bytes();
    let call = Call::read(&head, body, shared.started.elapsed());
    let _underway = (!call.streams()).then(|| Underway::new(&shared));
    // In a task: a daemon that gives up does not undo what was asked for.
    tokio::spawn(carry_out(shared, head, call)).await.map_err(|_| Lost)?
}

async fn carry_out(shared: Arc<Shared>, head: Parts, call: Call) -> Result<Response<Body>, Lost> {
    let stop = shared.stop.clone();
    stop.run_until_cancelled(carry_through(shared, head, call)).await.unwrap_or(Err(Lost))
}

async fn carry_through(shared: Arc<Shared>, head: Parts, mut call: Call) -> Result<Response<Body>, Lost> {
    let at = {
        let mut log = locked(&shared.log);
        log.push(call.clone());
        log.len() - 1
    };
    if let Some(instead) = decide(&shared, &call).await? {
        locked(&shared.log)[at].status = Some(instead.status().as_u16());
        return Ok(instead);
    }
    let response = shared.upstream.ask(&head, call.body.clone()).await?;
    (call.when, call.status) = (When::After, Some(response.status().as_u16()));
    locked(&shared.log)[at].status = call.status;
    if let Some(instead) = decide(&shared, &call).await? {
        return Ok(instead);
    }
    let id = shared.streams.fetch_add(1, Ordering::SeqCst) + 1;
    Ok(response.map(|body| streamed(body, id, shared.cut.subscribe(), shared.silent.subscribe())))
}

/// What is said instead of going on, if anything.
async fn decide(shared: &Shared, call: &Call) -> Result<Option<Response<Body>>, Lost> {
    let hook = Arc::clone(&*locked(&shared.hook));
    let verdict = match shared.traps.pass(call).await {
        Some(verdict) => verdict,
        None => hook(call),
    };
    match verdict {
        Verdict::Pass => Ok(None),
        Verdict::Delay(time) => {
            sleep(time).await;
            Ok(None)
        }
        Verdict::Status(code) => Ok(Some(status(code, None))),
        Verdict::Busy(seconds) => Ok(Some(status(429, Some(seconds)))),
        Verdict::Cut => Err(Lost),
        Verdict::BlackHole => std::future::pending().await,
    }
}

fn status(code: u16, retry_after: Option<u64>) -> Response<Body> {
    let status = StatusCode::from_u16(code).expect("a status that HTTP has");
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        410 => "Expired",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    let message = format!("the fault proxy says {status}");
    let body =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code });
    let mut response = Response::builder().status(status).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    response.body(Full::new(Bytes::from(body.to_string())).map_err(|never| match never {}).boxed_unsync()).expect("a response of our own")
}
