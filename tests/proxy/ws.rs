//! Websocket messages, between the daemon's own dial and a server of the test's.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use nymph::dial::{DialError, LinkError, Reader, Target, Writer, connect};
use nymph::error::Chain;
use nymph::wire::Frame;
use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};

use crate::proxy::block_on;
use crate::proxy::ws::{Answer, Said, Verdict, Way, WsProxy};

const BEAT: &str = r#"{"type":"heartbeat"}"#;
const ACK: &str = r#"{"type":"ack","instance":"lakeshore-01234567","seq":7}"#;
const SOON: Duration = Duration::from_secs(20);

/// Opens websockets whose bearer token it knows; answers a heartbeat with an ack, and sends others back.
async fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut socket) = tokio_tungstenite::accept_hdr_async(stream, greet).await else { return };
                while let Some(Ok(message)) = socket.next().await {
                    let answer = if message.to_text().is_ok_and(|text| text == BEAT) { Message::text(ACK) } else { message };
                    if answer.is_close() || socket.send(answer).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[expect(clippy::result_large_err, reason = "the handshake callback's type is tungstenite's")]
fn greet(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    if request.headers()["authorization"] != "Bearer good" || request.headers()["x-nymph-node"] != "node-1" {
        let refusal = http::Response::builder().status(401).body(Some(r#"{"detail":"its own words"}"#.into()));
        return Err(refusal.expect("a response"));
    }
    response.headers_mut().insert("sec-websocket-protocol", http::HeaderValue::from_static("nymph.v1"));
    Ok(response)
}

async fn dial(proxy: &WsProxy, token: &str) -> Result<(Reader, Writer), DialError> {
    let url = proxy.url().parse().expect("a URL");
    let placement = nymph::types::Placement::Node("node-1".parse().expect("a name"));
    connect(&Target { url, placement, token: SecretString::from(token), identity: None, ca_file: None, server_name: None, proxy: None }).await
}

async fn next(reader: &mut Reader) -> Result<Frame, LinkError> {
    timeout(SOON, reader.next()).await.expect("something comes")
}

fn text(text: &str) -> Frame {
    Frame::Text(text.to_owned())
}

#[test]
fn handshakes_and_messages_pass_and_are_counted_by_kind() {
    block_on(async {
        let proxy = WsProxy::start(&server().await);
        let refused = dial(&proxy, "bad").await.err().expect("the server refuses");
        assert!(Chain(&refused).to_string().contains("its own words"), "{refused}");
        let (mut reader, mut writer) = dial(&proxy, "good").await.expect("it opens");
        writer.text(BEAT.into()).await.expect("it is open");
        assert_eq!(next(&mut reader).await.expect("an answer"), text(ACK));
        let big = bytes::Bytes::from(vec![7; 2 << 20]);
        writer.binary(big.clone()).await.expect("it is open");
        assert_eq!(next(&mut reader).await.expect("an echo"), Frame::Binary(big));
        assert_eq!((proxy.count(Way::Up, "heartbeat"), proxy.count(Way::Down, "ack"), proxy.count(Way::Up, "unknown")), (1, 1, 1));
        assert_eq!((proxy.dials(), proxy.connections(), proxy.open()), (2, 1, 1));
    });
}

#[test]
fn a_hook_drops_and_duplicates_and_a_test_injects() {
    block_on(async {
        let proxy = WsProxy::start(&server().await);
        let (mut reader, mut writer) = dial(&proxy, "good").await.expect("it opens");
        proxy.hook(|seen| match &seen.said {
            Said::ToDaemon(nymph::wire::ToDaemon::Ack(ack)) if ack.seq == 7 => Verdict::Duplicate(2),
            _ if seen.kind == "unknown" => Verdict::Drop,
            _ => Verdict::Pass,
        });
        writer.text("dropped".into()).await.expect("it is open");
        writer.text(BEAT.into()).await.expect("it is open");
        assert_eq!(next(&mut reader).await.expect("an answer"), text(ACK));
        assert_eq!(next(&mut reader).await.expect("the same again"), text(ACK));
        proxy.calm();
        proxy.inject(Way::Down, Message::text("from the test"));
        assert_eq!(next(&mut reader).await.expect("it was injected"), text("from the test"));
        proxy.inject(Way::Up, Message::text(BEAT));
        assert_eq!(next(&mut reader).await.expect("the server heard it"), text(ACK));
    });
}

#[test]
fn a_trap_holds_one_message_until_the_test_says_how_it_goes_on() {
    block_on(async {
        let proxy = WsProxy::start(&server().await);
        let (mut reader, mut writer) = dial(&proxy, "good").await.expect("it opens");
        let trap = proxy.trap(|seen| seen.is(Way::Down, "ack"));
        writer.text(BEAT.into()).await.expect("it is open");
        let (trap, seen) = tokio::task::spawn_blocking(move || {
            let seen = trap.sprung("the ack");
            (trap, seen)
        })
        .await
        .expect("it springs");
        assert!(matches!(seen.said, Said::ToDaemon(_)));
        assert!(timeout(Duration::from_millis(200), reader.next()).await.is_err(), "it is held");
        trap.release(Verdict::PassAndCut);
        assert_eq!(next(&mut reader).await.expect("it was let go"), text(ACK));
        next(&mut reader).await.expect_err("and the connection cut");
        assert_eq!(proxy.open(), 0);
    });
}

#[test]
fn a_cut_ends_both_sides_without_a_close_frame() {
    block_on(async {
        let proxy = WsProxy::start(&server().await);
        let (mut reader, mut writer) = dial(&proxy, "good").await.expect("it opens");
        writer.text(BEAT.into()).await.expect("it is open");
        next(&mut reader).await.expect("an answer");
        proxy.cut();
        let error = next(&mut reader).await.expect_err("it was cut");
        assert!(!matches!(error, LinkError::Closed { reason: Some(_) }), "{error}");
        dial(&proxy, "good").await.expect("the next one opens");
    });
}

#[test]
fn a_dial_is_answered_as_scripted() {
    block_on(async {
        let proxy = WsProxy::start(&server().await);
        for (answer, words) in [
            (Answer::Http(401, None, "scripted words"), "scripted words"),
            (Answer::Http(426, None, "another version"), "426"),
            (Answer::Http(503, Some(7), "later"), "503"),
            (Answer::Garbage, "failed"),
            (Answer::Header(5 << 20), "failed"),
        ] {
            proxy.answer(answer);
            let error = dial(&proxy, "good").await.err().expect("no websocket");
            assert!(Chain(&error).to_string().contains(words), "{words}: {}", Chain(&error));
        }
        proxy.answer(Answer::Relay);
        dial(&proxy, "good").await.expect("it opens");
    });
}
