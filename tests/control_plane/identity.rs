//! Who a daemon is: the proofs that let it in, and every way to be refused while the rightful daemon goes on.
//!
//! faults.md rows 9 and 33; the attacks of issue 4, part 2.

use nymph::types::{Reason, State};
use nymph::wire::{CloseCode, ClusterKeys, ToControlPlane};
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Away, Daemon, completed, running, seen};
use crate::issuer::Issuer;
use crate::launched::launch_created;
use crate::plane::Plane;
use crate::proof::{Shown, URL, audited, keys, listed, now};

/// Shows that a session is alive: a launch goes through it to its end.
async fn goes_on(plane: &Plane, daemon: &mut Daemon, node: &str) {
    let launched = plane.launch(json!({"script": "", "node": node}));
    let envelope = daemon.create().await;
    launched.await.expect("it ends").expect(202);
    daemon.report(&envelope, 2, running()).await;
    daemon.report(&envelope, 3, completed()).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "stopped");
}

#[tokio::test]
async fn the_first_daemon_records_the_keys_and_every_later_one_proves_itself_by_them() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let rows = plane.get("/v1/clusters").await.expect(200).body;
    assert!(rows[0]["keys"].is_null() && rows[0]["tokens"][0]["lastUsedAt"].is_null(), "{rows}");
    let mut one = Shown::on(&issuer, &token, "node1").connect(&plane).await;
    audited(&plane, "keys_recorded", &["key-1", "cluster-uid", "nymph-system/nymph", "node1"]).await;
    let rows = plane.get("/v1/clusters").await.expect(200).body;
    let known = json!({"clusterUid": "cluster-uid", "issuer": URL, "names": ["key-1"], "accounts": {"node": "nymph-system/nymph"}});
    for (name, value) in known.as_object().expect("an object") {
        assert_eq!(&rows[0]["keys"][name], value);
    }
    assert!(rows[0]["tokens"][0]["lastUsedAt"].is_string(), "{rows}");
    // Later ones need not bring the keys: what is recorded counts.
    let mut two = Shown { keys: None, ..Shown::on(&issuer, &token, "node2") }.connect(&plane).await;
    let _cluster = Shown::of_cluster(&issuer, &token).connect(&plane).await;
    audited(&plane, "account_recorded", &["nymph-system/nymph-cluster", "cluster"]).await;
    let row = listed(&plane, "node2").await;
    assert_eq!((row["identity"].as_str(), row["proven"].as_bool()), (Some("service account nymph-system/nymph"), Some(true)));
    assert_eq!((row["nodeUid"].as_str(), row["podUid"].as_str()), (Some("uid-of-node2"), Some("pod-on-node2")));
    goes_on(&plane, &mut one, "node1").await;
    goes_on(&plane, &mut two, "node2").await;
}

