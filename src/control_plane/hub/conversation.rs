//! One daemon's session, from its `hello` to the last word: moves frames between the socket and what decides.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{self, Message};

use super::identity::{Away, Visitor};
use super::ingest;
use super::nodes::NODES_INTERVAL;
use super::opening::{self, Opened};
use super::outbox::{self, Outgoing};
use super::receive::Receiver;
use super::session::Session;
use super::{Hub, unless_cancelled};
use crate::control_plane::clock::milliseconds;
use crate::control_plane::store::{Instance, StoreError};
use crate::error::Chain;
use crate::types::Role;
use crate::wire::{self, Close, CloseCode, ControlPlaneSession, Due, Frame, FromDaemon, HEARTBEAT_INTERVAL, Hello, ToDaemon, Violation};

/// When a daemon shall try again after the store failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long a peer may take to hear a goodbye.
const LINGER: Duration = Duration::from_secs(2);

/// Why a session ends from our side.
#[derive(Debug)]
pub(crate) enum End {
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

impl From<Violation> for End {
    fn from(violation: Violation) -> Self {
        if violation.is_silence() { Self::Gone } else { Self::Protocol(Chain(&violation).to_string()) }
    }
}

/// The socket's receiving half with its session's rules: gives what frames say, and answers to what is due in between.
struct Peer<S> {
    stream: S,
    machine: ControlPlaneSession,
    started: Instant,
}

impl<S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin> Peer<S> {
    /// The next thing that the daemon says; `None` when a heartbeat is due.
    async fn next(&mut self) -> Result<Option<FromDaemon>, End> {
        loop {
            let until = match self.machine.due(self.started.elapsed())? {
                Due::Beat => return Ok(None),
                Due::Wait(until) => until,
            };
            let message = tokio::select! {
                biased;
                message = self.stream.next() => message,
                () = sleep_until(self.started + until) => continue,
            };
            let frame = frame(message)?.ok_or(End::Gone)?;
            return Ok(Some(self.machine.heard(frame, self.started.elapsed())?));
        }
    }
}

/// A socket's message as a frame; `None` at its end.
fn frame(message: Option<Result<Message, tungstenite::Error>>) -> Result<Option<Frame>, End> {
    match message {
        Some(Ok(Message::Text(text))) => Ok(Some(Frame::Text(text.as_str().to_owned()))),
        Some(Ok(Message::Binary(bytes))) => Ok(Some(Frame::Binary(bytes))),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(Some(Frame::Alive)),
        Some(Ok(Message::Close(_))) | None => Ok(None),
        // A process that was killed or a line that was cut says no goodbye: that breaks no rule.
        Some(Err(tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Ok(None),
        Some(Err(error @ (tungstenite::Error::Capacity(_) | tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)))) => {
            Err(End::Protocol(error.to_string()))
        }
        Some(Err(_)) => Ok(None),
    }
}

/// Runs a session of a daemon whose handshake was looked at.
pub(super) async fn run<S>(hub: Arc<Hub>, visitor: Visitor, socket: WebSocketStream<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, stream) = socket.split();
    let place = visitor.place();
    let machine = ControlPlaneSession::new(place.placement.clone(), HEARTBEAT_INTERVAL, Duration::ZERO);
    let mut peer = Peer { stream, machine, started: Instant::now() };
    let hello = match first(&mut peer).await {
        Ok(hello) => hello,
        Err(End::Protocol(message)) => {
            tracing::warn!(node = %place.placement, error = %message, "A daemon broke the protocol");
            return refuse(sink, &mut peer.stream, Close { code: CloseCode::Protocol, message, retry_after_ms: None }).await;
        }
        Err(End::Gone | End::Store(_)) => return,
    };
    let (version, held) = (hello.version.clone(), hello.held.len());
    let opened = match hub.admit(visitor, &hello).await {
        Ok(admitted) => opening::open(&hub, admitted, place.clone(), hello).await,
        Err(away) => Err(away),
    };
    let opened = match opened {
        Ok(opened) => opened,
        Err(Away::Told(close)) => return refuse(sink, &mut peer.stream, close).await,
        Err(Away::Store(error)) => return tracing::error!(node = %place.placement, error = %Chain(&error), "A session cannot be opened"),
    };
    let Opened { session, outbox, logs, displaced } = opened;
    // A session that ends early, by a panic too, must not keep its successor waiting.
    let finished = session.finished().clone().drop_guard();
    let writer = tokio::spawn(outbox::run(Arc::clone(&hub), Arc::clone(&session), outbox, sink));
    if let Some(older) = displaced {
        older.finished().cancelled().await;
    }
    tracing::info!(cluster = %place.cluster, node = %place.placement, epoch = session.epoch(), version, held, "Daemon connected");
    serve(&hub, &session, logs, &mut peer).await;
    session.abandon();
    hub.remove(&session);
    drop(finished);
    if let Err(error) = hub.store.close_session(session.fence().clone(), session.heard()).await {
        tracing::error!(node = %place.placement, error = %Chain(&error), "The end of a session was not stored");
    }
    let _ = writer.await; // bounded by its own time-outs
    linger(&mut peer.stream).await;
    tracing::info!(node = %place.placement, epoch = session.epoch(), "Daemon disconnected");
}

async fn first<S>(peer: &mut Peer<S>) -> Result<Box<Hello>, End>
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    loop {
        if let Some(FromDaemon::Hello(hello)) = peer.next().await? {
            return Ok(hello);
        }
    }
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
            Close { code: CloseCode::GoAway, message, retry_after_ms: Some(milliseconds(RETRY_AFTER)) }
        }
    };
    session.close(close);
}

