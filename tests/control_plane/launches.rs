//! The launch contract: validate, write, offer, wait, answer.

use std::collections::BTreeSet;

use nymph::types::{Reason, State};
use nymph::wire::{RejectionCode, Taint};
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, created, facts, launch, rejection, running, seen};
use crate::plane::Plane;

#[tokio::test]
async fn a_launch_is_answered_with_202_once_its_object_was_reported() {
    covers!("S93", "S96", "S97", "S88", "A25", "S105");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let answer = plane.launch(json!({"script": "print('hi')", "args": ["a b"], "env": {"A": "1"}, "tags": {"Team": "Blue"}}));
    let (envelope, dispatch) = daemon.dispatch().await;
    assert!(!envelope.accepted_before);
    assert_eq!((dispatch.caller.namespace.as_str(), dispatch.caller.provider.as_str(), dispatch.caller.user.as_str()), ("default", "demo", "tester"));
    let work = launch(&dispatch);
    assert_eq!(work.script().expect("a script"), "print('hi')");
    assert_eq!((work.image.as_str(), work.namespace.as_deref()), ("localhost/python:1", None));
    assert_eq!((work.args.as_slice(), work.labels["team"].as_str()), (["a b".to_owned()].as_slice(), "Blue"));
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, created()).await;
    let answer = answer.await.expect("it ends").expect(202);
    let body = &answer.body;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!((body["instanceId"].as_str(), body["state"].as_str()), (Some(envelope.instance.as_str()), Some("starting")));
    assert_eq!(
        (body["providerName"].as_str(), body["node"].as_str(), body["kubernetesNamespace"].as_str()),
        (Some("demo"), Some("node1"), Some("nymph-runs"))
    );
    let launched_at = body["launchedAt"].as_str().expect("a time");
    assert!(launched_at.parse::<jiff::Timestamp>().is_ok() && launched_at.len() == "2026-11-30T00:00:00.000Z".len(), "{launched_at}");
}

#[tokio::test]
async fn a_rejection_is_answered_with_its_rule_and_its_row_ends() {
    covers!("S98", "S99");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    for (code, status, problem) in [
        (RejectionCode::PolicyDenied, 403, "policy_denied"),
        (RejectionCode::Invalid, 422, "invalid"),
        (RejectionCode::ClusterRefused, 422, "cluster_refused"),
        (RejectionCode::Unavailable, 503, "daemon_unavailable"),
    ] {
        let answer = plane.launch(json!({"script": ""}));
        let (envelope, _) = daemon.dispatch().await;
        daemon.reject(&envelope, rejection(code, "images")).await;
        let answer = answer.await.expect("it ends").expect_problem(status, problem);
        assert_eq!(answer.body["rule"], "images");
        assert_eq!(answer.body["detail"], "images says no; ask the cluster's owner");
        let row = plane.instance(envelope.instance.as_str()).await;
        assert_eq!((row["state"].as_str(), row["reason"].as_str(), row["exitCode"].as_i64()), (Some("stopped"), Some("rejected"), None));
    }
}

#[tokio::test]
async fn a_rejection_after_acceptance_ends_the_launch_too() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let answer = plane.launch(json!({"script": ""}));
    let (envelope, _) = daemon.dispatch().await;
    daemon.accept(&envelope).await;
    daemon.reject(&envelope, rejection(RejectionCode::ClusterRefused, "cluster")).await;
    answer.await.expect("it ends").expect_problem(422, "cluster_refused");
}

#[tokio::test]
async fn without_a_live_daemon_a_launch_is_refused_at_once_and_leaves_no_row() {
    let plane = Plane::start().await;
    plane.with_provider().await;
    let answer = plane.launch(json!({"script": ""})).await.expect("it ends").expect_problem(503, "no_live_daemon");
    assert!(answer.body["detail"].as_str().expect("a detail").contains("\"c1\""), "{}", answer.body);
    assert!(answer.body["cure"].is_string());
    assert_eq!(plane.get("/v1/namespaces/default/instances").await.expect(200).body, json!([]));
}

