//! One daemon's session, from its `hello` to its end.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

use super::ingest::{self, Intake};
use super::outbox::{self, OUTBOX, Outgoing};
use super::{Hub, unless_cancelled};
use crate::control_plane::store::{
    Acceptance, Accepted, Cluster, Fence, Instance, OpenSession, OpenedSession, Phase, Place, Refused, Reported, StoreError,
};
use crate::error::Chain;
use crate::types::{DispatchId, InstanceName, KubeNamespace, NodeName};
use crate::wire::{
    self, Ack, Beat, Binary, CheckItem, Close, CloseCode, HEARTBEAT_INTERVAL, Heartbeat, Hello, MAX_LOG_CHUNK, NodeFacts, OpenItem, OpenPhase,
    Rejection, Report, ToControlPlane, ToDaemon, Welcome,
};

/// How long a daemon may take to say `hello` after its upgrade.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// When a daemon shall try again after the store failed.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long a peer may take to hear a goodbye.
const LINGER: Duration = Duration::from_secs(2);
/// Longest stored message of an observation or rejection, in bytes: a person reads it.
const MAX_MESSAGE: usize = 4 << 10;
/// Requests that may be open with one daemon.
const MAX_REQUESTS: usize = 64;

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Ours,
    Foreign,
}

#[derive(Debug)]
enum Answer {
    Check(Vec<CheckItem>),
    Lookup(Found),
}

/// A connected daemon, as the rest of the control plane sees it.
#[derive(Debug)]
pub(crate) struct Session {
    fence: Fence,
    facts: Mutex<NodeFacts>,
    heard: Mutex<Timestamp>,
    outbox: mpsc::Sender<Outgoing>,
    closing: CancellationToken,
    close: Mutex<Option<Close>>,
    /// Cancelled when nothing of this session writes any more.
    finished: CancellationToken,
    requests: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_request: AtomicU64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(crate) fn place(&self) -> &Place {
        &self.fence.place
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.fence.epoch
    }

    pub(super) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What the daemon last said of its node.
    pub(crate) fn facts(&self) -> NodeFacts {
        locked(&self.facts).clone()
    }

    /// When the daemon was last heard.
    pub(crate) fn heard(&self) -> Timestamp {
        *locked(&self.heard)
    }

    /// Queues a message. A daemon that does not read is disconnected instead of waited for.
    pub(crate) fn send(&self, message: ToDaemon) {
        self.queue(Outgoing::Message(message));
    }

    /// Queues a dispatch.
    pub(super) fn offer(&self, dispatch_id: DispatchId) {
        self.queue(Outgoing::Offer(dispatch_id));
    }

    fn queue(&self, outgoing: Outgoing) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.outbox.try_send(outgoing) {
            let message = format!("the daemon left {OUTBOX} messages unread");
            self.close(Close { code: CloseCode::GoAway, message, retry_after_ms: None });
        }
    }

    /// Ends the session with a reason; the first reason stands.
    pub(crate) fn close(&self, close: Close) {
        locked(&self.close).get_or_insert(close);
        self.closing.cancel();
    }

    /// Ends the session without a word.
    pub(super) fn abandon(&self) {
        self.closing.cancel();
    }

    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(super) fn close_reason(&self) -> Option<Close> {
        locked(&self.close).clone()
    }

    /// Asks the daemon to check what it needs; `None` when it does not answer in time.
    pub(crate) async fn check(&self, wait: Duration) -> Option<Vec<CheckItem>> {
        match self.request(wait, |request| ToDaemon::Check { request }).await? {
            Answer::Check(items) => Some(items),
            Answer::Lookup(_) => None,
        }
    }

    /// Asks the daemon for an object that the store does not know, and to delete it if it is ours; `None` when it does not answer.
    pub(crate) async fn delete_unknown(&self, wait: Duration, instance: &InstanceName, labels: &BTreeMap<String, String>) -> Option<Found> {
        let (instance, labels) = (instance.clone(), labels.clone());
        match self.request(wait, |request| ToDaemon::Lookup { request, instance, labels, delete: true }).await? {
            Answer::Lookup(found) => Some(found),
            Answer::Check(_) => None,
        }
    }

    async fn request(&self, wait: Duration, message: impl FnOnce(u64) -> ToDaemon) -> Option<Answer> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut requests = locked(&self.requests);
            if requests.len() >= MAX_REQUESTS || self.closing.is_cancelled() {
                return None;
            }
            requests.insert(request, answer);
        }
        self.send(message(request));
        let answer = unless_cancelled(&self.closing, timeout(wait, answered)).await;
        locked(&self.requests).remove(&request);
        answer?.ok()?.ok()
    }

    fn answer(&self, request: u64, answer: Answer) {
        if let Some(waiting) = locked(&self.requests).remove(&request) {
            let _ = waiting.send(answer); // the asker may have gone
        }
    }
}

