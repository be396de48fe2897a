//! kill -9 again and again while callers launch and a daemon works: the invariants I1 to I3 of the fault matrix.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use nymph::types::{InstanceName, Reason, State};
use nymph::wire::{DispatchEnvelope, ToDaemon};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::covers::covers;
use crate::daemon::{Daemon, Incoming, completed, facts, running, seen};
use crate::plane::{Plane, STUCK};

const LAUNCHES: usize = 24;
const KILLS: usize = 10;

/// What stands in for the API server: which objects exist, and how often each was created.
#[derive(Default)]
struct Cluster {
    created: HashMap<InstanceName, u32>,
}

impl Cluster {
    fn has(&self, name: &InstanceName) -> bool {
        self.created.contains_key(name)
    }
}

/// A daemon that keeps the rules and nothing else: no memory of its own outlives a session.
async fn work(address: String, token: String, cluster: Arc<Mutex<Cluster>>, events: mpsc::UnboundedSender<()>) {
    let locked = || cluster.lock().expect("no holder panics");
    loop {
        let Some(mut daemon) = Daemon::try_connect(&address, &token, facts("node1")).await else {
            tokio::task::yield_now().await; // the server is being restarted
            continue;
        };
        for item in daemon.welcome.open.clone() {
            let observation = if locked().has(&item.instance) { completed() } else { seen(State::Stopped, Reason::Lost) };
            let envelope = DispatchEnvelope {
                dispatch_id: item.dispatch_id,
                attempt: item.attempt,
                instance: item.instance,
                install: "c1-0".into(),
                placement: nymph::types::Placement::Cluster,
                accepted_before: true,
            };
            daemon.try_report(&envelope, item.seq + 1, observation).await;
        }
        let mut offered: HashMap<String, DispatchEnvelope> = HashMap::new();
        loop {
            match daemon.next().await {
                Incoming::End => break,
                Incoming::Dispatch(envelope, _) => {
                    daemon.try_accept(&envelope).await;
                    offered.insert(envelope.dispatch_id.to_string(), envelope);
                }
                Incoming::Message(ToDaemon::AcceptedAck { dispatch_id, .. }) => {
                    let envelope = offered.remove(dispatch_id.as_str()).expect("only what was accepted here is acknowledged");
                    *locked().created.entry(envelope.instance.clone()).or_default() += 1;
                    let _ = events.send(()); // a kill may come between the creation and its report
                    daemon.try_report(&envelope, 1, running()).await;
                    daemon.try_report(&envelope, 2, completed()).await;
                }
                Incoming::Message(_) => {}
            }
            let _ = events.send(()); // the test may be over
        }
    }
}

/// Launches with a key, and again with it until there is an answer.
async fn insist(url: String, token: String, key: String) -> String {
    let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().expect("a client");
    loop {
        let request = client.post(&url).bearer_auth(&token).header("Idempotency-Key", &key).json(&json!({"script": key}));
        let Ok(response) = request.send().await else { continue };
        let status = response.status().as_u16();
        let Ok(body) = response.json::<Value>().await else { continue };
        match status {
            202 => return body["instanceId"].as_str().expect("an id").to_owned(),
            503 => {} // the daemon is not back yet
            _ => panic!("{status}: {body}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kill_loses_repeats_or_takes_back_a_launch() {
    covers!("S132", "S65");
    let mut plane = Plane::start_with(&["--launch-wait", "200ms"]).await;
    let token = plane.with_provider().await;
    let cluster = Arc::new(Mutex::new(Cluster::default()));
    let (events, mut seen_events) = mpsc::unbounded_channel();
    let worker = tokio::spawn(work(plane.address.clone(), token, Arc::clone(&cluster), events));
    let url = format!("http://{}/v1/namespaces/default/providers/demo/launch", plane.address);
    let callers: Vec<_> = (0..LAUNCHES).map(|n| tokio::spawn(insist(url.clone(), plane.token.clone(), format!("key-{n}")))).collect();
    for kill in 0..KILLS {
        for _ in 0..(3 + kill * 5 % 7) {
            // Once everything is done nothing happens any more, and there is nothing left to interrupt.
            if tokio::time::timeout(std::time::Duration::from_millis(500), seen_events.recv()).await.is_err() {
                break;
            }
        }
        plane.kill();
        plane.run();
    }
    let mut answered = BTreeSet::new();
    for caller in callers {
        answered.insert(tokio::time::timeout(STUCK, caller).await.expect("each is answered").expect("it ends"));
    }
    assert_eq!(answered.len(), LAUNCHES, "each key has an instance of its own");
    let all_ended = async {
        loop {
            let rows = plane.get("/v1/namespaces/default/instances").await.expect(200).body;
            let rows = rows.as_array().expect("a list").clone();
            if rows.iter().all(|row| row["state"] == "stopped") {
                return rows;
            }
            tokio::task::yield_now().await;
        }
    };
    let rows = tokio::time::timeout(STUCK, all_ended).await.expect("each dispatch ends");
    worker.abort();
    let rows: BTreeMap<String, Value> = rows.into_iter().map(|row| (row["instanceId"].as_str().expect("an id").to_owned(), row)).collect();
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), answered, "no row without a caller, no caller without a row");
    let cluster = cluster.lock().expect("no holder panics");
    for (id, row) in &rows {
        let created = cluster.created.get(&id.parse::<InstanceName>().expect("an id")).copied().unwrap_or(0);
        match row["reason"].as_str() {
            Some("completed") => assert_eq!(created, 1, "{row}"),
            Some("lost") => assert_eq!(created, 0, "{row}"),
            _ => panic!("neither completed nor lost: {row}"),
        }
    }
    assert!(cluster.created.keys().all(|name| rows.contains_key(name.as_str())), "nothing was made that nobody asked for");
}
