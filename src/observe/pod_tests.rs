//! The table of Pod statuses, built from JSON as the API gives it.

use serde_json::{Value, json};

use super::*;

const NOW: &str = "2026-11-30T12:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn see(value: Value, cancel: bool) -> Observation {
    let mut value = value;
    value["apiVersion"] = json!("v1");
    value["kind"] = json!("Pod");
    pod(&serde_json::from_value(value).expect("a Pod"), at(NOW), cancel)
}

fn status(status: Value) -> Value {
    json!({"metadata": {"name": "lakeshore-0a1b2c3d", "uid": "uid-1", "creationTimestamp": "2026-11-30T11:00:00Z"}, "spec": {"containers": [], "nodeName": "n1"}, "status": status})
}

fn waiting_in(phase: &str, reason: &str, message: &str) -> Value {
    status(json!({"phase": phase, "containerStatuses": [container(json!({"waiting": {"reason": reason, "message": message}}))]}))
}

fn container(state: Value) -> Value {
    json!({"name": "user", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

fn ended(exit_code: i32, reason: &str, message: &str) -> Value {
    json!({"terminated": {"exitCode": exit_code, "reason": reason, "message": message, "containerID": "containerd://1",
        "startedAt": "2026-11-30T11:00:10Z", "finishedAt": "2026-11-30T11:30:00Z"}})
}

fn finished(phase: &str, state: Value) -> Value {
    status(json!({"phase": phase, "containerStatuses": [container(state)]}))
}

#[test]
fn a_pending_pod_is_starting_and_says_what_it_waits_for() {
    let unbound = |condition: Value| json!({"metadata": {}, "spec": {"containers": []}, "status": {"phase": "Pending", "conditions": [condition]}});
    for (pod, reason, message) in [
        (json!({"metadata": {}, "spec": {"containers": []}, "status": {"phase": "Pending"}}), Reason::Scheduling, ""),
        (
            unbound(
                json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available: 2 Insufficient cpu."}),
            ),
            Reason::Unschedulable,
            "0/2 nodes are available: 2 Insufficient cpu.",
        ),
        (
            unbound(json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "Scheduling is blocked"})),
            Reason::Scheduling,
            "Scheduling is blocked",
        ),
        (status(json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]})), Reason::ContainerCreating, ""),
        (waiting_in("Pending", "ContainerCreating", ""), Reason::ContainerCreating, ""),
        (waiting_in("Pending", "PodInitializing", ""), Reason::ContainerCreating, ""),
        (waiting_in("Pending", "ErrImagePull", "not found"), Reason::ImagePull, "ErrImagePull: not found"),
        (waiting_in("Pending", "ImagePullBackOff", "Back-off pulling"), Reason::ImagePull, "ImagePullBackOff: Back-off pulling"),
        (waiting_in("Pending", "ErrImageNeverPull", "not present"), Reason::ImagePull, "ErrImageNeverPull: not present"),
        (waiting_in("Pending", "InvalidImageName", "couldn't parse"), Reason::InvalidImage, "InvalidImageName: couldn't parse"),
        (
            waiting_in("Pending", "CreateContainerConfigError", "secret not found"),
            Reason::ConfigError,
            "CreateContainerConfigError: secret not found",
        ),
        (waiting_in("Pending", "CreateContainerError", "no such dir"), Reason::ConfigError, "CreateContainerError: no such dir"),
        (waiting_in("Pending", "SomethingNew", "words"), Reason::Other, "SomethingNew: words"),
    ] {
        let seen = see(pod.clone(), false);
        assert_eq!((seen.state, seen.reason, seen.message.as_str()), (State::Starting, reason, message), "{pod}");
        assert_eq!((seen.exit_code, seen.has_log), (None, false), "{pod}");
    }
}

#[test]
fn a_running_pod_is_running_whatever_its_container_does() {
    let running = finished("Running", json!({"running": {"startedAt": "2026-11-30T11:00:10Z"}}));
    let seen = see(running, false);
    assert_eq!((seen.state, seen.reason, seen.exit_code, seen.has_log), (State::Running, Reason::Running, None, true));
    assert_eq!((seen.started_at, seen.finished_at), (Some(at("2026-11-30T11:00:10Z")), None));
    assert_eq!((seen.uid.as_deref(), seen.created_at, seen.observed_at), (Some("uid-1"), Some(at("2026-11-30T11:00:00Z")), at(NOW)));

    let over = see(finished("Running", ended(3, "Error", "")), false);
    assert_eq!((over.state, over.reason, over.exit_code, over.has_log), (State::Running, Reason::Running, Some(3), true));

    let waits = see(waiting_in("Running", "CrashLoopBackOff", "back-off"), false);
    assert_eq!((waits.state, waits.reason, waits.message.as_str()), (State::Running, Reason::Running, "CrashLoopBackOff: back-off"));
}

