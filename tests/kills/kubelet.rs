//! The scripted kubelet, and scheduler: binds what is for its node, "runs" it, and writes statuses as a real one does.
//!
//! It is a witness: it appends one line for each Pod UID that it starts to a file on the host, before anything else is said of it.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::judge::KILLED;
use crate::ledger::Ledger;
use crate::witness::DISPATCH;

/// Environment variables by which a launch says how its script ends, and after how many milliseconds.
const CODE: &str = "NYMPH_TEST_CODE";
const TIME: &str = "NYMPH_TEST_MS";

/// The body of such a launch.
pub(crate) fn script(_number: u64, code: i64, time: u64) -> Value {
    json!({"script": "print('hello')\n", "env": {CODE: code, TIME: time}})
}

/// How far a Pod's life has come, from the API server's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Alive,
    Deleting,
    Gone,
}

/// What "runs", for the log server and for who deletes Pods.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) line: String,
    pub(crate) over: watch::Receiver<bool>,
}

/// The kubelet of one node and one run namespace.
#[derive(Clone)]
pub(crate) struct Kubelet {
    client: Client,
    pods: Api<Pod>,
    namespace: String,
    node: String,
    witness: PathBuf,
    ledger: Ledger,
    runs: Arc<Mutex<HashMap<String, Run>>>,
}

impl Kubelet {
    pub(crate) fn new(client: Client, namespace: &str, node: &str, witness: PathBuf, ledger: Ledger) -> Self {
        let pods = Api::namespaced(client.clone(), namespace);
        Self { client, pods, namespace: namespace.to_owned(), node: node.to_owned(), witness, ledger, runs: Arc::default() }
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, HashMap<String, Run>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names of what has been started and has not ended.
    pub(crate) fn running(&self) -> Vec<String> {
        let mut names: Vec<String> = self.runs().iter().filter(|(_, run)| !*run.over.borrow()).map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Deletes a Pod as somebody does who knows nothing of nymph.
    pub(crate) async fn third_party_deletes(&self, name: &str, at_once: bool) {
        let before = self.ledger.now();
        let parameters = if at_once { DeleteParams::default().grace_period(0) } else { DeleteParams::default() };
        if self.pods.delete(name, &parameters).await.is_ok() {
            self.ledger.notes().deleted.entry(name.to_owned()).or_insert(before);
        }
    }

    /// Takes away a Pod whose end was told.
    pub(crate) async fn sweep(&self, name: String) {
        let _ = self.pods.delete(&name, &DeleteParams::default().grace_period(0)).await; // somebody may have been quicker
    }

    /// Works until it is dropped.
    pub(crate) async fn work(self) {
        let mut known: HashMap<String, watch::Sender<Wanted>> = HashMap::new();
        let mut events = pin!(watcher(self.pods.clone(), watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                    let Some(uid) = pod.uid() else { continue };
                    let wanted = wanted(&pod);
                    let told = known.entry(uid).or_insert_with(|| {
                        let (told, heard) = watch::channel(Wanted::Alive);
                        drop(tokio::spawn(self.clone().one(pod, heard)));
                        told
                    });
                    told.send_if_modified(|now| std::mem::replace(now, wanted.max(*now)) != *now);
                }
                Ok(watcher::Event::Delete(pod)) => {
                    if let Some(told) = pod.uid().and_then(|uid| known.remove(&uid)) {
                        told.send_replace(Wanted::Gone);
                    }
                }
                Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
            }
        }
    }

    /// One Pod's life.
    async fn one(self, pod: Pod, mut wanted: watch::Receiver<Wanted>) {
        let name = pod.name_any();
        if pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_some() || self.bind(&name).await.is_err() {
            return; // bound by an earlier life of ours, which has it; or gone before it was bound
        }
        let (over, ended) = watch::channel(false);
        let started = Timestamp::now();
        self.start(&pod, &name, Run { line: format!("{started:.9} ran {name}\n"), over: ended });
        let running = json!({"running": {"startedAt": seconds(started)}});
        let _ = self.status(&name, "Running", running).await; // gone: the deletion comes next
        let (code, time) = (number(&pod, CODE).unwrap_or_default(), number(&pod, TIME).unwrap_or_default());
        let code = tokio::select! {
            () = sleep(Duration::from_millis(time.unsigned_abs())) => code,
            _ = wanted.wait_for(|wanted| *wanted > Wanted::Alive) => KILLED,
        };
        let phase = if code == 0 { "Succeeded" } else { "Failed" };
        let reason = if code == 0 { "Completed" } else { "Error" };
        let ended =
            json!({"terminated": {"exitCode": code, "reason": reason, "startedAt": seconds(started), "finishedAt": seconds(Timestamp::now())}});
        if self.status(&name, phase, ended).await.is_ok() {
            self.ledger.notes().finished.insert(name.clone(), code);
        }
        over.send_replace(true);
        if wanted.wait_for(|wanted| *wanted > Wanted::Alive).await.is_ok_and(|wanted| *wanted == Wanted::Deleting) {
            let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
            let _ = self.pods.delete(&name, &DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) }).await;
        }
    }

    /// From here on it has run, whatever comes after.
    fn start(&self, pod: &Pod, name: &str, run: Run) {
        let dispatch = pod.annotations().get(DISPATCH).map_or("", String::as_str);
        let line = format!("{dispatch} {} {name}\n", pod.uid().unwrap_or_default());
        let file = OpenOptions::new().create(true).append(true).open(&self.witness);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("room for a line");
        self.runs().insert(name.to_owned(), run);
    }

    async fn bind(&self, name: &str) -> kube::Result<()> {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": self.node}});
        let path = format!("/api/v1/namespaces/{}/pods/{name}/binding", self.namespace);
        let request = http::Request::post(path).header("content-type", "application/json").body(binding.to_string().into_bytes()).expect("a request");
        self.client.request::<Value>(request).await.map(drop)
    }

    async fn status(&self, name: &str, phase: &str, state: Value) -> kube::Result<()> {
        let container = json!({"name": "user", "image": "i", "imageID": "", "ready": phase == "Running", "restartCount": 0, "containerID": format!("containerd://{name}"), "state": state});
        let status = json!({"status": {"phase": phase, "containerStatuses": [container]}});
        self.pods.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.map(drop)
    }
}

fn wanted(pod: &Pod) -> Wanted {
    match (&pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds) {
        (None, _) => Wanted::Alive,
        (Some(_), Some(0)) => Wanted::Gone, // the API server takes it away itself
        (Some(_), _) => Wanted::Deleting,
    }
}

fn seconds(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// A number from the Pod's environment, where the launch has put it.
fn number(pod: &Pod, variable: &str) -> Option<i64> {
    let environment = pod.spec.as_ref()?.containers.first()?.env.as_ref()?;
    environment.iter().find(|entry| entry.name == variable)?.value.as_ref()?.parse().ok()
}