#[tokio::test]
async fn when_the_daemon_says_nothing_the_answer_is_starting_and_the_launch_goes_on() {
    let plane = Plane::start_with(&["--launch-wait", "50ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let body = plane.launch(json!({"script": ""})).await.expect("it ends").expect(202).body;
    assert_eq!((body["state"].as_str(), body["reason"].as_str(), body["kubernetesNamespace"].as_str()), (Some("starting"), Some("queued"), None));
    let envelope = daemon.create().await;
    assert_eq!(body["instanceId"], envelope.instance.as_str());
    let row = plane.instance(envelope.instance.as_str()).await;
    assert_eq!((row["reason"].as_str(), row["launchedAt"].as_str()), (Some("scheduling"), body["launchedAt"].as_str()), "what was answered stays");
}

#[tokio::test]
async fn a_taken_name_gives_the_next_attempt_while_the_caller_waits() {
    covers!("S88");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let answer = plane.launch(json!({"script": ""}));
    let (first, _) = daemon.dispatch().await;
    daemon.reject(&first, rejection(RejectionCode::NameTaken, "name")).await;
    let (second, _) = daemon.dispatch().await;
    assert_eq!((&second.dispatch_id, second.attempt.0), (&first.dispatch_id, first.attempt.0 + 1));
    assert_ne!(second.instance, first.instance);
    daemon.accept(&second).await;
    daemon.report(&second, 1, created()).await;
    assert_eq!(answer.await.expect("it ends").expect(202).body["instanceId"], second.instance.as_str());
    plane.get(&format!("/v1/namespaces/default/instances/{}", first.instance)).await.expect_problem(404, "instance_not_found");
}

#[tokio::test]
async fn a_taken_name_ends_the_launch_when_the_caller_was_answered() {
    let plane = Plane::start_with(&["--launch-wait", "50ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let id = plane.launch(json!({"script": ""})).await.expect("it ends").expect(202).body["instanceId"].clone();
    let (envelope, _) = daemon.dispatch().await;
    daemon.reject(&envelope, rejection(RejectionCode::NameTaken, "name")).await;
    let row = plane.until(id.as_str().expect("an id"), |row| row["state"] == "stopped").await;
    assert_eq!((row["instanceId"].as_str(), row["reason"].as_str()), (Some(envelope.instance.as_str()), Some("rejected")));
}

#[tokio::test]
async fn names_that_are_taken_again_and_again_end_with_409() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let answer = plane.launch(json!({"script": ""}));
    for attempt in 1..=4 {
        let (envelope, _) = daemon.dispatch().await;
        assert_eq!(envelope.attempt.0, attempt);
        daemon.reject(&envelope, rejection(RejectionCode::NameTaken, "name")).await;
    }
    answer.await.expect("it ends").expect_problem(409, "name_taken");
}

#[tokio::test]
async fn a_key_makes_a_retry_safe() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let first = plane.launch_with_key(json!({"script": "1"}), Some("key-1"));
    let envelope = daemon.create().await;
    let first = first.await.expect("it ends").expect(202).body;
    let again = plane.launch_with_key(json!({"script": "1"}), Some("key-1")).await.expect("it ends").expect(202).body;
    assert_eq!((&first["instanceId"], &first["launchedAt"]), (&again["instanceId"], &again["launchedAt"]));
    plane.launch_with_key(json!({"script": "2"}), Some("key-1")).await.expect("it ends").expect_problem(409, "idempotency_key_reused");
    plane.launch_with_key(json!({"script": "2"}), Some("")).await.expect("it ends").expect_problem(400, "invalid_field");
    let other = plane.launch_with_key(json!({"script": "1"}), Some("key-2"));
    let (second, _) = daemon.dispatch().await;
    assert_ne!(second.dispatch_id, envelope.dispatch_id, "another key is another launch");
    daemon.reject(&second, rejection(RejectionCode::PolicyDenied, "images")).await;
    other.await.expect("it ends").expect_problem(403, "policy_denied");
    plane.launch_with_key(json!({"script": "1"}), Some("key-2")).await.expect("it ends").expect_problem(403, "policy_denied");
    drop(daemon);
    let away = plane.launch_with_key(json!({"script": "1"}), Some("key-1")).await.expect("it ends").expect(202).body;
    assert_eq!(away["instanceId"], first["instanceId"], "a retry needs no live daemon");
    assert_eq!(plane.get("/v1/namespaces/default/instances").await.body.as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_retry_is_answered_from_what_is_stored_whatever_has_changed_since() {
    let mut plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    plane.post("/v1/namespaces/default/modes", json!({"name": "m", "provider": "demo", "fields": {}})).await.expect(201);
    let body = json!({"script": "1", "mode": "m"});
    let first = plane.launch_with_key(body.clone(), Some("key-1"));
    daemon.create().await;
    let first = first.await.expect("it ends").expect(202).body;
    plane.delete("/v1/namespaces/default/modes/m").await.expect(204);
    let again = plane.launch_with_key(body.clone(), Some("key-1")).await.expect("it ends").expect(202).body;
    assert_eq!(again["instanceId"], first["instanceId"], "its mode is gone");
    assert!(plane.terminate(), "{}", plane.log());
    plane.run_with(&["--min-free-bytes", "9999999999999"]);
    let again = plane.launch_with_key(body.clone(), Some("key-1")).await.expect("it ends").expect(202).body;
    assert_eq!(again["instanceId"], first["instanceId"], "the disk is full");
    plane.launch_with_key(json!({"script": "2"}), Some("key-2")).await.expect("it ends").expect_problem(507, "store_full");
}

#[tokio::test]
async fn a_caller_that_hangs_up_undoes_nothing() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let caller = plane.launch(json!({"script": ""}));
    let (envelope, _) = daemon.dispatch().await;
    caller.abort();
    assert!(caller.await.expect_err("it was aborted").is_cancelled());
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, running()).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "running");
}

#[tokio::test]
async fn the_node_with_the_fewest_open_instances_is_chosen_among_those_that_can() {
    let plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let _one = Daemon::connect(&plane, &token, "node1").await;
    let _two = Daemon::connect(&plane, &token, "node2").await;
    let mut cordoned = facts("node3");
    cordoned.unschedulable = true;
    let _three = Daemon::connect_with(&plane, &token, cordoned).await;
    let mut chosen = Vec::new();
    for _ in 0..4 {
        let body = plane.launch(json!({"script": ""})).await.expect("it ends").expect(202).body;
        chosen.push(body["node"].as_str().expect("a node").to_owned());
    }
    assert_eq!(chosen, ["node1", "node2", "node1", "node2"]);
    let named = plane.launch(json!({"script": "", "node": "node3"})).await.expect("it ends").expect(202).body;
    assert_eq!(named["node"], "node3", "a named node is taken at the caller's word");
}

#[tokio::test]
async fn a_daemon_that_cannot_take_work_passes_it_on_while_the_caller_waits() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut one = Daemon::connect(&plane, &token, "node1").await;
    let mut two = Daemon::connect(&plane, &token, "node2").await;
    let answer = plane.launch(json!({"script": ""}));
    let (first, _) = one.dispatch().await;
    one.reject(&first, rejection(RejectionCode::Unavailable, "workdir")).await;
    let envelope = two.create().await;
    assert_eq!((&envelope.dispatch_id, envelope.attempt.0), (&first.dispatch_id, 2));
    let body = answer.await.expect("it ends").expect(202).body;
    assert_eq!((body["node"].as_str(), body["instanceId"].as_str()), (Some("node2"), Some(envelope.instance.as_str())));
    let named = plane.launch(json!({"script": "", "node": "node1"}));
    let (second, _) = one.dispatch().await;
    one.reject(&second, rejection(RejectionCode::Unavailable, "workdir")).await;
    named.await.expect("it ends").expect_problem(503, "daemon_unavailable");
}

