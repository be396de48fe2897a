//! What people set up: clusters, namespaces, providers and modes, with each mistake that can be made.

use nymph::wire::{CheckItem, ToControlPlane, ToDaemon};
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, Incoming};
use crate::plane::Plane;

const PROVIDERS: &str = "/v1/namespaces/default/providers";

#[tokio::test]
async fn a_provider_is_checked_when_it_is_made() {
    covers!("S62", "S120", "A20", "S87");
    let plane = Plane::start().await;
    plane.enroll("c1").await;
    let good = json!({"dispatch": "daemon", "cluster": "c1"});
    for launcher in ["kube", "KUBE", " Kube", "k8s", "K8S", "local", ""] {
        let answer = plane.post(PROVIDERS, json!({"name": "p", "launcher": launcher, "kwargs": good})).await.expect_problem(400, "launcher_unknown");
        assert!(answer.body["cure"].as_str().expect("a cure").contains("Kube"));
    }
    plane.post(PROVIDERS, json!({"name": "p", "kwargs": good})).await.expect_problem(400, "launcher_unknown");
    plane.post(PROVIDERS, json!({"name": "p", "launcher": "SLURM", "kwargs": good})).await.expect_problem(400, "launcher_not_built");
    for (kwargs, code, field) in [
        (json!({}), "dispatch_not_built", "dispatch"),
        (json!({"dispatch": "direct"}), "dispatch_not_built", "dispatch"),
        (json!({"dispatch": "carrier-pigeon"}), "invalid_field", "dispatch"),
        (json!({"dispatch": "daemon"}), "invalid_field", "cluster"),
        (json!({"dispatch": "daemon", "cluster": 7}), "invalid_field", "cluster"),
        (json!({"dispatch": "daemon", "cluster": "absent"}), "cluster_unknown", "cluster"),
        (json!({"dispatch": "daemon", "cluster": "c1", "image": 5}), "invalid_field", "image"),
        (json!({"dispatch": "daemon", "cluster": "c1", "kubeconfig": "~/.kube/config"}), "field_not_built", "kubeconfig"),
        (json!({"dispatch": "daemon", "cluster": "c1", "imgae": "x"}), "unknown_field", "imgae"),
    ] {
        let answer = plane.post(PROVIDERS, json!({"name": "p", "launcher": "Kube", "kwargs": kwargs})).await.expect_problem(400, code);
        assert_eq!(answer.body["field"], field);
    }
    for name in ["", " p", "-p", "p/q", "日本", &"p".repeat(101)] {
        plane.post(PROVIDERS, json!({"name": name, "launcher": "Kube", "kwargs": good})).await.expect_problem(400, "invalid_field");
    }
    assert_eq!(plane.get(PROVIDERS).await.expect(200).body, json!([]), "no mistake left anything");
}

#[tokio::test]
async fn a_provider_is_made_once_replaced_by_put_and_kept_as_sent() {
    covers!("A28", "A24");
    let plane = Plane::start().await;
    plane.enroll("c1").await;
    let kwargs = json!({"dispatch": "daemon", "cluster": "c1", "image": "a:1", "env": {"N": 1}, "name": "ignored"});
    let body = json!({"name": "My Provider", "launcher": "Kube", "kwargs": kwargs});
    plane.post(PROVIDERS, body.clone()).await.expect(201);
    plane.post(PROVIDERS, body).await.expect_problem(409, "already_exists");
    let twin = json!({"name": "my-provider", "launcher": "Kube", "kwargs": {"dispatch": "daemon", "cluster": "c1"}});
    let answer = plane.post(PROVIDERS, twin).await.expect_problem(409, "slug_taken");
    assert!(answer.body["detail"].as_str().expect("a detail").contains("My Provider"));
    let path = format!("{PROVIDERS}/My%20Provider");
    let shown = plane.get(&path).await.expect(200).body;
    assert_eq!((shown["name"].as_str(), &shown["kwargs"]), (Some("My Provider"), &kwargs));
    let replaced = json!({"launcher": "Kube", "kwargs": {"dispatch": "daemon", "cluster": "c1", "image": "b:2"}});
    plane.put(&path, replaced.clone()).await.expect(200);
    assert_eq!(plane.get(&path).await.body["kwargs"]["image"], "b:2");
    plane.put(&format!("{PROVIDERS}/absent"), replaced.clone()).await.expect_problem(404, "provider_not_found");
    plane.put(&path, json!({"name": "other", "launcher": "Kube", "kwargs": replaced["kwargs"]})).await.expect_problem(400, "invalid_field");
    plane.delete(&path).await.expect(204);
    plane.delete(&path).await.expect_problem(404, "provider_not_found");
    plane.get(&path).await.expect_problem(404, "provider_not_found");
}

