//! Phases and conditions as a kubelet writes them, and what the caller is told.

use std::time::Duration;

use serde_json::json;

use crate::covers::covers;
use crate::world::{World, kubectl, measured};

fn running() -> serde_json::Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "user", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://c",
        "state": {"running": {"startedAt": "2026-11-30T00:00:00Z"}}}]})
}

fn ended(phase: &str, reason: &str, code: i32) -> serde_json::Value {
    json!({"phase": phase, "containerStatuses": [{"name": "user", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "containerID": "containerd://c",
        "state": {"terminated": {"exitCode": code, "reason": reason, "startedAt": "2026-11-30T00:00:00Z", "finishedAt": "2026-11-30T00:00:01Z"}}}]})
}

#[test]
fn each_phase_is_told_with_its_reason() {
    covers!("S68", "S93", "S101", "S102", "S103", "S105", "S106");
    let world = World::new();
    let id = world.launched();
    world.until_state(&id, "starting", "scheduling");
    world.status(&id, &json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: no GPU"}]}));
    let (seen, _) = world.until_state(&id, "starting", "unschedulable");
    assert!(seen["message"].as_str().is_some_and(|m| m.contains("no GPU")), "{seen}");
    world.bind(&id);
    world.status(&id, &json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}], "containerStatuses": [{"name": "user", "image": "i", "imageID": "",
        "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}]}));
    world.until_state(&id, "starting", "image_pull");
    world.status(&id, &running());
    world.until_state(&id, "running", "running");
    world.status(&id, &ended("Failed", "OOMKilled", 137));
    let (seen, _) = world.until_state(&id, "stopped", "out_of_memory");
    assert_eq!(seen["exitCode"], 137, "{seen}");
    assert_eq!(world.instance(&id)["kubernetesNamespace"], world.runs.as_str());
}

#[test]
fn a_deletion_time_stamp_is_stopping_whatever_the_phase() {
    covers!("S100");
    let world = World::new();
    let id = world.launched();
    world.until_state(&id, "starting", "scheduling");
    world.bind(&id);
    world.status(&id, &running());
    world.until_state(&id, "running", "running");
    kubectl(&["patch", "pod", &id, "-n", &world.runs, "--type=merge", "-p", r#"{"metadata":{"finalizers":["test.nymph.dev/hold"]}}"#]).ok();
    kubectl(&["delete", "pod", &id, "-n", &world.runs, "--wait=false", "--grace-period=0"]).ok();
    let (_, took) = world.until_state(&id, "stopping", "deleted_by_other");
    measured("deletion time stamp: until stopping is shown", Duration::from_secs(2), took);
    world.status(&id, &ended("Succeeded", "Completed", 0));
    assert_eq!(world.instance(&id)["state"], "stopping");
    kubectl(&["patch", "pod", &id, "-n", &world.runs, "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]).ok();
    kubectl(&["delete", "pod", &id, "-n", &world.runs, "--wait=false", "--grace-period=0", "--force"]).ok(); // as the kubelet confirms it
    let (_, took) = world.until("stopped", || Some(world.instance(&id)).filter(|i| i["state"] == "stopped"));
    measured("object removed: until stopped is shown", Duration::from_secs(2), took);
}

#[test]
fn stop_deletes_and_is_idempotent() {
    covers!("S95", "A27");
    let world = World::new();
    let id = world.launched();
    world.lakeshore(&["stop", &id]).ok();
    // No kubelet confirms: an unbound Pod goes at once.
    world.until_state(&id, "stopped", "deleted_by_request");
    world.lakeshore(&["stop", &id]).ok();
    assert_eq!(world.pods(), Vec::<String>::new());
}

#[test]
fn the_daemon_needs_no_more_rights_than_the_chart_gives() {
    covers!("S123");
    let world = World::new();
    let id = world.launched();
    world.until_state(&id, "starting", "scheduling");
    // Not ok, since the policy names a namespace that does not exist; every verb is asked for all the same.
    world.lakeshore(&["providers", "test", "p"]).refused(&[]);
    world.lakeshore(&["stop", &id]).ok();
    world.until_state(&id, "stopped", "deleted_by_request");
    let user = format!("system:serviceaccount:{}:nymph", world.system);
    let asked: Vec<_> = crate::world::audit(&user).into_iter().filter(|e| e["user"]["username"] == user.as_str()).collect();
    assert!(asked.len() > 5, "the audit log has nothing of the daemon");
    // It watches a namespace that policy names and that was never created: that one is forbidden, and told in its log.
    let forbidden: Vec<_> =
        asked.iter().filter(|e| e["responseStatus"]["code"] == 403 && e["objectRef"]["namespace"] != world.missing.as_str()).collect();
    assert!(forbidden.is_empty(), "{forbidden:#?}");
}
