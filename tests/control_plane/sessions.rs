//! Daemons' sessions: who gets in, who is put out, and whose word counts.

use nymph::types::{Reason, State};
use nymph::wire::{CloseCode, NODE_HEADER, ToControlPlane, ToDaemon};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::covers::covers;
use crate::daemon::{Daemon, Incoming, completed, created, facts, handshake, hello, rejection, running, seen, upgrade};
use crate::launched::launched;
use crate::plane::Plane;

#[tokio::test]
async fn only_an_enrolled_daemon_that_names_its_node_is_upgraded() {
    let plane = Plane::start().await;
    let token = plane.enroll("c1").await;
    type Change = Box<dyn Fn(&mut tokio_tungstenite::tungstenite::http::Request<()>)>;
    let header = |name: &'static str, value: Option<String>| -> Change {
        Box::new(move |request| {
            request.headers_mut().remove(name);
            if let Some(value) = &value {
                request.headers_mut().insert(name, value.parse().expect("a header"));
            }
        })
    };
    let caller = plane.token.clone();
    for (change, status, code) in [
        (header("authorization", None), 401, "unauthorized"),
        (header("authorization", Some("Bearer nymph_enrol_x".into())), 401, "unauthorized"),
        (header("authorization", Some(format!("Bearer nymph_enrol_{}", "A".repeat(43)))), 401, "unauthorized"),
        (header("authorization", Some(format!("Bearer {caller}"))), 401, "unauthorized"),
        (header("origin", Some("https://evil.example".into())), 403, "browser_refused"),
        (header(NODE_HEADER, None), 400, "bad_handshake"),
        (header(NODE_HEADER, Some("Not_A_Node".into())), 400, "bad_handshake"),
        (header("sec-websocket-protocol", None), 426, "version_refused"),
        (header("sec-websocket-protocol", Some("nymph.v9".into())), 426, "version_refused"),
        (header("sec-websocket-version", Some("7".into())), 400, "bad_handshake"),
    ] {
        let mut request = handshake(&plane, &token, "node1");
        change(&mut request);
        let response = upgrade(&plane, request).await.expect_err("it is refused");
        let body: Value = serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
        assert_eq!((response.status().as_u16(), body["code"].as_str()), (status, Some(code)), "{body}");
    }
    assert!(!plane.log().contains(&token) && !plane.log().contains(&caller), "no token is ever logged");
    plane.get("/v1/daemon/connect").await.expect_problem(401, "unauthorized");
}

#[tokio::test]
async fn what_is_not_the_protocol_ends_the_session_with_a_word() {
    covers!("S127");
    let plane = Plane::start().await;
    let token = plane.enroll("c1").await;
    let before_hello = [
        Message::text("{}"),
        Message::text("not json"),
        Message::text(r#"{"type":"heartbeat"}"#),
        Message::Binary(vec![1, 2, 3].into()),
        Message::text(nymph::wire::encode_text(&hello(facts("another-node"))).expect("it fits")),
    ];
    for message in before_hello {
        let socket = upgrade(&plane, handshake(&plane, &token, "node1")).await.expect("it is upgraded");
        let mut daemon = Daemon::raw(socket);
        daemon.send_raw(message).await;
        assert_eq!(daemon.closed().await.code, CloseCode::Protocol);
    }
    let nested = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let afterwards = [
        Message::text("{"),
        Message::text(nested),
        Message::text("x".repeat(1 << 20) + "x"),
        Message::Binary(vec![].into()),
        Message::Binary(vec![1, 1, 0, 0, 0, 2, b'{', b'}'].into()),
        Message::Binary(vec![1, 2, 255, 255, 255, 255].into()),
        Message::Binary(vec![0; (2 << 20) + 1].into()),
        Message::text(nymph::wire::encode_text(&hello(facts("node1"))).expect("it fits")),
        Message::text(nymph::wire::encode_text(&ToControlPlane::NodeFacts(facts("node2"))).expect("it fits")),
    ];
    for message in afterwards {
        let mut daemon = Daemon::connect(&plane, &token, "node1").await;
        daemon.try_send_raw(message).await;
        assert_eq!(daemon.closed().await.code, CloseCode::Protocol);
    }
    let mut daemon = Daemon::connect(&plane, &token, "node1").await; // the server is none the worse
    daemon.send_raw(Message::text(r#"{"type":"of_a_later_release"}"#)).await;
    daemon.send_raw(Message::text("{")).await;
    assert!(daemon.closed().await.message.contains("not a known message"), "the later release's is passed over, the next is not");
    assert!(!plane.log().contains("panicked"));
}

#[tokio::test]
async fn a_daemon_that_dies_without_a_goodbye_breaks_no_rule() {
    let plane = Plane::start().await;
    let token = plane.enroll("c1").await;
    drop(Daemon::connect(&plane, &token, "node1").await); // the socket is closed, and no close frame was sent
    let told = async {
        while !plane.log().contains("Daemon disconnected") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::plane::STUCK, told).await.expect("its end is told");
    assert!(!plane.log().contains("broke the protocol"), "{}", plane.log());
}

#[tokio::test]
async fn a_report_that_would_leave_no_number_for_the_end_or_no_room_in_welcome_ends_the_session() {
    covers!("S127");
    let plane = Plane::start().await;
    let (token, mut daemon, envelope) = launched(&plane).await;
    let long = nymph::types::Observation { uid: Some("u".repeat(100_000)), ..running() };
    for (seq, observation) in [(u64::MAX, running()), (1 << 62, running()), (2, long)] {
        daemon.say_report(&envelope, seq, daemon.welcome.epoch, observation).await;
        assert_eq!(daemon.closed().await.code, CloseCode::Protocol, "sequence {seq}");
        daemon = Daemon::connect(&plane, &token, "node1").await;
    }
    daemon.report(&envelope, 2, completed()).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "stopped", "the end can still be told");
}

#[tokio::test]
async fn states_never_go_back_and_the_last_is_final() {
    let plane = Plane::start().await;
    let (_, mut daemon, envelope) = launched(&plane).await;
    let failed = nymph::types::Observation { exit_code: Some(3), ..seen(State::Stopped, Reason::ExitCode) };
    for (seq, observation, state) in [
        (2, running(), "running"),
        (3, created(), "running"),
        (4, seen(State::Stopping, Reason::DeletedByOther), "stopping"),
        (5, running(), "stopping"),
        (6, failed, "stopped"),
        (7, completed(), "stopped"),
    ] {
        daemon.report(&envelope, seq, observation).await;
        assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], state, "after report {seq}");
    }
    let row = plane.instance(envelope.instance.as_str()).await;
    assert_eq!((row["reason"].as_str(), row["exitCode"].as_i64()), (Some("exit_code"), Some(3)));
}

