//! Against a real websocket server that plays the control plane by hand.

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};

use super::*;
use crate::types::{Attempt, DispatchId, Placement};
use crate::wire::{DispatchEnvelope, ToDaemon, Welcome};

/// A daemon's link, and the listener that it dials.
struct Bench {
    listener: TcpListener,
    slot: Slot,
    health: Health,
    events: mpsc::Receiver<Event>,
    token_changed: watch::Sender<u64>,
    cancel: CancellationToken,
    folder: tempfile::TempDir,
}

type Socket = WebSocketStream<TcpStream>;

impl Bench {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("token"), "nymph_enrol_one\n").expect("the folder is ours");
        let (events, queue) = mpsc::channel(16);
        let (token_changed, token_seen) = watch::channel(0);
        let (slot, health, cancel) = (Slot::default(), Health::starting(), CancellationToken::new());
        let link = Link {
            url: format!("ws://{}", listener.local_addr().expect("it is bound")).parse().expect("a URL"),
            placement: Placement::Node("node-1".parse().expect("a name")),
            token_file: folder.path().join("token"),
            identity_file: None,
            ca_file: None,
            server_name: None,
            proxy: None,
            slot: slot.clone(),
            events,
            health: health.clone(),
            turn: Turn::always(),
            token_changed: token_seen,
        };
        tokio::spawn(link.run(cancel.clone()));
        Self { listener, slot, health, events: queue, token_changed, cancel, folder }
    }

    /// Takes the daemon's next connection; also gives the token that it brought.
    #[expect(clippy::result_large_err, reason = "the handshake callback's type is tungstenite's")]
    async fn accept(&self) -> (Socket, String) {
        let (stream, _) = self.listener.accept().await.expect("the daemon dials");
        let mut token = String::new();
        let note = |request: &Request, mut response: Response| {
            token = request.headers()["authorization"].to_str().expect("plain text").to_owned();
            response.headers_mut().insert("sec-websocket-protocol", http::HeaderValue::from_static(wire::SUBPROTOCOL));
            Ok(response)
        };
        let socket = tokio_tungstenite::accept_hdr_async(stream, note).await.expect("a handshake");
        (socket, token)
    }

    /// Answers the daemon's next connection with HTTP.
    async fn refuse(&self, status: u16) {
        let (mut stream, _) = self.listener.accept().await.expect("the daemon dials");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a whole head"));
        }
        stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").as_bytes()).await.expect("the daemon reads");
    }

    async fn event(&mut self) -> Event {
        self.events.recv().await.expect("the link runs")
    }

    async fn link_up(&mut self) -> u64 {
        match self.event().await {
            Event::LinkUp { link } => link,
            other => panic!("{other:?}"),
        }
    }

    async fn link_down(&mut self) -> u64 {
        loop {
            if let Event::LinkDown { link } = self.event().await {
                return link;
            }
        }
    }

    fn not_ready(&self) -> String {
        self.health.ready().expect_err("it is not ready")
    }
}

async fn say(socket: &mut Socket, message: &ToDaemon) {
    socket.send(Message::text(wire::encode_text(message).expect("it fits"))).await.expect("the daemon reads");
}

async fn hear(socket: &mut Socket) -> ToControlPlane {
    loop {
        if let Message::Text(text) = socket.next().await.expect("the daemon is there").expect("a frame") {
            return wire::decode_text(text.as_str()).expect("a message");
        }
    }
}

fn welcome(heartbeat_ms: u64) -> ToDaemon {
    let (cluster, install, session) = ("c1".into(), "c1-00000000".into(), "s".into());
    ToDaemon::Welcome(Box::new(Welcome { cluster, install, session, epoch: 1, heartbeat_ms, lost_after_ms: 1, open: vec![], more: false }))
}

#[tokio::test]
async fn a_refused_token_is_waited_for_and_a_new_one_is_tried_at_once() {
    let mut bench = Bench::new().await;
    bench.refuse(401).await;
    // Five minutes would pass without the change of the file.
    while !bench.not_ready().contains("enrolment token or identity not accepted") {
        tokio::task::yield_now().await;
    }
    std::fs::write(bench.folder.path().join("token"), "nymph_enrol_two\n").expect("the folder is ours");
    bench.token_changed.send_modify(|count| *count += 1);
    let (_socket, token) = bench.accept().await;
    assert_eq!(token, "Bearer nymph_enrol_two");
    assert_eq!(bench.link_up().await, 1);
}

#[tokio::test]
async fn a_missing_token_names_the_file_and_the_cure() {
    let bench = Bench::new().await;
    std::fs::remove_file(bench.folder.path().join("token")).expect("the folder is ours");
    while !bench.not_ready().contains("control_plane.token_file") {
        bench.token_changed.send_modify(|count| *count += 1);
        tokio::task::yield_now().await;
    }
    assert!(bench.not_ready().contains("lakeshore clusters enroll"));
}

