//! One daemon's session, from its `hello` to the last word.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

use super::outbox::{self, OUTBOX, Outgoing};
use super::session::Session;
use super::{Hub, ingest, receive};
use crate::control_plane::store::{Cluster, Fence, Instance, OpenSession, Phase, Place, StoreError};
use crate::error::Chain;
use crate::types::Placement;
use crate::wire::{self, Close, CloseCode, HEARTBEAT_INTERVAL, Hello, OpenItem, OpenPhase, ToControlPlane, ToDaemon, Welcome};

/// How long a daemon may take to say `hello` after its upgrade.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// When a daemon shall try again after the store failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long a peer may take to hear a goodbye.
const LINGER: Duration = Duration::from_secs(2);

/// Why a session ends from our side.
pub(super) enum End {
    /// The peer went away, or was told to.
    Gone,
    /// The peer broke the protocol.
    Protocol(String),
    /// The store failed.
    Store(StoreError),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Runs a session of a daemon whose token and node name were read in the handshake.
pub(super) async fn run<S>(hub: Arc<Hub>, cluster: Cluster, placement: Placement, socket: WebSocketStream<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, mut stream) = socket.split();
    let place = Place { cluster: cluster.name.clone(), placement };
    let hello = match timeout(HELLO_TIMEOUT, read_hello(&mut stream, &place.placement)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(End::Protocol(message))) => return refuse(sink, &mut stream, &place, message).await,
        Ok(Err(End::Gone | End::Store(_))) => return,
        Err(_) => return refuse(sink, &mut stream, &place, format!("no hello within {} s", HELLO_TIMEOUT.as_secs())).await,
    };
    let opening = OpenSession { place: place.clone(), hello: hello.clone(), now: Timestamp::now() };
    let opened = match hub.store.open_session(opening).await {
        Ok(opened) => opened,
        Err(error) => return tracing::error!(node = %place.placement, error = %Chain(&error), "A session cannot be opened"),
    };
    let (sender, receiver) = mpsc::channel(OUTBOX);
    let fence = Fence { place, epoch: opened.epoch };
    let session = Arc::new(Session::new(fence, cluster.install.clone(), hello.node.clone(), sender, hub.stop.child_token()));
    // A session that ends early, by a panic too, must not keep its successor waiting.
    let finished = session.finished().clone().drop_guard();
    let writer = tokio::spawn(outbox::run(Arc::clone(&hub), Arc::clone(&session), receiver, sink));
    // Before anybody else can reach the session: `welcome` is the first word.
    session.say(Outgoing::Message(ToDaemon::Welcome(Box::new(welcome(&hub, &session, &cluster, &opened.open))))).await;
    if let Some(older) = hub.register(&session) {
        let message = "a newer session of the same node took over".to_owned();
        older.close(Close { code: CloseCode::Displaced, message, retry_after_ms: None });
        if !Arc::ptr_eq(&older, &session) {
            tracing::warn!(node = %session.place().placement, epoch = session.epoch(), "A daemon displaces an older session of its node");
            older.finished().cancelled().await; // two must never write one log
        }
    }
    let node = session.place().placement.clone();
    tracing::info!(cluster = %cluster.name, node = %node, epoch = session.epoch(), version = %hello.version, held = hello.held.len(), "Daemon connected");
    serve(&hub, &session, opened.logs, &mut stream).await;
    session.abandon();
    hub.remove(&session);
    drop(finished);
    if let Err(error) = hub.store.close_session(session.fence().clone(), session.heard()).await {
        tracing::error!(node = %node, error = %Chain(&error), "The end of a session was not stored");
    }
    let _ = writer.await; // bounded by its own time-outs
    linger(&mut stream).await;
    tracing::info!(node = %node, epoch = session.epoch(), "Daemon disconnected");
}

/// Reads on for a moment after the goodbye: a socket that is closed with bytes unread is reset, and the goodbye lost with it.
async fn linger<S>(stream: &mut S)
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    let drain = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(LINGER, drain).await; // a peer that goes on talking is cut off
}