#[tokio::test]
async fn row_33_the_enrolment_token_alone_or_another_nodes_proof_opens_nothing_and_the_session_goes_on() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let (issuer, other) = (Issuer::new(URL, "key-1"), Issuer::new(URL, "key-1"));
    let mut rightful = Shown::on(&issuer, &token, "node2").connect(&plane).await;
    let node1 = Shown::on(&issuer, &token, "node1");
    let good = Shown::on(&issuer, &token, "node2");
    let claims = issuer.claims("node2", now());
    let with = |pointer: &str, value: serde_json::Value| {
        let mut claims = claims.clone();
        *claims.pointer_mut(pointer).expect("it is there") = value;
        issuer.token(&claims)
    };
    let mut anybodys = claims.clone();
    anybodys["sub"] = json!("system:serviceaccount:nymph-system:default");
    anybodys["kubernetes.io"]["serviceaccount"]["name"] = json!("default");
    let mut elsewhere = claims.clone();
    elsewhere["sub"] = json!("system:serviceaccount:nymph-runs:nymph");
    elsewhere["kubernetes.io"]["namespace"] = json!("nymph-runs");
    let another_issuer = Issuer::new("https://another.example", "key-1");
    let stolen = node1.identity.clone().expect("it has one");
    for (what, shown, why) in [
        ("the enrolment token alone", Shown { identity: None, ..good.clone() }, "no identity token"),
        ("node1's proof for node2", good.clone().identity(stolen.clone()), "bound to the node"),
        ("node1's proof for the cluster", Shown { node: None, ..node1.clone() }, "another role"),
        ("an expired token", good.clone().identity(issuer.token(&issuer.claims("node2", now() - 7200))), "expired"),
        ("a token that is not valid yet", good.clone().identity(issuer.token(&issuer.claims("node2", now() + 7200))), "not valid before"),
        ("a token for the API server", good.clone().identity(with("/aud", json!(["https://kubernetes.default.svc"]))), "audience"),
        ("another cluster's token, with its keys", Shown::on(&other, &token, "node2"), "signature is wrong"),
        ("another issuer's token, with its keys", Shown::on(&another_issuer, &token, "node2"), "signature is wrong"),
        ("a key that is not recorded", Shown::on(&Issuer::new(URL, "key-2"), &token, "node2"), "key-2"),
        ("the recorded key under another issuer", good.clone().identity(with("/iss", json!("https://another.example"))), "issuer"),
        ("any Pod's token", good.clone().identity(issuer.token(&anybodys)), "nymph-system/default"),
        ("the same name in another namespace", good.clone().identity(issuer.token(&elsewhere)), "nymph-runs/nymph"),
        ("a token without a Pod", good.clone().identity(with("/kubernetes.io/pod", json!(null))), "not bound to a Pod"),
        ("an unsigned token", good.clone().identity(issuer.sign(&json!({"alg": "none", "kid": "key-1"}), &claims)), "none"),
        ("an HS256 token", good.clone().identity(issuer.sign(&json!({"alg": "HS256", "kid": "key-1"}), &claims)), "HS256"),
        ("an oversized token", good.clone().identity("x".repeat(9 << 10)), "longer than"),
        ("no token at all", good.clone().identity("canary".into()), "malformed"),
    ] {
        shown.refused(&plane, what).await;
        let line = audited(&plane, "connection_refused", &[why, "c1"]).await;
        assert_eq!(line["daemon"], shown.node.as_deref().unwrap_or("(cluster)"), "{what}: {line}");
        assert!(line["enrolment"].as_str().is_some_and(|id| id.len() == 16), "it names the enrolment token by its id: {line}");
    }
    goes_on(&plane, &mut rightful, "node2").await;
    assert_eq!(listed(&plane, "node2").await["epoch"], 1, "no other session was ever opened");
    for secret in [token.as_str(), "canary", stolen.as_str(), &stolen[stolen.rfind('.').expect("three parts")..]] {
        assert!(!plane.log().contains(secret), "no token is ever logged");
    }
}

#[tokio::test]
async fn row_9_a_newer_daemon_of_the_node_with_a_proof_displaces_the_older_loudly() {
    covers!("S116");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let mut old = Shown::on(&issuer, &token, "node1").connect(&plane).await;
    let mut other = Shown::on(&issuer, &token, "node2").connect(&plane).await;
    let launched = plane.launch(json!({"script": "", "node": "node1"}));
    let envelope = old.create().await;
    launched.await.expect("it ends").expect(202);
    let mut claims = issuer.claims("node1", now());
    claims["kubernetes.io"]["pod"] = json!({"name": "nymph-other", "uid": "another-pod"});
    let mut new = Shown::on(&issuer, &token, "node1").identity(issuer.token(&claims)).connect(&plane).await;
    assert_eq!(old.closed().await.code, CloseCode::Displaced);
    let line = audited(&plane, "displaced", &["node1", "pod-on-node1", "another-pod"]).await;
    assert_eq!(line["level"], "WARN", "{line}");
    assert!(line["message"].as_str().expect("a message").starts_with("ALARM"), "{line}");
    assert_eq!((new.welcome.epoch, other.welcome.epoch), (old.welcome.epoch + 1, 1));
    // The older one's word counts no more, and the work that it began is the newer one's.
    new.say_report(&envelope, 5, old.welcome.epoch, completed()).await;
    new.report(&envelope, 2, running()).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "running", "the stale report changed nothing");
    // Sequence numbers that were seen are acknowledged and change nothing.
    new.report(&envelope, 1, seen(State::Stopped, Reason::Lost)).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "running");
    new.report(&envelope, 3, completed()).await;
    goes_on(&plane, &mut other, "node2").await;
    // The same Pod again, after a line that was cut: told, and no alarm.
    let _again = Shown::on(&issuer, &token, "node1").identity(issuer.token(&claims)).connect(&plane).await;
    assert_eq!(audited(&plane, "displaced", &["another-pod", "came back"]).await["level"], "INFO");
}

