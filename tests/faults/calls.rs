//! Rows 15 and 16: calls that never return, and an API server that is busy, broken or slow.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::kubelet::exited;
use crate::proxy::Task;
use crate::proxy::api::{Call, Verdict};
use crate::proxy::ws::Answer as Dial;
use crate::rig::{Answer, Rig};
use crate::rows::{remark, shown};
use crate::world::measured;

#[test]
fn a_create_that_never_returns_stands_in_nobodys_way_and_its_deadline_fires() {
    let rig = Rig::new();
    let trap = rig.api.trap(|call| call.before("create", "pods"));
    let stuck = rig.launching("stuck");
    let id = trap.sprung("the POST").name;
    trap.release(Verdict::BlackHole);
    let began = Instant::now();
    for n in 0..5 {
        let other = rig.launched_with(&format!("other-{n}"));
        rig.assert_made_once(&other);
    }
    measured("five launches beside a call that never returns", Duration::from_secs(10), began.elapsed());
    assert_eq!(rig.probe("/healthz").map(|(status, _)| status), Some(200));
    assert_eq!(stuck.join().expect("the control plane runs").body["instanceId"], id.as_str());
    // The server never got that POST, which nobody but it can know: after its deadline of 10 s it is read back, and never sent again.
    rig.assert_lost(&id, 0);
    assert_eq!(posts(&rig, &id), 1);
    shown(15, "P", 1);
}

#[test]
fn a_dial_that_is_never_answered_does_not_stop_the_watching() {
    let rig = Rig::new();
    let id = rig.launched_with("key");
    rig.assert_made_once(&id);
    rig.ws.answer(Dial::Silence);
    rig.ws.cut();
    rig.until("it says that nobody answers", || rig.probe("/readyz").filter(|(_, text)| text.contains("shaking hands")));
    let watched = rig.api.count("watch", "pods");
    rig.api.cut_streams();
    rig.until("its watches are opened anew meanwhile", || (rig.api.count("watch", "pods") > watched).then_some(()));
    rig.bind(&id);
    rig.status(&id, &exited(5));
    rig.ws.answer(Dial::Relay);
    rig.until_state(&id, "stopped", "exit_code");
    shown(15, "P", 1);
    remark(15, "no watchdog metric yet: there are no metrics");
}

/// Launches so many at once.
fn burst(rig: &Rig, name: &str, count: usize) -> Vec<Task<Option<Answer>>> {
    (0..count).map(|n| rig.launching(&format!("{name}-{n}"))).collect()
}

fn ids(launches: Vec<Task<Option<Answer>>>) -> Vec<String> {
    let answer = |launch: Task<Option<Answer>>| launch.join().expect("the control plane runs").body;
    launches.into_iter().map(answer).map(|body| body["instanceId"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()).collect()
}

/// When each object was asked for, by its name.
fn times(rig: &Rig, verb: &str) -> BTreeMap<String, Vec<Duration>> {
    let mut times = BTreeMap::<String, Vec<Duration>>::new();
    for call in rig.api.calls().iter().filter(|call| call.is(verb, "pods") && call.name.starts_with("lakeshore-")) {
        times.entry(call.name.clone()).or_default().push(call.at);
    }
    times
}

/// How often the object was asked for.
fn posts(rig: &Rig, id: &str) -> usize {
    times(rig, "create").get(id).map_or(0, Vec::len)
}

/// Sizes of the window that the daemon said it shrank to.
fn windows(rig: &Rig) -> Vec<u64> {
    let log = rig.log("daemon.log");
    let lines = log.lines().filter(|line| line.contains("making fewer calls at a time"));
    lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()?["window"].as_u64()).collect()
}

#[test]
fn a_busy_server_is_left_alone_for_as_long_as_it_asks() {
    let rig = Rig::new();
    // Each POST is told to wait twice.
    let told = Mutex::new(BTreeMap::<String, u32>::new());
    rig.api.hook(move |call: &Call| {
        if !call.before("create", "pods") {
            return Verdict::Pass;
        }
        let mut told = told.lock().expect("no hook panics");
        let times = told.entry(call.name.clone()).or_default();
        *times += 1;
        if *times <= 2 { Verdict::Busy(2) } else { Verdict::Pass }
    });
    for id in ids(burst(&rig, "key", 8)) {
        rig.assert_made_once(&id);
    }
    let times = times(&rig, "create");
    assert_eq!(times.len(), 8);
    for (name, asked) in &times {
        assert_eq!(asked.len(), 3, "{name}: {asked:?}");
        for pair in asked.windows(2) {
            assert!(pair[1] - pair[0] >= Duration::from_secs(2), "{name} was asked again too soon: {asked:?}");
        }
    }
    assert!(windows(&rig).first() == Some(&16), "the window did not shrink: {:?}", windows(&rig));
    shown(16, "K", 8);
}

#[test]
fn a_server_that_fails_is_asked_in_growing_pauses_and_all_is_made_in_the_end() {
    let rig = Rig::new();
    for status in [500, 503] {
        let until = rig.api.now() + Duration::from_secs(6);
        rig.api.hook(move |call| if call.before("get", "pods") && call.at < until { Verdict::Status(status) } else { Verdict::Pass });
        let launches = burst(&rig, &format!("{status}"), 6);
        for id in ids(launches) {
            rig.assert_made_once(&id);
        }
    }
    let most = times(&rig, "get").into_values().map(|asked| asked.len()).max().unwrap_or_default();
    assert!(most <= 12, "a busy loop: one Pod was read {most} times in 6 s");
    let windows = windows(&rig);
    assert!(windows.last().is_some_and(|last| *last <= 4), "the window did not shrink: {windows:?}");
    // A POST that the server may or may not have carried out is read back, never taken for a no and never sent again.
    rig.api.hook(|_| Verdict::Pass);
    let trap = rig.api.trap(|call| call.before("create", "pods"));
    let launch = rig.launching("post");
    let id = trap.sprung("the POST").name;
    trap.release(Verdict::Status(503));
    assert_eq!(launch.join().expect("the control plane runs").body["instanceId"], id.as_str());
    rig.assert_lost(&id, 0);
    assert_eq!(posts(&rig, &id), 1);
    let said = rig.instance(&id)["message"].to_string();
    assert!(said.contains("503"), "why is said: {said}");
    shown(16, "K", 13);
}

#[test]
fn a_slow_server_gets_fewer_calls_at_a_time() {
    let rig = Rig::new();
    rig.api.take_peak();
    rig.api.hook(|call| if call.before("get", "pods") { Verdict::Delay(Duration::from_secs(5)) } else { Verdict::Pass });
    let first = burst(&rig, "first", 40);
    let ids = ids(first);
    rig.until("the window shrank", || windows(&rig).first().copied());
    let before = rig.api.take_peak();
    for id in &ids {
        rig.assert_made_once(id);
    }
    rig.api.take_peak();
    for id in self::ids(burst(&rig, "second", 40)) {
        rig.assert_made_once(&id);
    }
    let after = rig.api.take_peak();
    assert!(before <= 33 && after <= 20, "at a time: {before} at first, then {after}"); // one more is the reading of the Node
    remark(16, &format!("calls at a time under 5 s answers: {before}, then {after}"));
    shown(16, "K", 80);
}