/// Why a session ends from our side.
enum End {
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
pub(super) async fn run<S>(hub: Arc<Hub>, cluster: Cluster, node: NodeName, socket: WebSocketStream<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, mut stream) = socket.split();
    let place = Place { cluster: cluster.name.clone(), node };
    let hello = match timeout(HELLO_TIMEOUT, read_hello(&mut stream, &place.node)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(End::Protocol(message))) => return refuse(sink, &mut stream, &place, message).await,
        Ok(Err(End::Gone | End::Store(_))) => return,
        Err(_) => return refuse(sink, &mut stream, &place, format!("no hello within {} s", HELLO_TIMEOUT.as_secs())).await,
    };
    let opening = OpenSession { place: place.clone(), hello: hello.clone(), now: Timestamp::now() };
    let opened = match hub.store.open_session(opening).await {
        Ok(opened) => opened,
        Err(error) => return tracing::error!(node = %place.node, error = %Chain(&error), "A session cannot be opened"),
    };
    let (sender, receiver) = mpsc::channel(OUTBOX);
    let session = Arc::new(Session {
        fence: Fence { place, epoch: opened.epoch },
        facts: Mutex::new(hello.node.clone()),
        heard: Mutex::new(Timestamp::now()),
        outbox: sender,
        closing: hub.stop.child_token(),
        close: Mutex::default(),
        finished: CancellationToken::new(),
        requests: Mutex::default(),
        next_request: AtomicU64::new(1),
    });
    // A session that ends early, by a panic too, must not keep its successor waiting.
    let finished = session.finished.clone().drop_guard();
    let writer = tokio::spawn(outbox::run(Arc::clone(&hub), Arc::clone(&session), receiver, sink));
    if let Some(older) = hub.register(&session) {
        let message = "a newer session of the same node took over".to_owned();
        older.close(Close { code: CloseCode::Displaced, message, retry_after_ms: None });
        if !Arc::ptr_eq(&older, &session) {
            tracing::warn!(node = %session.place().node, epoch = session.epoch(), "A daemon displaces an older session of its node");
            older.finished.cancelled().await; // two must never write one log
        }
    }
    let node = session.place().node.clone();
    tracing::info!(cluster = %cluster.name, node = %node, epoch = session.epoch(), version = %hello.version, held = hello.held.len(), "Daemon connected");
    serve(&hub, &session, &cluster, opened, &mut stream).await;
    session.abandon();
    hub.remove(&session);
    drop(finished);
    if let Err(error) = hub.store.close_session(session.fence.clone(), session.heard()).await {
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
    let node = &session.place().node;
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
    tracing::warn!(node = %place.node, error = %message, "A daemon broke the protocol");
    let close = ToDaemon::Close(Close { code: CloseCode::Protocol, message, retry_after_ms: None });
    let Ok(text) = wire::encode_text(&close) else { return };
    let goodbye = async {
        sink.send(Message::text(text)).await?;
        sink.close().await
    };
    let _ = timeout(LINGER, goodbye).await; // a courtesy: the peer may be gone
    linger(stream).await;
}

async fn read_hello<S>(stream: &mut S, node: &NodeName) -> Result<Box<Hello>, End>
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
            ToControlPlane::Hello(hello) if hello.node.name == *node => Ok(hello),
            ToControlPlane::Hello(hello) => Err(End::Protocol(format!("hello names the node {}, the handshake {node}", hello.node.name))),
            _ => Err(End::Protocol("the first message must be hello".into())),
        };
    }
}