/// Ends a session for a reason of ours: tells the log, and the peer.
fn conclude(session: &Session, end: End) {
    let node = &session.place().placement;
    let close = match end {
        End::Gone => return session.abandon(),
        End::Protocol(message) => {
            tracing::warn!(node = %node, error = %message, "A daemon broke the protocol");
            Close { code: CloseCode::Protocol, message, retry_after_ms: None }
        }
        End::Store(error) => {
            tracing::error!(node = %node, error = %Chain(&error), "A session ends because the store failed");
            let message = "the control plane cannot use its store".to_owned();
            Close { code: CloseCode::GoAway, message, retry_after_ms: u64::try_from(RETRY_AFTER.as_millis()).ok() }
        }
    };
    session.close(close);
}

/// Tells a peer that never became a session why not.
async fn refuse<S>(mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin, stream: &mut S, place: &Place, message: String)
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    tracing::warn!(node = %place.placement, error = %message, "A daemon broke the protocol");
    let close = ToDaemon::Close(Close { code: CloseCode::Protocol, message, retry_after_ms: None });
    let Ok(text) = wire::encode_text(&close) else { return };
    let goodbye = async {
        sink.send(Message::text(text)).await?;
        sink.close().await
    };
    let _ = timeout(LINGER, goodbye).await; // a courtesy: the peer may be gone
    linger(stream).await;
}

async fn read_hello<S>(stream: &mut S, placement: &Placement) -> Result<Box<Hello>, End>
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    loop {
        let hello = match stream.next().await {
            Some(Ok(Message::Text(text))) => {
                wire::decode_text::<ToControlPlane>(text.as_str()).map_err(|error| End::Protocol(Chain(&error).to_string()))?
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
            Some(Ok(Message::Binary(_) | Message::Frame(_))) => return Err(End::Protocol("the first message must be hello".into())),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(End::Gone),
        };
        return match hello {
            ToControlPlane::Hello(hello) if hello.role == placement.role() && hello.node.as_ref().map(|node| &node.name) == placement.node() => {
                Ok(hello)
            }
            ToControlPlane::Hello(hello) => {
                let node = hello.node.map_or_else(|| "no node".to_owned(), |node| node.name.to_string());
                Err(End::Protocol(format!("hello names the role {} and {node}, the handshake {}", hello.role, placement.whose())))
            }
            _ => Err(End::Protocol("the first message must be hello".into())),
        };
    }
}

/// Tells the daemon what is owed and handles what it sends, until it is gone or wrong.
async fn serve<S>(hub: &Arc<Hub>, session: &Arc<Session>, logs: Vec<Instance>, stream: &mut S)
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    session.look_at_queue();
    // A deletion that was asked for while the session opened is in neither `welcome` nor the hub's hands.
    match hub.store.unconfirmed_deletions(session.place().clone()).await {
        Ok(deletions) => {
            for instance in deletions {
                session.say(Outgoing::Message(ToDaemon::Cancel { instance })).await;
            }
        }
        Err(error) => return conclude(session, End::Store(error)),
    }
    let (intake, chunks) = mpsc::channel(ingest::INTAKE);
    let ingesting = tokio::spawn(ingest::run(Arc::clone(hub), Arc::clone(session), chunks));
    conclude(session, receive::run(hub, session, logs, stream, &intake).await);
    drop(intake);
    let _ = ingesting.await; // ends with its current batch, now that the session closes
}

fn welcome(hub: &Hub, session: &Session, cluster: &Cluster, open: &[Instance]) -> Welcome {
    let now = Timestamp::now();
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let item = |row: &Instance| OpenItem {
        dispatch_id: row.dispatch_id.clone(),
        attempt: row.attempt,
        instance: row.name.clone(),
        namespace: row.kube_namespace.clone().unwrap_or_default(),
        phase: if row.phase == Phase::Created { OpenPhase::Created } else { OpenPhase::Accepted },
        uid: row.seen.uid.clone(),
        seq: row.report_seq,
        cancel: row.delete_requested,
        accepted_ms_ago: row.accepted_at.map_or(0, |at| u64::try_from(now.duration_since(at).as_millis()).unwrap_or_default()),
    };
    Welcome {
        cluster: cluster.name.clone(),
        install: cluster.install.clone(),
        session: format!("{}/{}/{}", cluster.name, session.place().placement, session.epoch()),
        epoch: session.epoch(),
        heartbeat_ms: milliseconds(HEARTBEAT_INTERVAL),
        lost_after_ms: milliseconds(hub.settings.lost_after),
        open: open.iter().map(item).collect(),
    }
}