#[tokio::test]
async fn a_provider_with_open_instances_is_not_removed() {
    let plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let _daemon = Daemon::connect(&plane, &token, "node1").await;
    let id = plane.launch(json!({"script": ""})).await.expect("it ends").expect(202).body["instanceId"].as_str().expect("an id").to_owned();
    plane.delete(&format!("{PROVIDERS}/demo")).await.expect_problem(409, "provider_in_use");
    plane.delete(&format!("{PROVIDERS}/demo/instances/{id}")).await.expect(204);
    plane.delete(&format!("{PROVIDERS}/demo")).await.expect(204);
    assert_eq!(plane.get(&format!("/v1/namespaces/default/instances/{id}")).await.expect(200).body["providerName"], "demo", "history stays");
}

#[tokio::test]
async fn a_mode_belongs_to_a_provider_that_exists() {
    covers!("S108", "S109");
    let plane = Plane::start().await;
    plane.with_provider().await;
    let modes = "/v1/namespaces/default/modes";
    plane.post(modes, json!({"name": "m", "fields": {}})).await.expect_problem(400, "invalid_field");
    plane.post(modes, json!({"name": "m", "provider": "absent"})).await.expect_problem(400, "invalid_field");
    plane.post(modes, json!({"name": "m", "provider": "demo", "fields": {"cluster": "c1"}})).await.expect_problem(400, "unknown_field");
    plane.post(modes, json!({"name": "m", "provider": "demo", "fields": {"resources": {"limits": {"cpu": 1}}}})).await.expect(201);
    plane.post(modes, json!({"name": "m", "provider": "demo"})).await.expect_problem(409, "already_exists");
    plane.put(&format!("{modes}/m"), json!({"provider": "demo", "fields": {"workdir": "none"}})).await.expect(200);
    assert_eq!(plane.get(&format!("{modes}/m")).await.expect(200).body, json!({"name": "m", "provider": "demo", "fields": {"workdir": "none"}}));
    assert_eq!(plane.get(modes).await.expect(200).body.as_array().map(Vec::len), Some(1));
    plane.delete(&format!("{modes}/m")).await.expect(204);
    plane.delete(&format!("{modes}/m")).await.expect_problem(404, "mode_not_found");
}

#[tokio::test]
async fn names_that_would_share_labels_are_refused() {
    covers!("S89", "A24");
    let plane = Plane::start().await;
    plane.post("/v1/namespaces", json!({"name": "Team A"})).await.expect(201);
    plane.post("/v1/namespaces", json!({"name": "Team A"})).await.expect_problem(409, "already_exists");
    plane.post("/v1/namespaces", json!({"name": "team_a"})).await.expect_problem(409, "slug_taken");
    plane.post("/v1/namespaces", json!({"name": "default"})).await.expect_problem(409, "already_exists");
    plane.get("/v1/namespaces/Team%20A/providers").await.expect(200);
    plane.post("/v1/clusters", json!({"name": "c1"})).await.expect(201);
    plane.post("/v1/clusters", json!({"name": "c1"})).await.expect_problem(409, "already_exists");
}

#[tokio::test]
async fn a_test_asks_every_daemon_and_fails_when_none_is_there() {
    covers!("S110", "A29");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let test = format!("{PROVIDERS}/demo/test");
    assert_eq!(plane.post(&test, json!({})).await.expect(200).body, json!({"ok": false, "daemons": []}));
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    for ok in [true, false] {
        let asked = async {
            loop {
                let Incoming::Message(ToDaemon::Check { request }) = daemon.next().await else { continue };
                let items = vec![CheckItem { name: "api".into(), ok, message: "the API server answers".into() }];
                return daemon.send(ToControlPlane::CheckResult { request, items }).await;
            }
        };
        let (answer, ()) = tokio::join!(plane.post(&test, json!({})), asked);
        let items = json!([{"name": "api", "ok": ok, "message": "the API server answers"}]);
        assert_eq!(
            answer.expect(200).body,
            json!({"ok": ok, "daemons": [{"node": "node1", "role": "node", "connected": true, "ok": ok, "items": items}]})
        );
    }
    drop(daemon);
    let away = async {
        loop {
            let body = plane.post(&test, json!({})).await.expect(200).body;
            if body["daemons"][0]["connected"] == false {
                return body;
            }
        }
    };
    assert_eq!(away.await["ok"], false);
}