#[test]
fn an_ended_pod_is_stopped_with_the_reason_that_the_cluster_gives() {
    let of_pod = |reason: &str, message: &str| status(json!({"phase": "Failed", "reason": reason, "message": message}));
    for (pod, reason, exit_code, message) in [
        (finished("Succeeded", ended(0, "Completed", "")), Reason::Completed, Some(0), ""),
        (finished("Failed", ended(3, "Error", "")), Reason::ExitCode, Some(3), ""),
        (finished("Failed", ended(137, "Error", "")), Reason::ExitCode, Some(137), ""),
        (finished("Failed", ended(1, "Error", "its last words")), Reason::ExitCode, Some(1), "its last words"),
        (finished("Failed", ended(137, "OOMKilled", "")), Reason::OutOfMemory, Some(137), "OOMKilled"),
        // B49: the shell exits 0 though its child was killed.
        (finished("Succeeded", ended(0, "OOMKilled", "")), Reason::OutOfMemory, Some(0), "OOMKilled"),
        (of_pod("Evicted", "The node was low on resource: memory."), Reason::Evicted, None, "Evicted: The node was low on resource: memory."),
        (of_pod("Terminated", "Pod was terminated in response to imminent node shutdown."), Reason::Evicted, None, "imminent node shutdown"),
        (of_pod("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), Reason::Deadline, None, "longer than"),
        (of_pod("NodeLost", "Node n1 which was running pod is unresponsive"), Reason::NodeLost, None, "unresponsive"),
        (of_pod("OutOfcpu", "Pod was rejected: Node didn't have enough resource"), Reason::Other, None, "OutOfcpu: Pod was rejected"),
        (of_pod("UnexpectedAdmissionError", "hook"), Reason::Other, None, "UnexpectedAdmissionError: hook"),
        // Codes that kubelet and runtime made up are not the script's.
        (finished("Failed", ended(255, "Error", "")), Reason::ExitCode, Some(255), ""),
        (finished("Failed", ended(137, "ContainerStatusUnknown", "The container could not be located")), Reason::Other, None, "could not be located"),
        (finished("Failed", ended(128, "StartError", "exec: \"/bin/sh\": no such file")), Reason::ConfigError, None, "StartError: exec: \"/bin/sh\""),
        (status(json!({"phase": "Succeeded"})), Reason::Other, None, "is not told"),
        (status(json!({"phase": "Failed"})), Reason::Other, None, "is not told"),
    ] {
        let seen = see(pod.clone(), false);
        assert_eq!((seen.state, seen.reason, seen.exit_code), (State::Stopped, reason, exit_code), "{pod}");
        assert!(seen.message.contains(message) && (!message.is_empty() || seen.message.is_empty()), "{:?} for {pod}", seen.message);
        assert_eq!(seen.has_log, exit_code.is_some(), "{pod}");
        assert_eq!(seen, Observation { reason: seen.reason, ..see(pod, true) }, "what ended by itself was not ended by the request");
    }
}

#[test]
fn a_code_that_the_runtime_made_up_after_a_power_cut_is_not_the_scripts() {
    // What containerd says of a container that it finds gone when it starts again; it did run, so its log is there.
    let seen = see(finished("Failed", ended(255, "Unknown", "")), false);
    assert_eq!((seen.state, seen.reason, seen.exit_code, seen.has_log), (State::Stopped, Reason::Other, None, true));
    assert!(seen.message.contains("how it ended is not known"), "{}", seen.message);
}

#[test]
fn an_evicted_pod_keeps_its_containers_exit_code_and_the_kubelets_words() {
    let mut pod = finished("Failed", ended(143, "Error", ""));
    pod["status"]["reason"] = json!("Evicted");
    pod["status"]["message"] = json!("The node had condition: [DiskPressure].");
    let seen = see(pod, false);
    assert_eq!(
        (seen.reason, seen.exit_code, seen.message.as_str()),
        (Reason::Evicted, Some(143), "Evicted: The node had condition: [DiskPressure].")
    );
    assert_eq!(seen.finished_at, Some(at("2026-11-30T11:30:00Z")));
}

#[test]
fn a_disruption_that_kubernetes_announced_is_the_reason_where_the_container_has_none_of_its_own() {
    for (announced, reason) in [
        ("DeletionByPodGC", Reason::NodeLost),
        ("EvictionByEvictionAPI", Reason::Evicted),
        ("PreemptionByScheduler", Reason::Evicted),
        ("TerminationByKubelet", Reason::Evicted),
        ("DeletionByTaintManager", Reason::Evicted),
    ] {
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": announced, "message": "why", "lastTransitionTime": "2026-11-30T11:20:00Z"});
        let seen = see(status(json!({"phase": "Failed", "conditions": [condition]})), false);
        assert_eq!((seen.state, seen.reason, seen.message), (State::Stopped, reason, format!("{announced}: why")));
        assert_eq!(seen.finished_at, Some(at("2026-11-30T11:20:00Z")));

        let mut own = finished("Succeeded", ended(0, "Completed", ""));
        own["status"]["conditions"] = json!([condition]);
        assert_eq!(see(own, false).reason, Reason::Completed, "{announced}");

        let mut going = status(json!({"phase": "Running", "conditions": [condition]}));
        going["metadata"]["deletionTimestamp"] = json!(NOW);
        assert_eq!((see(going.clone(), false).state, see(going.clone(), false).reason), (State::Stopping, reason));
        assert_eq!(see(going, true).reason, Reason::DeletedByRequest, "{announced}");
    }
}

#[test]
fn a_deletion_time_stamp_is_stopping_whatever_the_phase() {
    for phase in [json!("Pending"), json!("Running"), json!("Succeeded"), json!("Failed"), json!("Unknown"), json!("Invented"), Value::Null] {
        for (cancel, reason) in [(false, Reason::DeletedByOther), (true, Reason::DeletedByRequest)] {
            let mut pod = status(json!({"phase": phase}));
            pod["metadata"]["deletionTimestamp"] = json!("2026-11-30T12:00:30Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            let seen = see(pod, cancel);
            assert_eq!((seen.state, seen.reason), (State::Stopping, reason), "{phase}");
            assert!(!seen.message.is_empty());
        }
    }
}

#[test]
fn a_pod_under_deletion_says_how_it_had_ended_when_its_end_came_first() {
    let deleted = |grace: i64, due: &str, phase: &str| {
        let mut pod = finished(phase, ended(3, "Error", "")); // ended at 11:30:00
        pod["metadata"]["deletionTimestamp"] = json!(due);
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        see(pod, false)
    };
    let before = deleted(30, "2026-11-30T11:31:00Z", "Failed");
    assert_eq!((before.state, before.reason, before.exit_code), (State::Stopping, Reason::ExitCode, Some(3)));
    // Asked at 11:29:50, ended at 11:30:00: the deletion ended it.
    let within = deleted(30, "2026-11-30T11:30:20Z", "Failed");
    assert_eq!((within.state, within.reason, within.exit_code), (State::Stopping, Reason::DeletedByOther, Some(3)));
    // Within what two clocks may differ: caused by it, for all that can be told.
    assert_eq!(deleted(0, "2026-11-30T11:30:04Z", "Failed").reason, Reason::DeletedByOther);
    assert_eq!(deleted(0, "2026-11-30T11:30:05Z", "Failed").reason, Reason::ExitCode);
    assert_eq!(deleted(30, "2026-11-30T11:31:00Z", "Running").reason, Reason::DeletedByOther);
}

#[test]
fn a_phase_that_is_missing_or_unknown_is_unknown() {
    for (pod, reason, words) in [
        (json!({"metadata": {}}), Reason::Other, "no phase yet"),
        (json!({"metadata": {}, "status": {}}), Reason::Other, "no phase yet"),
        (status(json!({"phase": "Unknown"})), Reason::Other, "phase is Unknown"),
        (status(json!({"phase": "Invented"})), Reason::Other, "phase is Invented"),
        (status(json!({"phase": "Unknown", "reason": "NodeLost", "message": "unresponsive"})), Reason::NodeLost, "NodeLost: unresponsive"),
    ] {
        let seen = see(pod.clone(), false);
        assert_eq!((seen.state, seen.reason, seen.exit_code), (State::Unknown, reason, None), "{pod}");
        assert!(seen.message.contains(words), "{}", seen.message);
    }
}

#[test]
fn another_containers_status_is_not_the_scripts_but_its_memory_counts() {
    let other = |state: Value| {
        let mut other = container(state);
        other["name"] = json!("injected-sidecar");
        other
    };
    let own = container(ended(0, "Completed", ""));
    let pod = |sidecar: Value| status(json!({"phase": "Succeeded", "containerStatuses": [other(sidecar), own]}));
    assert_eq!(see(pod(ended(9, "Error", "")), false).exit_code, Some(0));
    assert_eq!(see(pod(ended(9, "Error", "")), false).reason, Reason::Completed);
    assert_eq!(see(pod(ended(137, "OOMKilled", "")), false).reason, Reason::OutOfMemory);
}

#[test]
fn times_that_were_never_set_are_none_and_a_long_message_is_cut() {
    let pod = finished(
        "Failed",
        json!({"terminated": {"exitCode": 1, "startedAt": "1970-01-01T00:00:00Z", "finishedAt": null, "message": "é".repeat(5_000)}}),
    );
    let seen = see(pod, false);
    assert_eq!((seen.started_at, seen.finished_at), (None, None));
    assert!(seen.message.len() < 2_100 && seen.message.ends_with('…'), "{} bytes", seen.message.len());
}
