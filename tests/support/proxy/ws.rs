//! A relay of websocket messages between a daemon and the control plane.
//!
//! Handshake headers go through unchanged both ways, so that either side sees the other's. A hook sees each message decoded.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nymph::wire::{self, Binary, ToControlPlane, ToDaemon};
use serde::Serialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex as AsyncMutex, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_tungstenite::{WebSocketStream, client_async};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::trap::{Trap, Traps};
use super::{listen, locked, spawn};

/// How long a closed connection waits for the other side's close frame.
const LINGER: Duration = Duration::from_secs(2);

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// Daemon → control plane.
    Up,
    /// Control plane → daemon.
    Down,
}

/// What a message says.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    ToControlPlane(ToControlPlane),
    ToDaemon(ToDaemon),
    Binary(Binary),
    /// Ping, pong, close, or what this release has no word for.
    Other,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) way: Way,
    /// Connections are numbered from 1.
    pub(crate) connection: u64,
    /// The message's `type`; `dispatch` and `log` for binary ones; else `ping`, `pong`, `close`, `unknown`.
    pub(crate) kind: String,
    pub(crate) said: Said,
    /// The frame itself, to be sent again at another time by [`WsProxy::inject`].
    pub(crate) raw: Message,
}

impl Seen {
    /// Whether it is of this kind and goes this way.
    pub(crate) fn is(&self, way: Way, kind: &str) -> bool {
        self.way == way && self.kind == kind
    }
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verdict {
    Pass,
    Drop,
    /// Passes this many times.
    Duplicate(usize),
    /// Passes after this long; those behind it wait.
    Delay(Duration),
    /// Both connections end without a close frame; the message is lost.
    Cut,
    /// Passes, and then both connections end.
    PassAndCut,
}

/// How a dial is answered.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// By the control plane.
    Relay,
    /// With this status, `Retry-After` in seconds, and problem+json of this detail.
    Http(u16, Option<u64>, &'static str),
    /// With what is neither HTTP nor a websocket.
    Garbage,
    /// With a header of so many bytes that never ends.
    Header(usize),
    /// Not at all.
    Silence,
}

type Hook = Arc<dyn Fn(&Seen) -> Verdict + Send + Sync>;

struct Shared {
    upstream: String,
    answer: Mutex<Answer>,
    hook: Mutex<Hook>,
    traps: Traps<Seen, Verdict>,
    counts: Mutex<BTreeMap<(Way, String), u64>>,
    dials: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
    /// Those up to this number are cut.
    cut: watch::Sender<u64>,
    /// The newest connection's mailbox.
    newest: Mutex<Option<mpsc::UnboundedSender<(Way, Message)>>>,
    stop: CancellationToken,
}

/// The relay. It dials the control plane anew for each daemon's dial.
pub(crate) struct WsProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl WsProxy {
    /// A relay to the control plane at `upstream`, `host:port`.
    pub(crate) fn start(upstream: &str) -> Self {
        let (listener, address) = listen();
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            upstream: upstream.to_owned(),
            answer: Mutex::new(Answer::Relay),
            hook: Mutex::new(Arc::new(|_| Verdict::Pass)),
            traps: Traps::default(),
            counts: Mutex::default(),
            dials: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
            cut: watch::Sender::new(0),
            newest: Mutex::default(),
            stop: stop.clone(),
        });
        let relay = Arc::clone(&shared);
        spawn(async move {
            let stop = relay.stop.clone();
            stop.run_until_cancelled(accept(relay, listener)).await;
        });
        Self { address, shared, _stop: stop.drop_guard() }
    }

    /// What a daemon dials.
    pub(crate) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// How dials are answered from now on. Connections that are open are not touched.
    pub(crate) fn answer(&self, answer: Answer) {
        *locked(&self.shared.answer) = answer;
    }

    /// Decides over each message from now on, unless a trap holds it.
    pub(crate) fn hook(&self, hook: impl Fn(&Seen) -> Verdict + Send + Sync + 'static) {
        *locked(&self.shared.hook) = Arc::new(hook);
    }

    /// Lets everything pass again.
    pub(crate) fn calm(&self) {
        self.hook(|_| Verdict::Pass);
    }

    /// Holds the first message that fits, and those behind it on its way.
    pub(crate) fn trap(&self, fits: impl Fn(&Seen) -> bool + Send + 'static) -> Trap<Seen, Verdict> {
        self.shared.traps.arm(fits)
    }

    /// Cuts every connection that is open, without a close frame.
    pub(crate) fn cut(&self) {
        self.shared.cut.send_replace(self.shared.connections.load(Ordering::SeqCst));
    }

    /// Sends a message of the test's own on the newest connection; no hook sees it.
    pub(crate) fn inject(&self, way: Way, message: Message) {
        let newest = locked(&self.shared.newest);
        let sent = newest.as_ref().is_some_and(|mailbox| mailbox.send((way, message)).is_ok());
        assert!(sent, "no connection is open");
    }

    /// How many messages of this kind came to the proxy, whatever became of them.
    pub(crate) fn count(&self, way: Way, kind: &str) -> u64 {
        locked(&self.shared.counts).get(&(way, kind.to_owned())).copied().unwrap_or(0)
    }

    /// TCP connections taken so far.
    pub(crate) fn dials(&self) -> u64 {
        self.shared.dials.load(Ordering::SeqCst)
    }

    /// Websockets opened so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Websockets that are open now.
    pub(crate) fn open(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        shared.dials.fetch_add(1, Ordering::SeqCst);
        let shared = Arc::clone(&shared);
        spawn(async move {
            let stop = shared.stop.clone();
            stop.run_until_cancelled(answer(shared, stream)).await;
        });
    }
}

