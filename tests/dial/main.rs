//! Ring `dial`: the daemon's way out, against real sockets, TLS, proxies and servers that misbehave. Needs nothing.

mod peers;

use nymph::dial::{DialError, LinkError, Target, connect};
use nymph::error::Chain;
use nymph::types::Placement;
use nymph::wire::Frame;
use peers::{Answer, Ca, Peer, Proxy};
use secrecy::SecretString;

const TOKEN: &str = "nymph_enrol_canary-canary-canary-canary-canary-canary-c";

fn target(url: &str) -> Target {
    Target {
        url: url.parse().expect("a control plane URL"),
        placement: Placement::Node("node-1".parse().expect("a name")),
        token: SecretString::from(TOKEN),
        identity: Some(SecretString::from("canary.identity.canary")),
        ca_file: None,
        server_name: None,
        // An explicit proxy or the environment decides; these tests run without proxy variables.
        proxy: None,
    }
}

async fn refused(target: &Target) -> DialError {
    match connect(target).await {
        Ok(_) => panic!("it must not connect"),
        Err(error) => {
            let (shown, debug) = (Chain(&error).to_string(), format!("{error:?}"));
            assert!(!shown.contains("canary") && !debug.contains("canary"), "a token in an error: {shown} {debug}");
            error
        }
    }
}

#[tokio::test]
async fn frames_go_both_ways_over_a_plain_connection() {
    let peer = Peer::plain(Answer::Echo).await;
    let (mut reader, mut writer) = connect(&target(&peer.url("ws"))).await.expect("it is there");
    writer.text("hello".into()).await.expect("it reads");
    assert_eq!(reader.next().await.expect("it echoes"), Frame::Text("hello".into()));
    let bytes = bytes::Bytes::from(vec![7; 1 << 20]);
    writer.binary(bytes.clone()).await.expect("it reads");
    assert_eq!(reader.next().await.expect("it echoes"), Frame::Binary(bytes));
    let seen = peer.request().await;
    assert_eq!(seen["authorization"], format!("Bearer {TOKEN}"));
    assert_eq!(seen["x-nymph-identity"], "canary.identity.canary");
    assert_eq!((seen["x-nymph-node"].as_str(), seen["sec-websocket-protocol"].as_str()), ("node-1", "nymph.v1"));
    assert_eq!(seen["path"], "/v1/daemon/connect");
    assert!(!seen.contains_key("origin"));
}

#[tokio::test]
async fn a_private_ca_is_trusted_when_it_is_named() {
    let ca = Ca::new();
    let peer = Peer::tls(&ca, "localhost", Answer::Echo).await;
    let mut target = target(&peer.url("wss"));
    target.ca_file = Some(ca.file());
    let (mut reader, mut writer) = connect(&target).await.expect("the CA is trusted");
    writer.text("hello".into()).await.expect("it reads");
    assert_eq!(reader.next().await.expect("it echoes"), Frame::Text("hello".into()));
}

#[tokio::test]
async fn the_ca_file_is_read_again_at_each_dial() {
    let (old, new) = (Ca::new(), Ca::new());
    let peer = Peer::tls(&new, "localhost", Answer::Echo).await;
    let mut target = target(&peer.url("wss"));
    target.ca_file = Some(old.file());
    assert!(matches!(refused(&target).await, DialError::Untrusted { .. }));
    std::fs::copy(new.file(), old.file()).expect("the folder is ours");
    assert!(connect(&target).await.is_ok());
}

#[tokio::test]
async fn a_certificate_of_another_ca_is_not_trusted_and_the_cure_is_named() {
    let peer = Peer::tls(&Ca::new(), "localhost", Answer::Echo).await;
    let other = Ca::new();
    let mut target = target(&peer.url("wss"));
    target.ca_file = Some(other.file());
    let error = refused(&target).await;
    assert!(matches!(error, DialError::Untrusted { .. }), "{error:?}");
    let text = Chain(&error).to_string();
    assert!(text.starts_with("certificate not trusted: set control_plane.ca_file"), "{text}");
    assert!(!error.is_terminal(), "somebody may mend it at any time");
}

