//! Requests as such: methods, bodies, paths, waiting.

use reqwest::Method;
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, completed, running};
use crate::launched::launched;
use crate::plane::Plane;

#[tokio::test]
async fn a_wrong_method_names_the_right_ones() {
    covers!("S93");
    let plane = Plane::start().await;
    for (method, path, allow) in [
        (Method::GET, "/v1/namespaces/default/providers/p/launch", "POST"),
        (Method::PATCH, "/v1/namespaces/default/providers/p", "DELETE,GET,HEAD,PUT"),
        (Method::DELETE, "/v1/clusters", "GET,HEAD,POST"),
        (Method::POST, "/healthz", "GET,HEAD"),
    ] {
        let answer = plane.send(plane.request(method, path)).await.expect_problem(405, "method_not_allowed");
        let mut allowed: Vec<_> = answer.headers["allow"].to_str().expect("text").split(',').collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow);
    }
    plane.get("/v1/absent").await.expect_problem(404, "route_not_found");
    plane.get("/").await.expect_problem(404, "route_not_found");
}

#[tokio::test]
async fn a_body_must_be_json_of_the_right_shape_and_size() {
    covers!("S93");
    let plane = Plane::start().await;
    plane.with_provider().await;
    let launch = "/v1/namespaces/default/providers/demo/launch";
    let post = |path: &str, kind: &str, body: String| plane.request(Method::POST, path).header("content-type", kind).body(body);
    for (kind, body) in [
        ("text/plain", "{}"),
        ("application/x-www-form-urlencoded", "script=x"),
        ("application/json", ""),
        ("application/json", "{"),
        ("application/json", "[]"),
        ("application/json", "\"x\""),
        ("application/json", r#"{"script": "\ud800"}"#),
    ] {
        plane.send(post(launch, kind, body.into())).await.expect_problem(400, "invalid_json");
    }
    let secret = plane
        .send(post("/v1/tokens", "application/json", r#"{"name": {"canary": "canary-secret"}}"#.into()))
        .await
        .expect_problem(400, "invalid_json");
    assert!(!secret.body.to_string().contains("canary"), "a value is never repeated: {}", secret.body);
    let unknown = plane.post("/v1/clusters", json!({"name": "c", "colour": "red"})).await.expect_problem(400, "invalid_json");
    assert!(unknown.body["detail"].as_str().expect("a detail").contains("colour"));
    let huge = json!({"script": "x".repeat(2 << 20)}).to_string();
    plane.send(post(launch, "application/json", huge)).await.expect_problem(413, "body_too_large");
    let long = json!({"script": "x".repeat((900 << 10) + 1)}).to_string();
    plane.send(post(launch, "application/json", long)).await.expect_problem(400, "invalid_field");
    let many = json!({"script": "x", "args": vec![0; nymph::wire::MAX_VALUES]}).to_string();
    plane.send(post(launch, "application/json", many)).await.expect_problem(413, "body_too_large");
    let many = json!({"script": "x", "args": vec!["a"; nymph::wire::MAX_DISPATCH_VALUES]}).to_string();
    plane.send(post(launch, "application/json", many)).await.expect_problem(413, "body_too_large");
    // A daemon reads it three levels further in.
    let deep = format!(r#"{{"script": "x", "resources": {{"limits": {}{}}}}}"#, "[".repeat(124), "]".repeat(124));
    plane.send(post(launch, "application/json", deep)).await.expect_problem(413, "body_too_large");
    let longest = json!({"script": "x".repeat(900 << 10)}).to_string();
    plane.send(post(launch, "application/json; charset=utf-8", longest)).await.expect_problem(503, "no_live_daemon");
}

#[tokio::test]
async fn what_does_not_exist_is_named() {
    let plane = Plane::start().await;
    for (path, code) in [
        ("/v1/namespaces/absent/providers", "namespace_not_found"),
        ("/v1/namespaces/default/providers/absent", "provider_not_found"),
        ("/v1/namespaces/default/providers/absent/instances", "provider_not_found"),
        ("/v1/namespaces/default/modes/absent", "mode_not_found"),
        ("/v1/namespaces/default/instances/lakeshore-00112233", "instance_not_found"),
        ("/v1/namespaces/default/instances/%FF", "invalid_path"),
    ] {
        let status = if code == "invalid_path" { 400 } else { 404 };
        plane.get(path).await.expect_problem(status, code);
    }
    plane.post("/v1/namespaces/default/providers/absent/launch", json!({"script": ""})).await.expect_problem(404, "provider_not_found");
    plane.post("/v1/namespaces/absent/providers/p/launch", json!({"script": ""})).await.expect_problem(404, "namespace_not_found");
}

#[tokio::test]
async fn a_script_of_the_longest_length_arrives_whole() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let script = "\u{1}\"é$`'EOF\n".repeat((900 << 10) / 14);
    let answer = plane.launch(json!({"script": script}));
    let (envelope, dispatch) = daemon.dispatch().await;
    assert!(crate::daemon::launch(&dispatch).script().expect("a script") == script);
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, running()).await;
    assert_eq!(answer.await.expect("it ends").expect(202).body["state"], "running");
}

#[tokio::test]
async fn a_wait_ends_when_the_state_is_reached_or_passed_or_the_time_is_over() {
    covers!("S106");
    let plane = Plane::start().await;
    let (_, mut daemon, envelope) = launched(&plane).await;
    let path = format!("/v1/namespaces/default/instances/{}", envelope.instance);
    let over = plane.get(&format!("{path}?wait=stopped&timeoutSeconds=0")).await.expect(200).body;
    assert_eq!(over["state"], "starting");
    let running = format!("{path}?wait=running");
    let (waited, ()) = tokio::join!(plane.get(&running), daemon.report(&envelope, 2, completed()));
    assert_eq!(waited.expect(200).body["state"], "stopped", "it was passed");
    assert_eq!(plane.get(&format!("{path}?wait=starting")).await.expect(200).body["state"], "stopped");
    plane.get(&format!("{path}?wait=flying")).await.expect_problem(400, "invalid_path");
    plane.get(&format!("{path}?timeoutSeconds=-1")).await.expect_problem(400, "invalid_path");
}

#[tokio::test]
async fn instances_are_listed_newest_first_with_the_ended_ones() {
    covers!("S94", "A26", "S134");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let list = "/v1/namespaces/default/providers/demo/instances";
    assert_eq!(plane.get(list).await.expect(200).body, json!([]));
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let mut names = Vec::new();
    for _ in 0..3 {
        let launched = plane.launch(json!({"script": ""}));
        let envelope = daemon.create().await;
        launched.await.expect("it ends").expect(202);
        daemon.report(&envelope, 2, completed()).await;
        names.insert(0, envelope.instance.to_string());
    }
    let rows = plane.get(list).await.expect(200).body;
    let listed: Vec<_> = rows.as_array().expect("a list").iter().map(|row| row["instanceId"].as_str().expect("an id").to_owned()).collect();
    assert_eq!(listed, names);
    assert!(rows.as_array().expect("a list").iter().all(|row| row["state"] == "stopped" && row["exitCode"] == 0));
    assert_eq!(plane.get("/v1/namespaces/default/instances").await.expect(200).body, rows);
}