async fn answer(shared: Arc<Shared>, stream: TcpStream) {
    let how = locked(&shared.answer).clone();
    match how {
        Answer::Relay | Answer::Http(..) => {
            let service = service_fn(move |request| handshake(Arc::clone(&shared), how.clone(), request));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades().await; // a peer that hangs up is no news
        }
        Answer::Garbage => say(stream, b"SSH-2.0-OpenSSH_9.2\r\nnot what you think\r\n\r\n".to_vec()).await,
        Answer::Header(length) => {
            let head = b"HTTP/1.1 101 Switching Protocols\r\nx-long: ".to_vec();
            say(stream, [head, vec![b'a'; length]].concat()).await;
        }
        Answer::Silence => std::future::pending().await,
    }
}

async fn say(mut stream: TcpStream, bytes: Vec<u8>) {
    let mut request = [0; 4096];
    let _ = stream.read(&mut request).await; // a reset would lose the answer
    let _ = stream.write_all(&bytes).await; // it may hang up in the middle
    while let Ok(1..) = stream.read(&mut request).await {}
}

async fn handshake(shared: Arc<Shared>, how: Answer, mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, WsError> {
    if let Answer::Http(status, retry_after, detail) = how {
        let body = serde_json::json!({ "status": status, "title": "Scripted", "code": "scripted", "detail": detail });
        let mut response = Response::builder().status(status).header("content-type", "application/problem+json");
        if let Some(seconds) = retry_after {
            response = response.header("retry-after", seconds);
        }
        return Ok(response.body(Full::from(body.to_string())).expect("a response of our own"));
    }
    let server = TcpStream::connect(&shared.upstream).await?;
    let _ = server.set_nodelay(true);
    let mut dial = Request::builder().uri(format!("ws://{}{}", shared.upstream, request.uri()));
    *dial.headers_mut().expect("nothing is wrong with it yet") = request.headers().clone();
    let (server, agreed) = match client_async(dial.body(()).expect("it came as a request"), server).await {
        Ok(opened) => opened,
        Err(WsError::Http(refused)) => return Ok(refused.map(|body| Full::from(body.unwrap_or_default()))),
        Err(error) => return Err(error),
    };
    let mut response = create_response_with_body(&request, Full::default)?;
    let protocol = agreed.headers().get("sec-websocket-protocol").cloned();
    response.headers_mut().extend(protocol.map(|protocol| (http::header::SEC_WEBSOCKET_PROTOCOL, protocol)));
    debug_assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    let upgrade = hyper::upgrade::on(&mut request);
    spawn(async move {
        let stop = shared.stop.clone();
        let relayed = async {
            if let Ok(client) = upgrade.await {
                relay(shared, WebSocketStream::from_raw_socket(TokioIo::new(client), Role::Server, None).await, server).await;
            }
        };
        stop.run_until_cancelled(relayed).await;
    });
    Ok(response)
}

type Client = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// How one way of a connection ended.
#[derive(PartialEq, Eq)]
enum Over {
    /// With a close frame, which was passed on.
    Closed,
    Cut,
}

async fn relay(shared: Arc<Shared>, client: Client, server: WebSocketStream<TcpStream>) {
    let id = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
    let (mailbox, mail) = mpsc::unbounded_channel();
    *locked(&shared.newest) = Some(mailbox);
    let ((to_client, from_client), (to_server, from_server)) = (client.split(), server.split());
    let (to_client, to_server) = (AsyncMutex::new(to_client), AsyncMutex::new(to_server));
    let mut cut = shared.cut.subscribe();
    shared.open.fetch_add(1, Ordering::SeqCst);
    let both = async {
        let mut up = pin!(carry(&shared, id, Way::Up, from_client, &to_server));
        let mut down = pin!(carry(&shared, id, Way::Down, from_server, &to_client));
        // The other side's last words and its own close frame follow.
        let first = tokio::select! { over = &mut up => (over, true), over = &mut down => (over, false) };
        let _ = match first {
            (Over::Cut, _) => return,
            (Over::Closed, true) => timeout(LINGER, down).await,
            (Over::Closed, false) => timeout(LINGER, up).await,
        };
    };
    tokio::select! {
        () = both => {}
        () = deliver(mail, &to_server, &to_client) => {}
        _ = cut.wait_for(|cut| id <= *cut) => {}
    }
    shared.open.fetch_sub(1, Ordering::SeqCst);
}

async fn deliver(
    mut mail: mpsc::UnboundedReceiver<(Way, Message)>,
    to_server: &AsyncMutex<impl Sink<Message, Error = WsError> + Unpin>,
    to_client: &AsyncMutex<impl Sink<Message, Error = WsError> + Unpin>,
) {
    while let Some((way, message)) = mail.recv().await {
        let sent = if way == Way::Up { to_server.lock().await.send(message).await } else { to_client.lock().await.send(message).await };
        if sent.is_err() {
            return;
        }
    }
    std::future::pending().await // a newer connection has the mailbox
}

async fn carry(
    shared: &Shared,
    connection: u64,
    way: Way,
    mut from: impl Stream<Item = Result<Message, WsError>> + Unpin,
    to: &AsyncMutex<impl Sink<Message, Error = WsError> + Unpin>,
) -> Over {
    while let Some(Ok(raw)) = from.next().await {
        let seen = read(way, connection, raw);
        *locked(&shared.counts).entry((way, seen.kind.clone())).or_default() += 1;
        let hook = Arc::clone(&*locked(&shared.hook));
        let verdict = match shared.traps.pass(&seen).await {
            Some(verdict) => verdict,
            None => hook(&seen),
        };
        let times = match verdict {
            Verdict::Pass | Verdict::PassAndCut => 1,
            Verdict::Duplicate(times) => times,
            Verdict::Delay(time) => {
                sleep(time).await;
                1
            }
            Verdict::Drop => 0,
            Verdict::Cut => return Over::Cut,
        };
        for _ in 0..times {
            if to.lock().await.send(seen.raw.clone()).await.is_err() && !seen.raw.is_close() {
                return Over::Cut;
            }
        }
        if matches!(verdict, Verdict::PassAndCut) {
            return Over::Cut;
        }
        if seen.raw.is_close() {
            return Over::Closed;
        }
    }
    Over::Cut
}

fn read(way: Way, connection: u64, raw: Message) -> Seen {
    let (kind, said) = match (&raw, way) {
        (Message::Text(text), Way::Up) => named(wire::decode_text(text.as_str()).ok(), Said::ToControlPlane),
        (Message::Text(text), Way::Down) => named(wire::decode_text(text.as_str()).ok(), Said::ToDaemon),
        (Message::Binary(bytes), _) => match Binary::decode(bytes.clone()) {
            Ok(binary) => (if matches!(binary, Binary::Dispatch(..)) { "dispatch" } else { "log" }.to_owned(), Said::Binary(binary)),
            Err(_) => ("unknown".to_owned(), Said::Other),
        },
        (Message::Ping(_), _) => ("ping".to_owned(), Said::Other),
        (Message::Pong(_), _) => ("pong".to_owned(), Said::Other),
        (Message::Close(_), _) => ("close".to_owned(), Said::Other),
        (Message::Frame(_), _) => ("unknown".to_owned(), Said::Other),
    };
    Seen { way, connection, kind, said, raw }
}

/// A message under its `type` on the wire, whatever types there are by now.
fn named<M: Serialize>(message: Option<M>, said: impl Fn(M) -> Said) -> (String, Said) {
    let Some(message) = message else { return ("unknown".to_owned(), Said::Other) };
    let kind = serde_json::to_value(&message).ok().and_then(|value: Value| value["type"].as_str().map(str::to_owned));
    (kind.unwrap_or_default(), said(message))
}