/// Welcomes the daemon and handles what it sends, until it is gone or wrong.
async fn serve<S>(hub: &Arc<Hub>, session: &Arc<Session>, cluster: &Cluster, opened: OpenedSession, stream: &mut S)
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    session.send(ToDaemon::Welcome(Box::new(welcome(hub, session, cluster, &opened.open))));
    session.queue(Outgoing::Backlog);
    // A deletion that was asked for while the session opened is in neither `welcome` nor the hub's hands.
    match hub.store.unconfirmed_deletions(session.place().clone()).await {
        Ok(deletions) => deletions.into_iter().for_each(|instance| session.send(ToDaemon::Cancel { instance })),
        Err(error) => return conclude(session, End::Store(error)),
    }
    let (intake, chunks) = mpsc::channel(ingest::INTAKE);
    let ingesting = tokio::spawn(ingest::run(Arc::clone(hub), Arc::clone(session), chunks));
    conclude(session, receive(hub, session, opened.logs, stream, &intake).await);
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
        session: format!("{}/{}/{}", cluster.name, session.place().node, session.epoch()),
        epoch: session.epoch(),
        heartbeat_ms: milliseconds(HEARTBEAT_INTERVAL),
        lost_after_ms: milliseconds(hub.settings.lost_after),
        open: open.iter().map(item).collect(),
    }
}

async fn receive<S>(hub: &Hub, session: &Session, logs: Vec<Instance>, stream: &mut S, intake: &mpsc::Sender<Intake>) -> End
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    for row in logs {
        if hand_over(session, intake, Intake::Follow(Box::new(row))).await.is_none() {
            return End::Gone;
        }
    }
    let started = Instant::now();
    let mut beat = Heartbeat::new(HEARTBEAT_INTERVAL, Duration::ZERO);
    loop {
        let until = match beat.poll(started.elapsed()) {
            Beat::Send => {
                session.send(ToDaemon::Heartbeat {});
                continue;
            }
            Beat::Dead => {
                tracing::warn!(node = %session.place().node, "A daemon was silent for too long");
                return End::Gone;
            }
            Beat::Wait(until) => until,
        };
        let message = tokio::select! {
            biased;
            () = session.closing.cancelled() => return End::Gone,
            message = stream.next() => message,
            () = sleep_until(started + until) => continue,
        };
        let handled = match message {
            Some(Ok(Message::Text(text))) => match wire::decode_text(text.as_str()) {
                Ok(message) => handle(hub, session, intake, message).await,
                Err(error) => Err(End::Protocol(Chain(&error).to_string())),
            },
            Some(Ok(Message::Binary(frame))) => log_chunk(session, intake, frame).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => return End::Gone,
            Some(Err(error @ (tungstenite::Error::Capacity(_) | tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)))) => {
                return End::Protocol(error.to_string());
            }
            Some(Err(_)) => return End::Gone,
        };
        if let Err(end) = handled {
            return end;
        }
        // Read after handling: what waited in our own hands is not the peer's silence.
        beat.heard(started.elapsed());
        *locked(&session.heard) = Timestamp::now();
    }
}

/// Passes something to the ingest; `None` when the session closes meanwhile.
async fn hand_over(session: &Session, intake: &mpsc::Sender<Intake>, item: Intake) -> Option<()> {
    unless_cancelled(&session.closing, intake.send(item)).await?.ok()
}

async fn log_chunk(session: &Session, intake: &mpsc::Sender<Intake>, frame: Bytes) -> Result<(), End> {
    match Binary::decode(frame) {
        Ok(Binary::Log(chunk, bytes)) if bytes.len() <= MAX_LOG_CHUNK => {
            hand_over(session, intake, Intake::Chunk(chunk, bytes)).await.ok_or(End::Gone)
        }
        Ok(Binary::Log(_, bytes)) => Err(End::Protocol(format!("a log chunk of {} bytes is over the limit of {MAX_LOG_CHUNK}", bytes.len()))),
        Ok(Binary::Dispatch(..)) => Err(End::Protocol("a daemon sends no dispatch".into())),
        Err(error) => Err(End::Protocol(Chain(&error).to_string())),
    }
}

