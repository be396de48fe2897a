//! Kills at random moments under one launch a second, with real Pods. The `kills` ring does the same at 20 a second, without a kubelet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::caller::{Callers, Work};
use crate::covers::covers;
use crate::judge::{Evidence, KILLED, Told};
use crate::ledger::Ledger;
use crate::point::{Dice, Kind};
use crate::witness::creates;
use crate::world::{cluster, kill_container, kubectl};

const RUNS: &str = "nymph-runs";
const DAEMON: &str = "app.kubernetes.io/name=nymph,app.kubernetes.io/component=node";
const CONTROL_PLANE: &str = "app.kubernetes.io/name=lakeshore";
/// Each so many launches runs until somebody deletes its Pod.
const VICTIMS: u64 = 8;
/// A launch may wait 10 s for its 202 and is accepted before or after it: without a relay, nobody outside sees when.
const PROMPT: Duration = Duration::from_secs(30);

/// What is killed, and on which node the daemon is.
const SHORT: [(Kind, &str); 4] = [(Kind::Daemon, "node1"), (Kind::ControlPlane, ""), (Kind::Daemon, "node2"), (Kind::Both, "node1")];
const LONG: [(Kind, &str); 8] =
    [SHORT[0], SHORT[1], SHORT[2], SHORT[3], (Kind::Daemon, "node2"), (Kind::Both, "node2"), (Kind::Daemon, "node1"), (Kind::Daemon, "node2")];

/// Appends a line to a file on the host, and ends as it was told.
fn script(number: u64, code: i64, milliseconds: u64) -> Value {
    let time = if is_victim(number) { 600_000 } else { milliseconds };
    let script = "import os, sys, time\n\
        with open('/workdir/ran', 'a') as file:\n    file.write('ran\\n')\n\
        time.sleep(int(os.environ['TIME_MS']) / 1000)\n\
        sys.exit(int(os.environ['CODE']))\n";
    json!({"script": script, "env": {"CODE": code, "TIME_MS": time}})
}

fn is_victim(number: u64) -> bool {
    number % VICTIMS == VICTIMS - 1
}

#[test]
fn kills_under_a_launch_a_second_lose_and_double_nothing() {
    covers!("S65", "S132");
    let _ = rustls::crypto::ring::default_provider().install_default(); // by whichever test is first
    let long = std::env::var_os("NYMPH_LONG").is_some_and(|long| !long.is_empty());
    let (kills, seed) = (if long { &LONG[..] } else { &SHORT[..] }, u64::from(std::process::id()));
    let variable = |name: &str| std::env::var(name).expect("`deploy/demo env` sets it");
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let ledger = Ledger::new();
    let callers = Callers::new(&variable("LAKESHORE_URL"), &variable("LAKESHORE_TOKEN"), Work { provider: "demo", body: script }, ledger.clone());
    runtime.spawn(Arc::clone(&callers).run(Duration::from_secs(1), seed));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| third_party(&ledger, &over));
        let _over = Over(&over); // also when a kill fails, else the third party would go on for ever
        let mut dice = Dice::new(seed);
        for (kind, node) in kills {
            pause(Duration::from_millis(2_000 + dice.below(3_000)));
            eprintln!("{:>6.1} s: SIGKILL of {} {node}", ledger.now().as_secs_f64(), kind.name());
            kill(*kind, node, &ledger);
        }
        runtime.block_on(callers.settle());
    });
    let evidence = evidence(&ledger, &runtime.block_on(callers.all()));
    let verdict = evidence.judge();
    println!("{} kills, {} launches, {} answered, ends {:?}", kills.len(), verdict.launches, verdict.answered, verdict.ends);
    assert!(verdict.is_clean(), "{verdict:#?}");
    assert!(verdict.answered >= 5 * kills.len(), "too few launches were answered to show anything");
}

/// Ends the third party when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn kill(kind: Kind, node: &str, ledger: &Ledger) {
    std::thread::scope(|scope| {
        if kind.has_daemon() {
            let now = ledger.now();
            ledger.notes().daemon_kills.push(now..now);
            scope.spawn(|| kill_container("nymph-system", DAEMON, Some(node)));
        }
        if kind.has_control_plane() {
            scope.spawn(|| kill_container("lakeshore", CONTROL_PLANE, None));
        }
    });
}

/// Deletes each victim once its container runs, whether a daemon is there to see it or not.
fn third_party(ledger: &Ledger, over: &AtomicBool) {
    while !over.load(Ordering::SeqCst) {
        let due = |(number, told): (&u64, &Told)| {
            let open = is_victim(*number) && told.end.is_none();
            told.answer.as_ref().filter(|_| open).map(|(instance, _)| instance.clone())
        };
        let victims: Vec<String> = ledger.notes().told.iter().filter_map(due).collect();
        for name in victims {
            let before = ledger.now();
            if kubectl(&["get", "pod", "-n", RUNS, &name, "-o", "jsonpath={.status.phase}"]).text() == "Running"
                && kubectl(&["delete", "pod", "-n", RUNS, &name, "--wait=false", "--grace-period=1"]).code == Some(0)
            {
                ledger.notes().deleted.entry(name).or_insert(before);
            }
        }
        pause(Duration::from_millis(500));
    }
}

/// What the kubelets, the API server's audit log and the files on the nodes say.
fn evidence(ledger: &Ledger, shown: &[Value]) -> Evidence {
    let mut evidence = ledger.evidence(shown);
    evidence.prompt = PROMPT;
    let dispatches: BTreeMap<&String, &String> = evidence.told.iter().filter_map(|told| told.answer.as_ref()).map(|(i, d)| (i, d)).collect();
    let begun = |dispatch: &&String| ((*dispatch).clone(), ledger.notes().begun.get(*dispatch).copied().unwrap_or_default());
    evidence.accepted = dispatches.values().map(begun).collect();
    let of_these = |(dispatch, _): &(String, usize)| dispatches.values().any(|known| *known == dispatch);
    evidence.creates = creates(RUNS).into_iter().filter(of_these).collect();
    evidence.lines = lines().into_iter().filter_map(|(instance, lines)| Some(((*dispatches.get(&instance)?).clone(), lines))).collect();
    let pods = kubectl(&["get", "pods", "-n", RUNS, "-o", "json"]).ok().json();
    for pod in pods["items"].as_array().expect("a list") {
        if let (Some(name), Some(code)) =
            (pod["metadata"]["name"].as_str(), pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"].as_i64())
        {
            evidence.finished.insert(name.to_owned(), code);
        }
    }
    evidence.finished.extend(evidence.deleted.keys().map(|name| (name.clone(), KILLED))); // their scripts never end by themselves
    evidence
}

/// Lines in the file of each instance's workdir, on the nodes themselves.
fn lines() -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for node in ["node1", "node2"] {
        let found = cluster(&["node", "exec", node, "sh", "-c", "cd /var/lib/nymph/work/nymph-runs && grep -c ran */ran /dev/null"]).text();
        for line in found.lines() {
            if let Some((path, count)) = line.split_once(':')
                && let (Some(instance), Ok(count)) = (path.strip_suffix("/ran"), count.parse::<usize>())
            {
                *lines.entry(instance.to_owned()).or_default() += count;
            }
        }
    }
    lines
}

/// Lets the load go on for a while: here time itself is what is varied.
#[allow(clippy::disallowed_methods, reason = "a plain thread that plays with the time between kills")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