#[tokio::test]
async fn messages_and_dispatches_become_events_of_their_link() {
    let mut bench = Bench::new().await;
    let (mut socket, _) = bench.accept().await;
    assert_eq!(bench.link_up().await, 1);
    say(&mut socket, &welcome(15_000)).await;
    assert!(matches!(bench.event().await, Event::Message { link: 1, message } if matches!(*message, ToDaemon::Welcome(_))));
    socket.send(Message::text(r#"{"type":"of_a_later_release"}"#)).await.expect("the daemon reads");
    let dispatch_id = DispatchId::from_random([1; 16]);
    let instance = dispatch_id.instance_name(Attempt(1));
    let (install, placement) = ("c1-0".to_owned(), Placement::Cluster);
    let envelope = DispatchEnvelope { dispatch_id, attempt: Attempt(1), instance, install, placement, accepted_before: false };
    let frame = Binary::Dispatch(envelope.clone(), Bytes::from_static(b"work")).encode().expect("it fits");
    socket.send(Message::binary(frame)).await.expect("the daemon reads");
    match bench.event().await {
        Event::Offered { link: 1, envelope: got, body } => assert_eq!((got, &body[..]), (envelope, &b"work"[..])),
        other => panic!("a message of a later release is passed over: {other:?}"),
    }
}

#[tokio::test]
async fn heartbeats_go_out_at_the_interval_of_welcome_and_a_silent_peer_is_dead() {
    let mut bench = Bench::new().await;
    let (mut socket, _) = bench.accept().await;
    bench.link_up().await;
    say(&mut socket, &welcome(100)).await;
    assert_eq!(hear(&mut socket).await, ToControlPlane::Heartbeat {});
    assert_eq!(bench.link_down().await, 1);
    assert!(bench.not_ready().contains("two heartbeats are missing"), "{}", bench.not_ready());
    let (_socket, _) = bench.accept().await;
    assert_eq!(bench.link_up().await, 2);
}

#[tokio::test]
async fn what_is_meant_for_an_old_link_never_gets_into_a_new_one() {
    let mut bench = Bench::new().await;
    let (socket, _) = bench.accept().await;
    bench.link_up().await;
    let old = bench.slot.of(Some(1)).expect("it is open");
    drop(socket);
    assert_eq!(bench.link_down().await, 1);
    let (mut socket, _) = bench.accept().await;
    bench.link_up().await;
    assert!(bench.slot.of(Some(1)).is_none() && bench.slot.of(None).is_none());
    old.send(ToControlPlane::LookupResult { request: 1, found: true, foreign: false });
    let new = bench.slot.of(Some(2)).expect("it is open");
    new.send(ToControlPlane::LookupResult { request: 2, found: true, foreign: false });
    assert!(matches!(hear(&mut socket).await, ToControlPlane::LookupResult { request: 2, .. }));
}

#[tokio::test]
async fn a_goodbye_of_the_control_plane_is_told_and_its_pause_is_kept() {
    let mut bench = Bench::new().await;
    let (mut socket, _) = bench.accept().await;
    bench.link_up().await;
    let close = Close { code: CloseCode::GoAway, message: "restarting for an upgrade".into(), retry_after_ms: Some(1) };
    say(&mut socket, &ToDaemon::Close(close)).await;
    assert_eq!(bench.link_down().await, 1);
    while !bench.not_ready().contains("restarting for an upgrade") {
        tokio::task::yield_now().await;
    }
    let (_socket, _) = bench.accept().await;
    assert_eq!(bench.link_up().await, 2);
}

#[tokio::test]
async fn a_terminal_goodbye_is_not_answered_with_another_dial() {
    let mut bench = Bench::new().await;
    let (mut socket, _) = bench.accept().await;
    bench.link_up().await;
    let close = Close { code: CloseCode::BadToken, message: "this token was revoked".into(), retry_after_ms: None };
    say(&mut socket, &ToDaemon::Close(close)).await;
    assert_eq!(bench.link_down().await, 1);
    while !bench.not_ready().contains("this token was revoked") {
        tokio::task::yield_now().await;
    }
    tokio::time::pause();
    let early = timeout(TERMINAL_PAUSE - Duration::from_secs(1), bench.listener.accept()).await;
    assert!(early.is_err(), "it dialled before the pause was over");
    let late = timeout(Duration::from_secs(60), bench.listener.accept()).await;
    assert!(late.is_ok(), "it tries again after five minutes");
}

#[tokio::test]
async fn what_is_queued_is_sent_before_the_goodbye() {
    let mut bench = Bench::new().await;
    let (mut socket, _) = bench.accept().await;
    bench.link_up().await;
    let sender = bench.slot.of(Some(1)).expect("it is open");
    for request in 0..100 {
        sender.send(ToControlPlane::LookupResult { request, found: false, foreign: false });
    }
    bench.cancel.cancel();
    for expected in 0..100 {
        assert!(matches!(hear(&mut socket).await, ToControlPlane::LookupResult { request, .. } if request == expected));
    }
    let last = socket.next().await.expect("the daemon is there").expect("a frame");
    assert!(matches!(&last, Message::Close(Some(frame)) if frame.reason.as_str() == "the daemon goes away"), "{last:?}");
}

#[tokio::test]
async fn a_control_plane_that_takes_nothing_is_dropped() {
    let mut bench = Bench::new().await;
    let (_socket, _) = bench.accept().await; // never read from
    bench.link_up().await;
    let sender = bench.slot.of(Some(1)).expect("it is open");
    // Without a turn of the writer in between, the queue is all there is.
    for request in 0..=CONTROL_QUEUE as u64 {
        sender.send(ToControlPlane::LookupResult { request, found: false, foreign: false });
    }
    assert_eq!(bench.link_down().await, 1);
}