#[tokio::test]
async fn a_certificate_for_another_name_wants_server_name() {
    let ca = Ca::new();
    let peer = Peer::tls(&ca, "lakeshore.example", Answer::Echo).await;
    let mut target = target(&peer.url("wss"));
    target.ca_file = Some(ca.file());
    let error = refused(&target).await;
    assert!(error.to_string().contains("control_plane.server_name"), "{error}");
    target.server_name = Some("lakeshore.example".into());
    assert!(connect(&target).await.is_ok());
}

#[tokio::test]
async fn a_ca_file_that_is_none_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let peer = Peer::plain(Answer::Echo).await;
    for (content, why) in [(None, "No such file"), (Some("not a certificate"), "no certificate"), (Some("-----BEGIN CERTIFICATE-----\nAA"), "PEM")] {
        let path = folder.path().join("ca.crt");
        if let Some(content) = content {
            std::fs::write(&path, content).expect("the folder is ours");
        }
        let mut target = target(&peer.url("wss"));
        target.ca_file = Some(path.clone());
        let error = refused(&target).await;
        let text = error.to_string();
        assert!(matches!(error, DialError::CaFile { .. }) && text.contains("control_plane.ca_file") && text.contains(why), "{text}");
    }
}

#[tokio::test]
async fn a_refused_token_is_terminal_and_repeats_the_control_planes_words() {
    for status in [401, 403] {
        let body = r#"{"status":401,"code":"bad_token","title":"no","detail":"this token was revoked"}"#;
        let peer = Peer::plain(Answer::Http { status, body: body.into(), location: None }).await;
        let error = refused(&target(&peer.url("ws"))).await;
        assert!(error.is_terminal(), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("enrolment token or identity not accepted") && text.contains("this token was revoked") && text.contains("clusters rotate"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn other_answers_are_told_by_their_meaning_and_are_not_terminal() {
    for (status, says) in [(404, "no control plane at this path"), (302, "redirects"), (503, "it gave no reason")] {
        let peer = Peer::plain(Answer::Http { status, body: "<html>".into(), location: Some("https://elsewhere.example".into()) }).await;
        let error = refused(&target(&peer.url("ws"))).await;
        assert!(error.to_string().contains(says) && !error.is_terminal(), "{error}");
    }
}

#[tokio::test]
async fn a_server_without_our_subprotocol_is_no_control_plane() {
    let peer = Peer::plain(Answer::WithoutSubprotocol).await;
    let error = refused(&target(&peer.url("ws"))).await;
    assert!(matches!(error, DialError::Subprotocol), "{error:?}");
}

#[tokio::test]
async fn a_server_that_speaks_something_else_is_told_as_such() {
    let peer = Peer::plain(Answer::Garbage).await;
    let error = refused(&target(&peer.url("ws"))).await;
    assert!(matches!(error, DialError::Handshake { .. }), "{error:?}");
    let peer = Peer::plain(Answer::Garbage).await;
    let ca = Ca::new();
    let mut encrypted = target(&peer.url("wss"));
    encrypted.ca_file = Some(ca.file());
    let error = refused(&encrypted).await;
    assert!(matches!(error, DialError::Tls { .. }) && error.to_string().contains("is it a wss address?"), "{error:?}");
}

#[tokio::test]
async fn a_silent_server_is_given_up_on() {
    // The peer stops the clock once it has the connection: from then on only the deadline can end the wait.
    let peer = Peer::plain(Answer::Silence).await;
    let error = refused(&target(&peer.url("ws"))).await;
    assert!(matches!(error, DialError::TimedOut { step: "shaking hands", .. }), "{error:?}");
    assert!(error.to_string().starts_with("control plane URL unreachable"), "{error}");
}

#[tokio::test]
async fn a_port_where_nobody_listens_is_unreachable() {
    let address = peers::free_port().await;
    let error = refused(&target(&format!("ws://{address}"))).await;
    assert!(matches!(error, DialError::Unreachable { .. }), "{error:?}");
    let text = Chain(&error).to_string();
    assert!(text.contains("control plane URL unreachable") && text.contains(&address.to_string()), "{text}");
}

#[tokio::test]
async fn a_name_without_an_address_is_told_as_such() {
    let error = refused(&target("ws://control-plane.invalid")).await;
    assert!(error.to_string().contains("the name control-plane.invalid does not resolve"), "{error}");
}

#[tokio::test]
async fn a_proxy_is_asked_for_a_tunnel_with_its_user_and_password() {
    let ca = Ca::new();
    let peer = Peer::tls(&ca, "localhost", Answer::Echo).await;
    let proxy = Proxy::start("HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\n").await;
    let mut target = target(&peer.url("wss"));
    target.ca_file = Some(ca.file());
    target.proxy = Some(SecretString::from(format!("http://ann:p%40ss@{}", proxy.address)));
    let (mut reader, mut writer) = connect(&target).await.expect("through the proxy");
    writer.text("hello".into()).await.expect("it reads");
    assert_eq!(reader.next().await.expect("it echoes"), Frame::Text("hello".into()));
    let request = proxy.request().await;
    assert!(request.starts_with(&format!("CONNECT localhost:{} HTTP/1.1\r\n", peer.port())), "{request}");
    assert!(request.contains("Proxy-Authorization: Basic YW5uOnBAc3M=\r\n"), "ann:p@ss, once decoded: {request}");
    assert!(!request.contains("canary"), "the token is for the control plane alone: {request}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_with_its_answer_and_without_its_password() {
    for (answer, says) in [
        ("HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "user and password"),
        ("HTTP/1.1 403 Forbidden by rule\r\n\r\n", "Forbidden by rule"),
        ("", "closed the connection"),
    ] {
        let proxy = Proxy::start(answer).await;
        let mut target = target("ws://cp.example");
        target.proxy = Some(SecretString::from(format!("http://ann:canary@{}", proxy.address)));
        let error = refused(&target).await;
        assert!(matches!(error, DialError::ProxyRefused { .. }) && error.to_string().contains(says), "{error}");
    }
}

#[tokio::test]
async fn a_proxy_of_another_kind_is_a_clear_error() {
    let mut target = target("ws://cp.example");
    target.proxy = Some(SecretString::from("socks5://127.0.0.1:1080"));
    let error = refused(&target).await;
    assert!(matches!(error, DialError::BadProxy { .. }) && error.to_string().contains("control_plane.proxy"), "{error}");
}

#[tokio::test]
async fn a_frame_over_the_limit_ends_the_link() {
    let peer = Peer::plain(Answer::Send(vec![0; nymph::wire::MAX_BINARY + 1])).await;
    let (mut reader, _writer) = connect(&target(&peer.url("ws"))).await.expect("it is there");
    assert!(matches!(reader.next().await, Err(LinkError::Broken { .. })));
}

#[tokio::test]
async fn the_peers_goodbye_is_passed_on() {
    let peer = Peer::plain(Answer::Close("going down for an upgrade")).await;
    let (mut reader, _writer) = connect(&target(&peer.url("ws"))).await.expect("it is there");
    let error = reader.next().await.expect_err("it closes");
    assert!(error.to_string().ends_with("going down for an upgrade"), "{error}");
}

#[tokio::test]
async fn our_goodbye_arrives_at_the_peer() {
    let mut peer = Peer::plain(Answer::Echo).await;
    let (_reader, mut writer) = connect(&target(&peer.url("ws"))).await.expect("it is there");
    writer.close("the daemon goes away").await.expect("it reads");
    assert_eq!(peer.goodbye().await, "the daemon goes away");
}