#[tokio::test]
async fn a_launch_that_no_node_can_take_says_why_for_each() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut tainted = facts("node1");
    tainted.taints = vec![Taint { key: "gpu".into(), value: String::new(), effect: "NoSchedule".into() }];
    let mut daemon = Daemon::connect_with(&plane, &token, tainted).await;
    let answer = plane.launch(json!({"script": ""})).await.expect("it ends").expect_problem(503, "no_eligible_node");
    assert!(answer.body["detail"].as_str().expect("a detail").contains("node1: it has the taint gpu:NoSchedule"), "{}", answer.body);
    daemon.send(nymph::wire::ToControlPlane::NodeFacts(facts("node1"))).await; // the taint is gone
    let answer = async {
        loop {
            let answer = plane.launch(json!({"script": "", "node": null}));
            if let Ok((envelope, _)) = tokio::time::timeout(std::time::Duration::from_millis(200), daemon.dispatch()).await {
                daemon.reject(&envelope, rejection(RejectionCode::Invalid, "x")).await;
                return answer.await.expect("it ends");
            }
        }
    };
    answer.await.expect_problem(422, "invalid");
}

#[tokio::test]
async fn a_named_node_must_have_a_daemon_that_is_connected() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let _one = Daemon::connect(&plane, &token, "node1").await;
    drop(Daemon::connect(&plane, &token, "node2").await);
    plane.launch(json!({"script": "", "node": "node9"})).await.expect("it ends").expect_problem(404, "node_not_found");
    let gone = async {
        loop {
            let daemons = plane.get("/v1/daemons").await.expect(200).body;
            if daemons[1]["connected"] == false {
                return;
            }
        }
    };
    tokio::time::timeout(crate::plane::STUCK, gone).await.expect("its absence is seen");
    let answer = plane.launch(json!({"script": "", "node": "node2"})).await.expect("it ends").expect_problem(503, "node_not_connected");
    assert_eq!(answer.body["field"], "node");
}