#[tokio::test]
async fn row_9_without_keys_a_second_daemon_of_the_node_waits_until_the_first_is_gone() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut first = Daemon::connect(&plane, &token, "node1").await;
    audited(&plane, "unproven", &["node1", "could not read"]).await;
    let row = listed(&plane, "node1").await;
    assert_eq!((row["identity"].as_str(), row["proven"].as_bool()), (Some("UNPROVEN: enrolment token only"), Some(false)));
    let issuer = Issuer::new(URL, "key-1");
    let second = Shown { keys: None, identity: None, ..Shown::on(&issuer, &token, "node1") };
    match second.dial(&plane).await {
        Err(Away::Closed(close)) => {
            assert_eq!((close.code, close.retry_after_ms), (CloseCode::Occupied, Some(15_000)));
            assert!(close.message.contains("alive"), "{}", close.message);
        }
        other => panic!("the first one is alive: {}", other.is_ok()),
    }
    audited(&plane, "connection_refused", &["node1", "alive"]).await;
    goes_on(&plane, &mut first, "node1").await;
    assert_eq!(listed(&plane, "node1").await["epoch"], 1, "the second one fenced nothing");
    drop(first);
    let mut next = second.connect(&plane).await;
    goes_on(&plane, &mut next, "node1").await;
}

#[tokio::test]
async fn a_cluster_without_keys_asks_for_proofs_once_a_fresh_token_has_recorded_them() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let mut unproven = Daemon::connect(&plane, &token, "node1").await;
    // A used token records nothing over daemons that are at work: its thief would lock them out.
    let mut node2 = Shown::on(&issuer, &token, "node2").connect(&plane).await;
    audited(&plane, "unproven", &["node2", "rotate"]).await;
    assert!(plane.get("/v1/clusters").await.body[0]["keys"].is_null());
    let fresh = plane.post("/v1/clusters/c1/tokens", json!({})).await.expect(201).body["token"].as_str().expect("a token").to_owned();
    let _node3 = Shown::on(&issuer, &fresh, "node3").connect(&plane).await;
    audited(&plane, "keys_recorded", &["node3"]).await;
    for daemon in [&mut unproven, &mut node2] {
        let close = daemon.closed().await;
        assert!(close.code == CloseCode::GoAway && close.message.contains("proof"), "{close:?}");
    }
    Shown { identity: None, ..Shown::on(&issuer, &token, "node1") }.refused(&plane, "one with recorded keys never falls back").await;
    let _node1 = Shown::on(&issuer, &token, "node1").connect(&plane).await;
}

#[tokio::test]
async fn a_daemon_that_reads_the_keys_later_is_asked_to_prove_itself() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let mut early = Shown { keys: None, ..Shown::on(&issuer, &token, "node1") }.connect(&plane).await;
    early.send(ToControlPlane::Keys(keys(&issuer))).await;
    assert_eq!(early.closed().await.code, CloseCode::GoAway);
    drop(early);
    let _proven = Shown::on(&issuer, &token, "node1").connect(&plane).await;
    assert_eq!(listed(&plane, "node1").await["proven"], true);
}

#[tokio::test]
async fn keys_rotate_when_two_daemons_that_prove_themselves_tell_the_same() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let (old, new, evil) = (Issuer::new(URL, "old"), Issuer::new(URL, "new"), Issuer::new(URL, "evil"));
    let both = |more: &Issuer| ClusterKeys { issuer: URL.into(), jwks: json!({"keys": [old.jwk(), more.jwk()]}) };
    let mut one = Shown::on(&old, &token, "node1").connect(&plane).await;
    let mut two = Shown::on(&old, &token, "node2").connect(&plane).await;
    // One stolen daemon tells a key of its own, in its session and with a new one: it opens nothing.
    one.send(ToControlPlane::Keys(both(&evil))).await;
    audited(&plane, "keys_proposed", &["node1", "evil"]).await;
    let mut one = Shown { keys: Some(both(&evil)), ..Shown::on(&old, &token, "node1") }.connect(&plane).await;
    Shown::on(&evil, &token, "node3").refused(&plane, "a key that one daemon alone has told").await;
    two.send(ToControlPlane::Keys(both(&new))).await;
    audited(&plane, "keys_proposed", &["node2", "new"]).await;
    one.send(ToControlPlane::Keys(both(&new))).await;
    audited(&plane, "keys_rotated", &["node1", "new"]).await;
    let _three = Shown::on(&new, &token, "node3").connect(&plane).await;
    Shown::on(&evil, &token, "node4").refused(&plane, "the stolen daemon's key").await;
    // The old key goes in the same way, and what was proved by it is worth nothing afterwards.
    two.send(ToControlPlane::Keys(keys(&new))).await;
    one.send(ToControlPlane::Keys(keys(&new))).await;
    audited(&plane, "keys_rotated", &["\"after\":\"new\""]).await;
    Shown::on(&old, &token, "node4").refused(&plane, "the key that was taken away").await;
    let elsewhere = ClusterKeys { issuer: "https://evil.example".into(), jwks: evil.jwks() };
    one.send(ToControlPlane::Keys(elsewhere)).await;
    audited(&plane, "keys_refused", &["node1", "https://evil.example"]).await;
    goes_on(&plane, &mut one, "node1").await;
    goes_on(&plane, &mut two, "node2").await;
}