/// Tells a peer that never became a session why not.
async fn refuse<S>(mut sink: impl Sink<Message, Error = tungstenite::Error> + Unpin, stream: &mut S, close: Close)
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    let Ok(text) = wire::encode_text(&ToDaemon::Close(close)) else { return };
    let goodbye = async {
        sink.send(Message::text(text)).await?;
        sink.close().await
    };
    let _ = timeout(LINGER, goodbye).await; // a courtesy: the peer may be gone
    linger(stream).await;
}

/// Tells the daemon what is owed and handles what it sends, until it is gone or wrong.
async fn serve<S>(hub: &Arc<Hub>, session: &Arc<Session>, logs: Vec<Instance>, peer: &mut Peer<S>)
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    let (intake, chunks) = mpsc::channel(ingest::INTAKE);
    let ingesting = tokio::spawn(ingest::run(Arc::clone(hub), Arc::clone(session), chunks));
    let receiver = Receiver { hub: Arc::clone(hub), session: Arc::clone(session), intake };
    conclude(session, listen(&receiver, logs, peer).await);
    drop(receiver);
    let _ = ingesting.await; // ends with its current batch, now that the session closes
}

/// Reads and handles until the peer is gone or wrong, or the session is closed.
async fn listen<S>(receiver: &Receiver, logs: Vec<Instance>, peer: &mut Peer<S>) -> End
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    let Some(Err(end)) = unless_cancelled(receiver.session.closing(), talk(receiver, logs, peer)).await else { return End::Gone };
    if matches!(end, End::Gone) {
        tracing::debug!(node = %receiver.session.place().placement, "A daemon went away or was silent for too long");
    }
    end
}

async fn talk<S>(receiver: &Receiver, logs: Vec<Instance>, peer: &mut Peer<S>) -> Result<Infallible, End>
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    receiver.begin(logs).await?;
    let looks_after_nodes = receiver.session.place().placement.role() == Role::Cluster;
    let (mut told, mut tellings) = (None, interval(NODES_INTERVAL));
    loop {
        let next = tokio::select! {
            next = peer.next() => next?,
            _ = tellings.tick(), if looks_after_nodes => {
                receiver.tell_nodes(&mut told).await?;
                continue;
            }
        };
        match next {
            None => receiver.session.say(Outgoing::Message(ToDaemon::Heartbeat {})).await,
            Some(said) => {
                receiver.handle(said).await?;
                peer.machine.handled(peer.started.elapsed());
            }
        }
    }
}