#[tokio::test]
async fn fifty_launches_at_once_have_fifty_names() {
    covers!("S129");
    let plane = Plane::start_with(&["--launch-wait", "1ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let launches: Vec<_> = (0..50).map(|_| plane.launch(json!({"script": ""}))).collect();
    let mut answered = BTreeSet::new();
    for launch in launches {
        answered.insert(launch.await.expect("it ends").expect(202).body["instanceId"].as_str().expect("an id").to_owned());
    }
    let mut offered = BTreeSet::new();
    while offered.len() < 50 {
        offered.insert(daemon.dispatch().await.0.instance.to_string());
    }
    assert_eq!(answered, offered);
    let listed = plane.get("/v1/namespaces/default/providers/demo/instances").await.expect(200).body;
    assert_eq!(listed.as_array().map(Vec::len), Some(50));
}

#[tokio::test]
async fn a_mode_gives_defaults_to_its_own_provider_only() {
    covers!("S77", "A19", "S109");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let kwargs = json!({"dispatch": "daemon", "cluster": "c1"});
    plane.post("/v1/namespaces/default/providers", json!({"name": "other", "launcher": "Kube", "kwargs": kwargs})).await.expect(201);
    let mode = json!({"name": "m", "provider": "demo", "fields": {"image": "from/mode:1", "env": {"A": 1.0}}});
    plane.post("/v1/namespaces/default/modes", mode).await.expect(201);
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let answer = plane.launch(json!({"script": "", "mode": "m", "namespace": "elsewhere"}));
    let (envelope, dispatch) = daemon.dispatch().await;
    let work = launch(&dispatch);
    assert_eq!((work.image.as_str(), work.env[0].value.as_str(), work.namespace.as_deref()), ("from/mode:1", "1", Some("elsewhere")));
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, seen(State::Stopped, Reason::Lost)).await;
    assert_eq!(answer.await.expect("it ends").expect(202).body["state"], "stopped");
    plane.launch(json!({"script": "", "mode": "absent"})).await.expect("it ends").expect_problem(404, "mode_not_found");
    let wrong = plane.post("/v1/namespaces/default/providers/other/launch", json!({"script": "", "mode": "m"})).await;
    wrong.expect_problem(400, "mode_mismatch");
}

#[tokio::test]
async fn each_mistake_in_a_launch_is_told_with_its_field_and_stores_nothing() {
    covers!("S69", "A15", "S70", "S71", "A18", "A20", "S90", "S120", "S121");
    let plane = Plane::start().await;
    let token = plane.enroll("c1").await;
    let kwargs = json!({"dispatch": "daemon", "cluster": "c1"});
    plane.post("/v1/namespaces/default/providers", json!({"name": "demo", "launcher": "Kube", "kwargs": kwargs})).await.expect(201);
    let _daemon = Daemon::connect(&plane, &token, "node1").await;
    for (body, code, field) in [
        (json!({"script": "x"}), "missing_image", "image"),
        (json!({"script": "x", "image": "  "}), "missing_image", "image"),
        (json!({"image": "a:1"}), "missing_script", "script"),
        (json!({"image": "a:1", "script": "a\u{0}"}), "invalid_field", "script"),
        (json!({"image": "a:1", "script": "x", "env": {"A": {"$secret": "s"}}}), "invalid_field", "env.A"),
        (json!({"image": "a:1", "script": "x", "resources": []}), "invalid_field", "resources"),
        (json!({"image": "a:1", "script": "x", "tags": {"a": {}}}), "invalid_field", "tags.a"),
        (json!({"image": "a:1", "script": "x", "tolerations": []}), "field_not_built", "tolerations"),
        (json!({"image": "a:1", "script": "x", "hostNetwork": true}), "unknown_field", "hostNetwork"),
        (json!({"image": "a:1", "script": "x", "mode": 1}), "invalid_field", "mode"),
    ] {
        let answer = plane.launch(body).await.expect("it ends").expect_problem(400, code);
        assert_eq!(answer.body["field"], field);
    }
    assert_eq!(plane.get("/v1/namespaces/default/instances").await.expect(200).body, json!([]));
}