#[tokio::test]
async fn keys_that_were_replaced_while_nobody_was_connected_want_a_fresh_token() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let (old, new) = (Issuer::new(URL, "old"), Issuer::new("https://another.example", "new"));
    let mut daemon = Shown::on(&old, &token, "node1").connect(&plane).await;
    let fresh = plane.post("/v1/clusters/c1/tokens", json!({})).await.expect(201).body["token"].as_str().expect("a token").to_owned();
    // While a daemon that proved itself is connected, even a fresh token records nothing.
    match Shown::on(&new, &fresh, "node2").dial(&plane).await {
        Err(Away::Closed(close)) => assert_eq!((close.code, close.retry_after_ms), (CloseCode::BadToken, Some(15_000))),
        other => panic!("it is contested: {}", other.is_ok()),
    }
    audited(&plane, "connection_refused", &["are connected", "node2"]).await;
    goes_on(&plane, &mut daemon, "node1").await;
    drop(daemon);
    while listed(&plane, "node1").await["connected"] == true {}
    Shown::on(&new, &token, "node1").refused(&plane, "the used token with other keys").await;
    let _new = Shown { cluster_uid: Some("rebuilt".into()), ..Shown::on(&new, &fresh, "node1") }.connect(&plane).await;
    let line = audited(&plane, "keys_replaced", &["new", "rebuilt", "another.example"]).await;
    assert_eq!(line["level"], "WARN");
    Shown::on(&old, &fresh, "node2").refused(&plane, "the old keys, with the token that is fresh no more").await;
}

#[tokio::test]
async fn another_cluster_that_shares_the_keys_is_refused_by_its_uid() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let mut rightful = Shown::on(&issuer, &token, "node1").connect(&plane).await;
    let twin = Shown { cluster_uid: Some("another".into()), ..Shown::on(&issuer, &token, "node1") };
    assert!(matches!(twin.dial(&plane).await, Err(Away::Closed(close)) if close.code == CloseCode::BadToken));
    audited(&plane, "connection_refused", &["another", "cluster-uid"]).await;
    goes_on(&plane, &mut rightful, "node1").await;
}

#[tokio::test]
async fn many_first_daemons_at_once_record_the_keys_once() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let shown: Vec<_> = (1..=12).map(|number| Shown::on(&issuer, &token, &format!("node{number}"))).collect();
    let daemons = futures_util::future::join_all(shown.iter().map(|shown| shown.connect(&plane))).await;
    assert_eq!(daemons.len(), 12);
    let rows = plane.get("/v1/daemons").await.expect(200).body;
    assert!(rows.as_array().expect("a list").iter().all(|row| row["proven"] == true), "{rows}");
    let recorded = plane.log().lines().filter(|line| line.contains("keys_recorded")).count();
    assert_eq!(recorded, 1);
}

#[tokio::test]
async fn what_is_recorded_outlives_the_process() {
    let mut plane = Plane::start().await;
    let token = plane.with_provider().await;
    let issuer = Issuer::new(URL, "key-1");
    let daemon = Shown::on(&issuer, &token, "node1").connect(&plane).await;
    plane.kill();
    drop(daemon);
    plane.run();
    Shown { identity: None, ..Shown::on(&issuer, &token, "node1") }.refused(&plane, "the enrolment token alone").await;
    let mut daemon = Shown { keys: None, ..Shown::on(&issuer, &token, "node1") }.connect(&plane).await;
    let envelope = launch_created(&plane, &mut daemon).await;
    daemon.report(&envelope, 2, seen(State::Stopped, Reason::Lost)).await;
}

#[tokio::test]
async fn strangers_are_audited_and_cannot_flood_the_log() {
    let plane = Plane::start().await;
    let issuer = Issuer::new(URL, "key-1");
    for _ in 0..50 {
        assert!(Shown::on(&issuer, "nymph_enrol_nobodys", "node1").dial(&plane).await.is_err());
    }
    audited(&plane, "connection_refused", &["node1", "unknown"]).await;
    let lines = plane.log().lines().filter(|line| line.contains("connection_refused")).count();
    assert!(lines < 25, "{lines} lines for 50 strangers");
}
