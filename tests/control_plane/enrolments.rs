//! Enrolment tokens: made, rotated, expired and revoked.

use nymph::wire::CloseCode;
use serde_json::json;

use crate::daemon::Daemon;
use crate::issuer::Issuer;
use crate::plane::Plane;
use crate::proof::{Shown, URL, audited};

#[tokio::test]
async fn two_tokens_are_live_and_the_first_is_revoked_when_all_daemons_use_the_second() {
    let plane = Plane::start().await;
    let first = plane.enroll("c1").await;
    let issuer = Issuer::new(URL, "key-1");
    let mut one = Shown::on(&issuer, &first, "node1").connect(&plane).await;
    let second = plane.post("/v1/clusters/c1/tokens", json!({})).await.expect(201).body;
    let third = plane.post("/v1/clusters/c1/tokens", json!({})).await.expect_problem(409, "two_live_tokens").body;
    let rows = plane.get("/v1/clusters").await.expect(200).body;
    let ids: Vec<&str> = rows[0]["tokens"].as_array().expect("a list").iter().filter_map(|token| token["id"].as_str()).collect();
    assert_eq!(ids[1], second["id"]);
    assert!(ids.iter().all(|id| third["detail"].as_str().expect("a detail").contains(id)), "it names the two: {third}");
    assert!(third["cure"].as_str().expect("a cure").contains("clusters revoke c1"));
    let token = second["token"].as_str().expect("a token");
    let mut two = Shown::on(&issuer, token, "node2").connect(&plane).await;
    plane.delete(&format!("/v1/clusters/c1/tokens/{}", ids[0])).await.expect(204);
    let close = one.closed().await;
    assert!(close.code == CloseCode::BadToken && close.message.contains("revoked"), "{close:?}");
    audited(&plane, "enrolment_revoked", &[ids[0], "tester", "\"sessions\":1"]).await;
    audited(&plane, "enrolment_created", &[ids[1], "tester"]).await;
    Shown::on(&issuer, &first, "node1").refused(&plane, "a revoked token").await;
    let _one = Shown::on(&issuer, token, "node1").connect(&plane).await;
    two.send(nymph::wire::ToControlPlane::Heartbeat {}).await;
    plane.post("/v1/clusters/c1/tokens", json!({})).await.expect(201);
    assert!(!plane.log().contains(&first) && !plane.log().contains(token), "no token is ever logged");
}

#[tokio::test]
async fn a_token_that_has_expired_lets_nobody_in_and_leaves_room_for_another() {
    let plane = Plane::start().await;
    for bad in ["soon", "0s", "-1d", "1.5h"] {
        let answer = plane.post("/v1/clusters", json!({"name": "c1", "expiresIn": bad})).await.expect_problem(400, "invalid_field");
        assert_eq!(answer.body["field"], "expiresIn");
    }
    let made = plane.post("/v1/clusters", json!({"name": "c1", "expiresIn": "30d"})).await.expect(201).body;
    assert!(made["expiresAt"].is_string());
    let _daemon = Daemon::connect(&plane, made["token"].as_str().expect("a token"), "node1").await;
    let short = plane.post("/v1/clusters/c1/tokens", json!({"expiresIn": "1ms"})).await.expect(201).body;
    let issuer = Issuer::new(URL, "key-1");
    let shown = Shown::on(&issuer, short["token"].as_str().expect("a token"), "node2");
    let expired = async || plane.get("/v1/clusters").await.expect(200).body[0]["tokens"][1]["expired"] == true;
    while !expired().await {}
    shown.refused(&plane, "an expired token").await;
    plane.post("/v1/clusters/c1/tokens", json!({})).await.expect(201);
}

#[tokio::test]
async fn what_is_not_there_is_named() {
    let plane = Plane::start().await;
    plane.enroll("c1").await;
    plane.post("/v1/clusters/absent/tokens", json!({})).await.expect_problem(404, "cluster_not_found");
    plane.delete("/v1/clusters/absent/tokens/x").await.expect_problem(404, "cluster_not_found");
    plane.delete("/v1/clusters/c1/tokens/x").await.expect_problem(404, "token_not_found");
    plane.post("/v1/clusters/c1/tokens", json!({"expires": "1d"})).await.expect_problem(400, "invalid_json");
    let again = plane.post("/v1/clusters", json!({"name": "c1"})).await.expect_problem(409, "already_exists");
    assert!(again.body["cure"].as_str().expect("a cure").contains("clusters rotate c1"));
}
