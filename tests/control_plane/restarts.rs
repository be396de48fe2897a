//! kill -9 of the control plane at any point: everything comes from the store.

use nymph::types::{Reason, State};
use nymph::wire::OpenPhase;
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, completed, created, launch, running, seen};
use crate::launched::launched;
use crate::plane::Plane;

#[tokio::test]
async fn a_launch_that_was_answered_is_offered_after_a_kill() {
    covers!("S132");
    let mut plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let daemon = Daemon::connect(&plane, &token, "node1").await;
    let body = plane.launch_with_key(json!({"script": "print(1)"}), Some("k")).await.expect("it ends").expect(202).body;
    plane.kill();
    drop(daemon);
    plane.run();
    let again = plane.launch_with_key(json!({"script": "print(1)"}), Some("k")).await.expect("it ends").expect(202).body;
    assert_eq!(again["instanceId"], body["instanceId"], "the retry finds the same launch");
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    assert!(daemon.welcome.open.is_empty(), "a queued one is offered, not listed");
    let (envelope, dispatch) = daemon.dispatch().await;
    assert_eq!(body["instanceId"], envelope.instance.as_str());
    assert_eq!(launch(&dispatch).script().expect("a script"), "print(1)");
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, created()).await;
    assert_eq!(plane.get("/v1/namespaces/default/instances").await.body.as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn what_was_acknowledged_to_a_daemon_is_on_disk_when_the_server_is_killed_at_once() {
    let mut plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    plane.launch(json!({"script": ""})).await.expect("it ends").expect(202);
    let (envelope, _) = daemon.dispatch().await;
    daemon.accept(&envelope).await;
    plane.kill(); // the acknowledgement had just arrived
    plane.run();
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let [item] = daemon.welcome.open.as_slice() else { panic!("one open item: {:?}", daemon.welcome.open) };
    assert_eq!((&item.instance, item.phase, daemon.welcome.epoch), (&envelope.instance, OpenPhase::Accepted, 2));
    daemon.report(&envelope, 1, running()).await;
    plane.kill();
    plane.run();
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "running", "not unknown: the daemon had no time to be back");
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let [item] = daemon.welcome.open.as_slice() else { panic!("one open item: {:?}", daemon.welcome.open) };
    assert_eq!((item.phase, item.seq, item.uid.as_deref()), (OpenPhase::Created, 1, Some("pod-uid")));
    daemon.report(&envelope, 2, completed()).await;
    plane.kill();
    plane.run();
    let row = plane.instance(envelope.instance.as_str()).await;
    assert_eq!((row["state"].as_str(), row["exitCode"].as_i64()), (Some("stopped"), Some(0)));
    let daemon = Daemon::connect(&plane, &token, "node1").await;
    assert!(daemon.welcome.open.is_empty());
}

#[tokio::test]
async fn a_wish_to_delete_survives_a_kill() {
    let mut plane = Plane::start().await;
    let (token, _daemon, envelope) = launched(&plane).await;
    let path = format!("/v1/namespaces/default/providers/demo/instances/{}", envelope.instance);
    plane.delete(&path).await.expect(204);
    plane.kill();
    plane.run();
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "stopping");
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    assert!(daemon.welcome.open[0].cancel);
    assert_eq!(daemon.cancelled().await, envelope.instance);
    daemon.report(&envelope, 2, seen(State::Stopped, Reason::DeletedByRequest)).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["reason"], "deleted_by_request");
}

#[tokio::test]
async fn what_people_set_up_survives_a_kill() {
    covers!("S132");
    let mut plane = Plane::start().await;
    plane.with_provider().await;
    plane.post("/v1/namespaces", json!({"name": "team a"})).await.expect(201);
    plane.post("/v1/namespaces/default/modes", json!({"name": "m", "provider": "demo", "fields": {}})).await.expect(201);
    let read = async |plane: &Plane| {
        let mut all = Vec::new();
        for path in ["/v1/clusters", "/v1/namespaces", "/v1/namespaces/default/providers", "/v1/namespaces/default/modes", "/v1/tokens"] {
            all.push(plane.get(path).await.expect(200).body);
        }
        all
    };
    let before = read(&plane).await;
    plane.kill();
    plane.run();
    assert_eq!(read(&plane).await, before);
}
