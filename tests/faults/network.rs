//! Rows 10, 11 and 12: partitions, a peer that is gone without a word, and a load balancer that drops every socket.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kubelet::{exited, running};
use crate::proxy::tcp::Mode;
use crate::rig::Rig;
use crate::rows::{remark, rounds, shown};
use crate::world::measured;

/// **Source:** `nymph::wire::HEARTBEAT_INTERVAL` and `MISSED_BEATS`: silence this long is death.
const TWO_BEATS: Duration = Duration::from_secs(30);

fn rank(seen: &Value) -> usize {
    ["starting", "running", "stopping", "stopped"].iter().position(|state| seen["state"] == *state).unwrap_or(0)
}

/// Pods change while nothing goes through; afterwards all is told, and never backwards.
fn partition(time: Duration) {
    let rig = Rig::new();
    let (ends, begins) = (rig.launched_with("ends"), rig.launched_with("begins"));
    for id in [&ends, &begins] {
        rig.assert_made_once(id);
        rig.bind(id);
    }
    rig.status(&ends, &running());
    rig.until_state(&ends, "running", "running");
    rig.tcp.set(Mode::Stall);
    std::thread::sleep(time / 2); // the partition itself
    rig.status(&ends, &exited(7));
    rig.status(&begins, &running());
    std::thread::sleep(time / 2);
    assert_eq!(rig.instance(&ends)["state"], "running", "nothing can have come through");
    rig.tcp.set(Mode::Pass);
    let mut highest = 0;
    let (seen, _) = rig.until("the end is told", || {
        let seen = rig.instance(&ends);
        assert!(rank(&seen) >= highest, "backwards: {seen}");
        highest = rank(&seen);
        (seen["state"] == "stopped").then_some(seen)
    });
    assert_eq!((&seen["reason"], &seen["exitCode"]), (&json!("exit_code"), &json!(7)), "{seen}");
    rig.until_state(&begins, "running", "running");
}

#[test]
fn pods_run_on_through_a_partition_and_what_happened_is_told_after_it() {
    partition(Duration::from_secs(10));
    shown(10, "P", 1);
}

#[test]
fn a_partition_that_outlives_the_session_is_followed_by_another_session() {
    partition(TWO_BEATS + Duration::from_secs(10));
    shown(10, "P", 1);
    remark(10, "10 s and 40 s; logs need a kubelet, and longer ones simulated time");
}

#[test]
fn a_half_open_connection_is_noticed_within_two_beats_and_replaced() {
    let rig = Rig::new();
    let id = rig.launched_with("before");
    let before = rig.tcp.accepted();
    rig.tcp.half_open();
    let (_, took) = rig.until("another connection", || (rig.tcp.accepted() > before).then_some(()));
    // Two beats, and the first pause of the backoff.
    measured("half-open link replaced (two beats, one pause)", TWO_BEATS + Duration::from_secs(1), took);
    assert!(took < TWO_BEATS + Duration::from_secs(5), "{took:?}");
    rig.until("the next session", || rig.log("daemon.log").contains(r#""link":2"#).then_some(()));
    rig.until_connected();
    rig.assert_made_once(&id);
    let after = rig.launched_with("after");
    rig.assert_made_once(&after);
    remark(11, &format!("replaced after {:.1} s", took.as_secs_f64()));
    shown(11, "P", 1);
}

#[test]
fn a_network_that_refuses_for_long_is_waited_out_and_health_says_so() {
    let mut rig = Rig::new();
    let id = rig.launched_with("before");
    rig.assert_made_once(&id);
    assert_eq!(rig.probe("/readyz").map(|(status, _)| status), Some(503), "this world's second namespace does not exist");
    let down = Duration::from_secs(rounds(20, 900) as u64);
    rig.tcp.set(Mode::Refuse);
    rig.tcp.cut();
    rig.until("readiness says it", || rig.probe("/readyz").filter(|(status, text)| *status == 503 && text.contains("control_plane:")));
    rig.bind(&id);
    rig.status(&id, &exited(3));
    let until = std::time::Instant::now() + down;
    while std::time::Instant::now() < until {
        assert_eq!(rig.probe("/healthz").map(|(status, _)| status), Some(200), "liveness never depends on the control plane");
        assert!(rig.daemon_lives());
        std::thread::sleep(Duration::from_secs(1));
    }
    rig.tcp.set(Mode::Pass);
    let took = rig.until_connected();
    // The longest pause of the backoff.
    measured("return after a refusing network", Duration::from_secs(31), took);
    rig.until("readiness is back", || rig.probe("/readyz").filter(|(_, text)| !text.contains("control_plane:")));
    rig.until_state(&id, "stopped", "exit_code");
    remark(12, &format!("{} s down, back after {:.1} s", down.as_secs(), took.as_secs_f64()));
    shown(12, "P", 1);
}
