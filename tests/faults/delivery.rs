//! Rows 7 and 8: messages that come twice, ten times, in another order, or from a session that is over.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::kubelet::exited;
use crate::proxy::ws::{Seen, Verdict, Way};
use crate::rig::Rig;
use crate::rows::shown;
use crate::world::creates;

/// Keeps every frame of a kind that goes by.
fn keep(rig: &Rig, way: Way, kind: &'static str) -> Arc<Mutex<Vec<Message>>> {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&kept);
    rig.ws.hook(move |seen: &Seen| {
        if seen.is(way, kind) {
            keep.lock().expect("no hook panics").push(seen.raw.clone());
        }
        Verdict::Pass
    });
    kept
}

#[test]
fn a_dispatch_delivered_ten_times_and_again_after_its_end_makes_one_pod() {
    let rig = Rig::new();
    rig.ws.hook(|seen| if seen.is(Way::Down, "dispatch") { Verdict::Duplicate(10) } else { Verdict::Pass });
    let ids: Vec<String> = (0..5).map(|n| rig.launched_with(&format!("key-{n}"))).collect();
    let dispatches = keep(&rig, Way::Down, "dispatch");
    let last = rig.launched_with("last");
    for id in ids.iter().chain([&last]) {
        rig.assert_made_once(id);
    }
    // Out of order: long after it was made, and after it ended.
    let raw = dispatches.lock().expect("no hook panics")[0].clone();
    rig.ws.inject(Way::Down, raw.clone());
    rig.bind(&last);
    rig.status(&last, &exited(0));
    rig.until_state(&last, "stopped", "completed");
    let before = rig.ws.count(Way::Up, "accepted") + rig.ws.count(Way::Up, "rejected") + rig.ws.count(Way::Up, "report");
    rig.ws.inject(Way::Down, raw.clone());
    rig.ws.inject(Way::Down, raw);
    rig.launched_with("after"); // the daemon has taken in what came before this one
    assert!(before > 0);
    assert_eq!(creates(&last), 1);
    let seen = rig.instance(&last);
    assert_eq!((&seen["state"], &seen["reason"]), (&json!("stopped"), &json!("completed")), "{seen}");
    shown(7, "P", 6);
}

#[test]
fn a_word_from_an_older_session_changes_nothing() {
    let rig = Rig::new();
    let reports = keep(&rig, Way::Up, "report");
    let id = rig.launched_with("key");
    rig.assert_made_once(&id);
    let old = reports.lock().expect("no hook panics").clone();
    assert!(!old.is_empty());
    rig.ws.cut();
    rig.until("the next session", || (rig.ws.connections() == 2 && rig.ws.count(Way::Down, "welcome") == 2).then_some(()));
    rig.bind(&id);
    rig.status(&id, &exited(0));
    rig.until_state(&id, "stopped", "completed");
    let ours = || reports.lock().expect("no hook panics").len();
    let reported = ours();
    for raw in &old {
        rig.ws.inject(Way::Up, raw.clone());
    }
    let ignored =
        || rig.log("server.log").lines().filter(|line| line.contains("of an older session is ignored") && line.contains(r#""epoch":1"#)).count();
    rig.until("the control plane says that it ignored them", || (ignored() == old.len()).then_some(()));
    let seen = rig.instance(&id);
    assert_eq!((&seen["state"], &seen["reason"]), (&json!("stopped"), &json!("completed")), "{seen}");
    assert_eq!((rig.ws.connections(), ours()), (2, reported), "the session goes on as it was");
    shown(8, "P", old.len());
}

#[test]
fn an_old_acknowledgement_changes_nothing() {
    let rig = Rig::new();
    let acks = keep(&rig, Way::Down, "ack");
    let id = rig.launched_with("key");
    rig.assert_made_once(&id);
    rig.until("the first report is acknowledged", || (!acks.lock().expect("no hook panics").is_empty()).then_some(()));
    let old = acks.lock().expect("no hook panics")[0].clone();
    rig.ws.cut();
    rig.until("the next session", || (rig.ws.count(Way::Down, "welcome") == 2).then_some(()));
    // The report of the end is lost, and an old acknowledgement comes in place of its own: the end is owed still.
    rig.ws.hook(|seen| if seen.is(Way::Up, "report") { Verdict::Drop } else { Verdict::Pass });
    let reports = rig.ws.count(Way::Up, "report");
    rig.bind(&id);
    rig.status(&id, &exited(0));
    rig.until("the end is reported", || (rig.ws.count(Way::Up, "report") > reports).then_some(()));
    rig.ws.inject(Way::Down, old);
    assert_eq!(rig.instance(&id)["state"], "starting", "the report was lost");
    rig.ws.calm();
    rig.ws.cut();
    rig.until_state(&id, "stopped", "completed");
    shown(8, "P", 1);
}