#[tokio::test]
async fn a_daemon_cannot_speak_for_what_is_placed_elsewhere() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let other_cluster = plane.enroll("c2").await;
    let mut owner = Daemon::connect(&plane, &token, "node1").await;
    let launched = plane.launch(json!({"script": ""}));
    let (envelope, _) = owner.dispatch().await;
    let strangers = [Daemon::connect(&plane, &token, "node2").await, Daemon::connect(&plane, &other_cluster, "node1").await];
    for mut stranger in strangers {
        let epoch = stranger.welcome.epoch;
        stranger.say_accepted(&envelope).await;
        stranger.reject(&envelope, rejection(nymph::wire::RejectionCode::PolicyDenied, "x")).await;
        stranger.say_report(&envelope, 1, epoch, completed()).await;
        stranger.send(ToControlPlane::LogEnd { stream: 1, reason: nymph::wire::LogEndReason::Complete, offset: 0 }).await;
        // Handled in order: whatever the messages above did is done when this one is answered by its close.
        stranger.send_raw(Message::text("{}")).await;
        match stranger.next().await {
            Incoming::Message(ToDaemon::Close(_)) => {}
            other => panic!("nothing is answered: {other:?}"),
        }
    }
    assert_eq!(plane.instance(envelope.instance.as_str()).await["reason"], "queued");
    assert!(plane.log().contains("foreign"));
    owner.accept(&envelope).await;
    owner.report(&envelope, 1, created()).await;
    launched.await.expect("it ends").expect(202);
}

#[tokio::test]
async fn what_was_accepted_in_an_earlier_session_is_not_acknowledged_again() {
    let plane = Plane::start_with(&["--launch-wait", "20ms", "--lost-after", "1234ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    plane.launch(json!({"script": ""})).await.expect("it ends").expect(202);
    let (envelope, _) = daemon.dispatch().await;
    daemon.accept(&envelope).await;
    daemon.accept(&envelope).await; // the same session may hear it twice
    drop(daemon);
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    assert_eq!(daemon.welcome.lost_after_ms, 1234);
    let [item] = daemon.welcome.open.as_slice() else { panic!("one open item: {:?}", daemon.welcome.open) };
    assert_eq!((&item.instance, item.namespace.as_str(), item.seq, item.cancel), (&envelope.instance, "nymph-runs", 0, false));
    assert_eq!(item.phase, nymph::wire::OpenPhase::Accepted);
    daemon.say_accepted(&envelope).await;
    daemon.send_raw(Message::text("{}")).await;
    match daemon.next().await {
        Incoming::Message(ToDaemon::Close(_)) => {}
        other => panic!("neither offered nor acknowledged again: {other:?}"),
    }
}

#[tokio::test]
async fn a_daemon_that_is_away_for_long_makes_its_instances_unknown_and_back() {
    let plane = Plane::start_with(&["--stale-after", "1ms"]).await;
    let (token, mut daemon, envelope) = launched(&plane).await;
    daemon.report(&envelope, 2, running()).await;
    drop(daemon);
    let row = plane.until(envelope.instance.as_str(), |row| row["state"] == "unknown").await;
    assert_eq!(row["reason"], "daemon_unreachable");
    assert!(row["message"].as_str().expect("a message").contains("last known: running"), "{row}");
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    daemon.report(&envelope, 3, completed()).await;
    drop(daemon);
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "stopped", "what ended is known for good");
}

#[tokio::test]
async fn daemons_are_listed_with_what_they_said() {
    let plane = Plane::start().await;
    let token = plane.enroll("c1").await;
    let daemon = Daemon::connect(&plane, &token, "node1").await;
    let rows = plane.get("/v1/daemons").await.expect(200).body;
    let row = &rows[0];
    assert_eq!((row["cluster"].as_str(), row["node"].as_str(), row["connected"].as_bool()), (Some("c1"), Some("node1"), Some(true)));
    assert_eq!((row["version"].as_str(), row["epoch"].as_u64(), row["ready"].as_bool()), (Some("0.1.0"), Some(1), Some(true)));
    assert_eq!(row["policyDigest"], "ab".repeat(32));
    assert!(daemon.welcome.install.starts_with("c1-") && daemon.welcome.install.len() == 11);
    assert_eq!(plane.get("/v1/clusters").await.expect(200).body[0]["daemons"], 1);
    drop(daemon);
    let gone = async {
        loop {
            let row = plane.get("/v1/daemons").await.expect(200).body[0].take();
            if row["connected"] == false {
                return row;
            }
        }
    };
    let row = tokio::time::timeout(crate::plane::STUCK, gone).await.expect("its absence is seen");
    assert!(row["ready"].is_null() && row["unschedulable"].is_null(), "nothing is known of a node whose daemon is away: {row}");
}
