//! Deleting: the wish is durable, and what is not ours stays.

use nymph::types::{Reason, State};
use nymph::wire::{ToControlPlane, ToDaemon};
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, Incoming, seen};
use crate::launched::{launch_created, launched};
use crate::plane::Plane;

fn path(id: &str) -> String {
    format!("/v1/namespaces/default/providers/demo/instances/{id}")
}

#[tokio::test]
async fn a_deletion_shows_stopping_until_the_daemon_confirms_it() {
    covers!("S95");
    let plane = Plane::start().await;
    let (_, mut daemon, envelope) = launched(&plane).await;
    let id = envelope.instance.as_str();
    plane.delete(&path(id)).await.expect(204);
    assert_eq!(daemon.cancelled().await, envelope.instance);
    let row = plane.instance(id).await;
    assert_eq!((row["state"].as_str(), row["reason"].as_str()), (Some("stopping"), Some("deleted_by_request")));
    plane.delete(&path(id)).await.expect(204);
    daemon.report(&envelope, 2, seen(State::Stopped, Reason::DeletedByRequest)).await;
    let row = plane.instance(id).await;
    assert_eq!((row["state"].as_str(), row["exitCode"].as_i64()), (Some("stopped"), None));
    plane.delete(&path(id)).await.expect(204);
}

#[tokio::test]
async fn a_wish_of_a_time_when_the_daemon_was_away_is_told_when_it_is_back() {
    let plane = Plane::start().await;
    let (token, daemon, envelope) = launched(&plane).await;
    drop(daemon);
    plane.delete(&path(envelope.instance.as_str())).await.expect(204);
    let daemon = Daemon::connect(&plane, &token, "node1").await;
    let [item] = daemon.welcome.open.as_slice() else { panic!("one open item: {:?}", daemon.welcome.open) };
    assert_eq!((&item.instance, item.cancel, item.uid.as_deref(), item.seq), (&envelope.instance, true, Some("pod-uid"), 1));
}

#[tokio::test]
async fn what_no_daemon_had_taken_ends_at_once_and_is_never_offered() {
    let plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let id = plane.launch(json!({"script": ""})).await.expect("it ends").expect(202).body["instanceId"].as_str().expect("an id").to_owned();
    let (envelope, _) = daemon.dispatch().await;
    plane.delete(&path(&id)).await.expect(204);
    let row = plane.instance(&id).await;
    assert_eq!((row["state"].as_str(), row["reason"].as_str()), (Some("stopped"), Some("deleted_by_request")));
    assert_eq!(daemon.cancelled().await, envelope.instance, "the daemon may hold it already");
    daemon.say_accepted(&envelope).await; // it crossed the deletion
    assert_eq!(daemon.cancelled().await, envelope.instance, "it is not acknowledged, so nothing is created");
    drop(daemon);
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    assert!(daemon.welcome.open.is_empty());
    let next = plane.launch(json!({"script": ""}));
    assert_ne!(daemon.dispatch().await.0.dispatch_id, envelope.dispatch_id);
    next.await.expect("it ends").expect(202);
}

#[tokio::test]
async fn an_id_that_the_store_does_not_know_is_asked_of_the_daemons() {
    covers!("S95", "A27", "S92");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let id = "lakeshore-00c0ffee";
    plane.delete(&path(id)).await.expect_problem(503, "no_live_daemon");
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    for (found, foreign, status) in [(false, true, 404), (false, false, 204), (true, false, 204)] {
        let answer = plane.send(plane.request(reqwest::Method::DELETE, &path(id)));
        let asked = async {
            loop {
                let Incoming::Message(ToDaemon::Lookup { request, instance, labels, delete }) = daemon.next().await else { continue };
                assert_eq!((instance.as_str(), delete), (id, true));
                let expected = [("lakeshore", "true"), ("lakeshore.namespace", "default"), ("lakeshore.provider", "demo")];
                assert_eq!(labels, expected.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
                return daemon.send(ToControlPlane::LookupResult { request, found, foreign }).await;
            }
        };
        let (answer, ()) = tokio::join!(answer, asked);
        answer.expect(status);
    }
}

#[tokio::test]
async fn a_daemon_that_does_not_answer_is_no_proof_that_nothing_is_there() {
    let plane = Plane::start_with(&["--launch-wait", "50ms"]).await;
    let token = plane.with_provider().await;
    let _daemon = Daemon::connect(&plane, &token, "node1").await;
    plane.delete(&path("lakeshore-00c0ffee")).await.expect_problem(504, "daemon_silent");
}

#[tokio::test]
async fn what_is_malformed_or_of_another_provider_is_not_found() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let kwargs = json!({"dispatch": "daemon", "cluster": "c1", "image": "a:1"});
    plane.post("/v1/namespaces/default/providers", json!({"name": "other", "launcher": "Kube", "kwargs": kwargs})).await.expect(201);
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = launch_created(&plane, &mut daemon).await;
    for bad in ["x", "lakeshore-0123456", "lakeshore-0123456G", "..%2f..%2fetc", "%00", "lakeshore-01234567%20"] {
        plane.delete(&path(bad)).await.expect_problem(404, "instance_not_found");
    }
    let elsewhere = format!("/v1/namespaces/default/providers/other/instances/{}", envelope.instance);
    plane.delete(&elsewhere).await.expect_problem(404, "instance_not_found");
    plane.get(&elsewhere).await.expect_problem(404, "instance_not_found");
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "starting", "it was not touched");
}