async fn handle(hub: &Hub, session: &Session, intake: &mpsc::Sender<Intake>, message: ToControlPlane) -> Result<(), End> {
    match message {
        ToControlPlane::Hello(_) => return Err(End::Protocol("hello comes once".into())),
        ToControlPlane::Heartbeat {} => {}
        ToControlPlane::Accepted { dispatch_id, attempt, namespace } => {
            let Ok(kube_namespace) = namespace.parse::<KubeNamespace>() else {
                return Err(End::Protocol("accepted names no valid namespace".into()));
            };
            let acceptance = Acceptance { dispatch_id, attempt, kube_namespace, now: Timestamp::now() };
            accepted(hub, session, acceptance).await?;
        }
        ToControlPlane::Rejected { dispatch_id, attempt, mut rejection } => {
            shorten(&mut rejection.message);
            shorten(&mut rejection.rule);
            rejected(hub, session, dispatch_id, attempt, rejection).await?;
        }
        ToControlPlane::Report(mut report) => {
            shorten(&mut report.observation.message);
            reported(hub, session, intake, report).await?;
        }
        ToControlPlane::LogEnd { stream, reason, offset } => {
            hand_over(session, intake, Intake::End { stream, reason, offset }).await.ok_or(End::Gone)?;
        }
        ToControlPlane::CheckResult { request, items } => session.answer(request, Answer::Check(items)),
        ToControlPlane::LookupResult { request, found, foreign } => {
            let found = match (foreign, found) {
                (true, _) => Found::Foreign,
                (false, true) => Found::Ours,
                (false, false) => Found::Nothing,
            };
            session.answer(request, Answer::Lookup(found));
        }
        ToControlPlane::NodeFacts(facts) if facts.name == session.place().node => *locked(&session.facts) = facts,
        ToControlPlane::NodeFacts(_) => return Err(End::Protocol("node facts of another node".into())),
    }
    Ok(())
}

/// Someone else's dispatch, or one that never was: dropped, and told in the log.
fn foreign(session: &Session, dispatch_id: &DispatchId, what: &'static str) {
    tracing::warn!(node = %session.place().node, dispatch = %dispatch_id, message_type = what, verdict = "foreign", "A daemon spoke of what is not placed there");
}

async fn accepted(hub: &Hub, session: &Session, acceptance: Acceptance) -> Result<(), End> {
    let (dispatch_id, attempt) = (acceptance.dispatch_id.clone(), acceptance.attempt);
    match hub.store.accept(session.fence.clone(), acceptance).await? {
        Accepted::Committed => {
            session.send(ToDaemon::AcceptedAck { dispatch_id: dispatch_id.clone(), attempt });
            hub.changes.touch(&dispatch_id);
        }
        Accepted::Unwanted { instance } => session.send(ToDaemon::Cancel { instance }),
        Accepted::Earlier => tracing::warn!(dispatch = %dispatch_id, "Accepted in an earlier session already: not acknowledged again"),
        Accepted::Stale => session.abandon(),
        Accepted::Foreign => foreign(session, &dispatch_id, "accepted"),
    }
    Ok(())
}

async fn rejected(hub: &Hub, session: &Session, dispatch_id: DispatchId, attempt: crate::types::Attempt, rejection: Rejection) -> Result<(), End> {
    let (code, rule) = (rejection.code, rejection.rule.clone());
    match hub.store.refuse(session.fence.clone(), dispatch_id.clone(), attempt, rejection, Timestamp::now()).await? {
        Refused::Ended => {
            tracing::info!(node = %session.place().node, dispatch = %dispatch_id, code = %code, rule, "Dispatch rejected");
            hub.changes.touch(&dispatch_id);
        }
        Refused::NextAttempt => {
            session.offer(dispatch_id.clone());
            hub.changes.touch(&dispatch_id);
        }
        Refused::Ignored => {}
        Refused::Stale => session.abandon(),
        Refused::Foreign => foreign(session, &dispatch_id, "rejected"),
    }
    Ok(())
}

async fn reported(hub: &Hub, session: &Session, intake: &mpsc::Sender<Intake>, report: Box<Report>) -> Result<(), End> {
    let (dispatch_id, seq) = (report.dispatch_id.clone(), report.seq);
    if report.epoch != session.epoch() {
        tracing::info!(node = %session.place().node, dispatch = %dispatch_id, seq, epoch = report.epoch, "A report of an older session is ignored");
        return Ok(());
    }
    match hub.store.report(session.fence.clone(), report).await? {
        Reported::Stored(row) => {
            session.send(ToDaemon::Ack(Ack { instance: row.name.clone(), seq: row.report_seq }));
            hub.changes.touch(&dispatch_id);
            tracing::debug!(dispatch = %dispatch_id, instance = %row.name, state = %row.seen.state, reason = %row.seen.reason, seq, "Report stored");
            if row.log.started && !row.log_done() {
                hand_over(session, intake, Intake::Follow(row)).await.ok_or(End::Gone)?;
            }
        }
        Reported::Stale => session.abandon(),
        Reported::Foreign => foreign(session, &dispatch_id, "report"),
    }
    Ok(())
}

/// Cuts a text that a person will read, at a character's border.
fn shorten(text: &mut String) {
    if text.len() > MAX_MESSAGE {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE));
        text.push('…');
    }
}
