//! Kills: nothing is lost, nothing is doubled.

use crate::covers::covers;
use crate::world::{creates, kill_container, lakeshore, launch, launch_detached, until, until_state};

/// Prints numbers for some seconds; gaps and repeats are found by comparing.
const COUNTER: &str = "import time\nfor i in range(150):\n    print(i, flush=True)\n    time.sleep(0.1)\n";
const DAEMON: &str = "app.kubernetes.io/name=nymph,app.kubernetes.io/component=node";
const CONTROL_PLANE: &str = "app.kubernetes.io/name=lakeshore";

fn counted() -> String {
    (0..150).map(|i| format!("{i}\n")).collect()
}

#[test]
fn a_killed_daemon_goes_on_following_the_same_instance() {
    covers!("S132");
    let id = launch_detached(COUNTER, &["--node", "node1"]);
    until("its output comes", || lakeshore(&["logs", &id]).text().contains("5\n").then_some(()));
    kill_container("nymph-system", DAEMON, Some("node1"));
    let ended = until_state(&id, "stopped");
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&"completed".into(), &0.into()), "{ended}");
    assert_eq!(lakeshore(&["logs", "-f", &id]).ok().text(), counted());
    assert_eq!(creates(&id), 1, "the API server counted another create");
}

#[test]
fn a_killed_control_plane_loses_nothing() {
    covers!("S132");
    let id = launch_detached(COUNTER, &["--node", "node2"]);
    until("its output comes", || lakeshore(&["logs", &id]).text().contains("5\n").then_some(()));
    let follower = std::thread::spawn({
        let id = id.clone();
        move || lakeshore(&["logs", "-f", &id])
    });
    kill_container("lakeshore", CONTROL_PLANE, None);
    let ended = until("the instance is known and stopped", || {
        let all = lakeshore(&["instances", "-o", "json"]);
        let all: serde_json::Value = serde_json::from_slice(&all.stdout).ok()?; // the server may still be away
        all.as_array()?.iter().find(|i| i["instanceId"] == id.as_str() && i["state"] == "stopped").cloned()
    })
    .0;
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&"completed".into(), &0.into()), "{ended}");
    assert_eq!(lakeshore(&["logs", "-f", &id]).ok().text(), counted());
    assert_eq!(follower.join().expect("no panic").ok().text(), counted(), "the follower resumed by itself");
    assert_eq!(creates(&id), 1);
    launch("print('and the daemons are back')", &[]).ok();
}
