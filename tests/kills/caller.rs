//! Callers at a steady rate, as real ones are: over kept connections, with an idempotency key, and with the same key again when the
//! connection breaks or no daemon is there. Each follows its launch to the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::{Client, StatusCode};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_util::task::TaskTracker;

use crate::judge::{End, Told};
use crate::ledger::Ledger;

/// After this long without an answer or an end, a launch counts as missing.
const PATIENCE: Duration = Duration::from_secs(240);
/// Pause before a request is made again.
const AGAIN: Duration = Duration::from_millis(100);

/// What is launched: by which provider, and the body for a launch's number, exit code and milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    pub(crate) provider: &'static str,
    pub(crate) body: fn(u64, i64, u64) -> Value,
}

/// Where callers call, and what they note.
pub(crate) struct Callers {
    http: Client,
    url: String,
    work: Work,
    token: String,
    ledger: Ledger,
    stop: AtomicBool,
    followers: TaskTracker,
}

/// Two numbers that look random, from a launch's number: exit code, and milliseconds until then.
fn script(number: u64, seed: u64) -> (i64, u64) {
    let hash = Sha256::digest([seed.to_be_bytes(), number.to_be_bytes()].concat());
    let code = if hash[0] < 150 { 0 } else { i64::from(hash[1] % 120) + 1 };
    let time = if hash[2] < 12 { 4_000 } else { 50 + u64::from(hash[3]) * 5 };
    (code, time)
}

impl Callers {
    pub(crate) fn new(url: &str, token: &str, work: Work, ledger: Ledger) -> Arc<Self> {
        let http = Client::builder().timeout(Duration::from_secs(40)).build().expect("a client");
        let url = format!("{url}/v1/namespaces/default");
        Arc::new(Self { http, url, work, token: token.to_owned(), ledger, stop: AtomicBool::new(false), followers: TaskTracker::new() })
    }

    /// Launches at this rate until it is told to stop. Whatever becomes of one, the next comes in its time.
    pub(crate) async fn run(self: Arc<Self>, each: Duration, seed: u64) {
        let mut ticks = interval(each);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        for number in 0.. {
            ticks.tick().await;
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            self.followers.spawn(Arc::clone(&self).one(number, seed));
        }
    }

    /// No launch begins any more; returns when each has its end, or is given up.
    pub(crate) async fn settle(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.followers.close();
        self.followers.wait().await;
    }

    async fn one(self: Arc<Self>, number: u64, seed: u64) {
        let (code, time) = script(number, seed);
        self.ledger.notes().told.insert(number, Told { scripted: code, ..Told::default() });
        let (body, begun) = ((self.work.body)(number, code, time), self.ledger.now());
        match self.launch(&format!("{seed}-{number}"), &body).await {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let text = |field: &str| answer[field].as_str().unwrap_or_default().to_owned();
                let instance = text("instanceId");
                self.ledger.notes().begun.insert(text("dispatchId"), begun);
                self.tell(number, |told| told.answer = Some((instance.clone(), text("dispatchId"))));
                if let Some(end) = self.end(&instance).await {
                    self.tell(number, |told| told.end = Some(end));
                }
            }
            Err(refusal) => self.tell(number, |told| told.refusal = Some(refusal)),
        }
    }

    fn tell(&self, number: u64, change: impl FnOnce(&mut Told)) {
        change(self.ledger.notes().told.get_mut(&number).expect("it was begun"));
    }

    /// The 202's body; `None` when there was no answer.
    async fn launch(&self, key: &str, body: &Value) -> Result<Option<Value>, String> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let request = self
                .http
                .post(format!("{}/providers/{}/launch", self.url, self.work.provider))
                .bearer_auth(&self.token)
                .header("idempotency-key", key);
            if let Ok(answer) = request.json(body).send().await {
                let status = answer.status();
                if let Ok(body) = answer.json::<Value>().await {
                    match (status, body["code"].as_str()) {
                        (StatusCode::ACCEPTED, _) => return Ok(Some(body)),
                        // Said before anything was written.
                        (StatusCode::SERVICE_UNAVAILABLE, Some("no_live_daemon")) => {}
                        _ => return Err(body.to_string()),
                    }
                }
            }
            sleep(AGAIN).await;
        }
        Ok(None)
    }

    /// Waits for the end of an instance.
    async fn end(&self, instance: &str) -> Option<End> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(shown) = self.get(&format!("instances/{instance}?wait=stopped&timeoutSeconds=30")).await
                && shown["state"] == "stopped"
            {
                return Some(end_of(&shown));
            }
            sleep(AGAIN).await;
        }
        None
    }

    /// How the control plane shows all instances.
    pub(crate) async fn all(&self) -> Vec<Value> {
        let all = self.get("instances").await.expect("the control plane answers");
        all.as_array().expect("a list").clone()
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let answer = self.http.get(format!("{}/{path}", self.url)).bearer_auth(&self.token).send().await.ok()?;
        if answer.status() == StatusCode::OK { answer.json().await.ok() } else { None }
    }
}

/// The end that an instance's JSON tells.
pub(crate) fn end_of(shown: &Value) -> End {
    End { reason: shown["reason"].as_str().unwrap_or_default().to_owned(), exit_code: shown["exitCode"].as_i64() }
}
