//! A daemon at the wire: says what a test tells it to.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use jiff::Timestamp;
use nymph::types::{Observation, Reason, Role, State};
use nymph::wire::{
    self, Binary, Close, Dispatch, DispatchEnvelope, HeldItem, Hello, LogChunk, LogEndReason, NodeFacts, Rejection, RejectionCode, Report,
    ResumePoint, ToControlPlane, ToDaemon, Welcome, Work,
};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{Request, Response};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::plane::{Plane, STUCK};

/// What comes from the control plane, heartbeats aside.
#[derive(Debug)]
pub(crate) enum Incoming {
    Message(ToDaemon),
    Dispatch(DispatchEnvelope, Box<Dispatch>),
    /// The socket ended.
    End,
}

/// How a daemon is turned away.
#[derive(Debug)]
#[allow(dead_code, reason = "only the control plane's tests look into it")]
pub(crate) enum Away {
    /// Before its upgrade: the status and the problem.
    Http(u16, serde_json::Value),
    /// After its hello.
    Closed(Close),
}

pub(crate) struct Daemon {
    socket: WebSocketStream<TcpStream>,
    pub(crate) welcome: Welcome,
}

/// A log that is being followed.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) stream: u64,
    pub(crate) offset: u64,
    pub(crate) resume: ResumePoint,
    pub(crate) credit: u64,
}

/// The upgrade request of a daemon.
pub(crate) fn handshake(plane: &Plane, token: &str, node: &str) -> Request<()> {
    handshake_at(&plane.address, token, node)
}

fn handshake_at(address: &str, token: &str, node: &str) -> Request<()> {
    let mut request = format!("ws://{address}{}", wire::CONNECT_PATH).into_client_request().expect("a request");
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    headers.insert(wire::NODE_HEADER, node.parse().expect("a header"));
    headers.insert("sec-websocket-protocol", wire::SUBPROTOCOL.parse().expect("a header"));
    request
}

/// Upgrades, without a hello.
pub(crate) async fn upgrade(plane: &Plane, request: Request<()>) -> Result<WebSocketStream<TcpStream>, Response<Option<Vec<u8>>>> {
    let stream = TcpStream::connect(&plane.address).await.expect("it listens");
    match timeout(STUCK, client_async(request, stream)).await.expect("it answers") {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["sec-websocket-protocol"], wire::SUBPROTOCOL);
            Ok(socket)
        }
        Err(Error::Http(response)) => Err(*response),
        Err(error) => panic!("the handshake failed: {error}"),
    }
}

pub(crate) fn facts(node: &str) -> NodeFacts {
    NodeFacts {
        name: node.parse().expect("a node name"),
        uid: Some("node-uid".into()),
        labels: BTreeMap::new(),
        taints: vec![],
        allocatable: BTreeMap::new(),
        conditions: vec!["Ready".into()],
        unschedulable: false,
    }
}

pub(crate) fn hello(facts: NodeFacts) -> ToControlPlane {
    hello_holding(facts, vec![])
}

fn hello_holding(facts: NodeFacts, held: Vec<HeldItem>) -> ToControlPlane {
    ToControlPlane::Hello(Box::new(Hello {
        version: "0.1.0".into(),
        role: Role::Node,
        cluster_uid: Some("cluster-uid".into()),
        boot_id: "boot".into(),
        node: Some(facts),
        keys: None,
        policy_digest: "ab".repeat(32),
        capabilities: vec![],
        held,
    }))
}

pub(crate) fn seen(state: State, reason: Reason) -> Observation {
    let now = Timestamp::now();
    Observation {
        state,
        reason,
        message: String::new(),
        exit_code: None,
        uid: Some("pod-uid".into()),
        node: None,
        created_at: Some(now),
        started_at: None,
        finished_at: None,
        observed_at: now,
        has_log: false,
    }
}

pub(crate) fn created() -> Observation {
    seen(State::Starting, Reason::Scheduling)
}

pub(crate) fn running() -> Observation {
    Observation { has_log: true, started_at: Some(Timestamp::now()), ..seen(State::Running, Reason::Running) }
}

pub(crate) fn completed() -> Observation {
    Observation { has_log: true, exit_code: Some(0), finished_at: Some(Timestamp::now()), ..seen(State::Stopped, Reason::Completed) }
}

pub(crate) fn rejection(code: RejectionCode, rule: &str) -> Rejection {
    Rejection { code, rule: rule.into(), message: format!("{rule} says no; ask the cluster's owner") }
}

impl Daemon {
    pub(crate) async fn connect(plane: &Plane, token: &str, node: &str) -> Self {
        Self::connect_with(plane, token, facts(node)).await
    }

    pub(crate) async fn connect_with(plane: &Plane, token: &str, facts: NodeFacts) -> Self {
        let request = handshake(plane, token, facts.name.as_str());
        let socket = upgrade(plane, request).await.unwrap_or_else(|response| panic!("refused: {response:?}"));
        let mut daemon = Self { socket, welcome: placeholder() };
        daemon.send(hello(facts)).await;
        match daemon.next().await {
            Incoming::Message(ToDaemon::Welcome(welcome)) => daemon.welcome = *welcome,
            other => panic!("welcome was expected: {other:?}"),
        }
        daemon
    }

    /// Dials with a handshake and a hello of the test's own.
    pub(crate) async fn dial(plane: &Plane, request: Request<()>, hello: ToControlPlane) -> Result<Self, Away> {
        let socket = upgrade(plane, request).await.map_err(|response| {
            let body = response.body().as_deref().unwrap_or_default();
            Away::Http(response.status().as_u16(), serde_json::from_slice(body).unwrap_or_default())
        })?;
        let mut daemon = Self { socket, welcome: placeholder() };
        daemon.send(hello).await;
        match daemon.next().await {
            Incoming::Message(ToDaemon::Welcome(welcome)) => daemon.welcome = *welcome,
            Incoming::Message(ToDaemon::Close(close)) => return Err(Away::Closed(close)),
            other => panic!("welcome or close was expected: {other:?}"),
        }
        Ok(daemon)
    }

    /// Connects, and lists what it holds.
    pub(crate) async fn connect_holding(plane: &Plane, token: &str, node: &str, held: Vec<HeldItem>) -> Self {
        let socket = upgrade(plane, handshake(plane, token, node)).await.unwrap_or_else(|response| panic!("refused: {response:?}"));
        let mut daemon = Self { socket, welcome: placeholder() };
        daemon.send(hello_holding(facts(node), held)).await;
        match daemon.next().await {
            Incoming::Message(ToDaemon::Welcome(welcome)) => daemon.welcome = *welcome,
            other => panic!("welcome was expected: {other:?}"),
        }
        daemon
    }

    /// Connects, or not, when the server may be going away at any moment.
    pub(crate) async fn try_connect(address: &str, token: &str, facts: NodeFacts) -> Option<Self> {
        let stream = TcpStream::connect(address).await.ok()?;
        let (socket, _) = client_async(handshake_at(address, token, facts.name.as_str()), stream).await.ok()?;
        let mut daemon = Self { socket, welcome: placeholder() };
        daemon.try_send_raw(Message::text(wire::encode_text(&hello(facts)).expect("it fits"))).await;
        match daemon.next().await {
            Incoming::Message(ToDaemon::Welcome(welcome)) => daemon.welcome = *welcome,
            _ => return None,
        }
        Some(daemon)
    }

    /// Says yes, if anybody hears it.
    pub(crate) async fn try_accept(&mut self, envelope: &DispatchEnvelope) {
        let (dispatch_id, attempt) = (envelope.dispatch_id.clone(), envelope.attempt);
        let accepted = ToControlPlane::Accepted { dispatch_id, attempt, namespace: "nymph-runs".into() };
        self.try_send_raw(Message::text(wire::encode_text(&accepted).expect("it fits"))).await;
    }

    /// Reports, if anybody hears it.
    pub(crate) async fn try_report(&mut self, envelope: &DispatchEnvelope, seq: u64, observation: Observation) {
        let DispatchEnvelope { dispatch_id, attempt, instance, .. } = envelope.clone();
        let report = Report { dispatch_id, attempt, instance, seq, epoch: self.welcome.epoch, observation };
        self.try_send_raw(Message::text(wire::encode_text(&ToControlPlane::Report(Box::new(report))).expect("it fits"))).await;
    }

    /// A socket whose hello is the test's own affair.
    pub(crate) fn raw(socket: WebSocketStream<TcpStream>) -> Self {
        Self { socket, welcome: placeholder() }
    }

    pub(crate) async fn send(&mut self, message: ToControlPlane) {
        self.send_raw(Message::text(wire::encode_text(&message).expect("it fits"))).await;
    }

    pub(crate) async fn send_raw(&mut self, message: Message) {
        timeout(STUCK, self.socket.send(message)).await.expect("the socket takes it").expect("the socket is open");
    }

    /// Like [`Daemon::send_raw`], when the other side may have hung up.
    pub(crate) async fn try_send_raw(&mut self, message: Message) {
        let _ = timeout(STUCK, self.socket.send(message)).await.expect("the socket takes it");
    }

    pub(crate) async fn next(&mut self) -> Incoming {
        loop {
            let message = timeout(STUCK, self.socket.next()).await.expect("something comes");
            match message {
                Some(Ok(Message::Text(text))) => match wire::decode_text(text.as_str()).expect("a known message") {
                    ToDaemon::Heartbeat {} => {}
                    message => return Incoming::Message(message),
                },
                Some(Ok(Message::Binary(frame))) => match Binary::decode(frame).expect("a known frame") {
                    Binary::Dispatch(envelope, bytes) => {
                        let dispatch = Dispatch::decode(&bytes).expect("a dispatch");
                        assert_eq!(envelope.instance, envelope.dispatch_id.instance_name(envelope.attempt), "the name is derived");
                        return Incoming::Dispatch(envelope, Box::new(dispatch));
                    }
                    Binary::Log(..) => panic!("a control plane sends no logs"),
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Incoming::End,
                Some(Ok(_)) => {}
            }
        }
    }

    /// The next message that `wanted` takes; others before it are dropped.
    async fn next_that<T>(&mut self, what: &str, wanted: impl Fn(Incoming) -> Option<T>) -> T {
        loop {
            match self.next().await {
                Incoming::End => panic!("the session ended while waiting for {what}"),
                other => {
                    if let Some(found) = wanted(other) {
                        return found;
                    }
                }
            }
        }
    }

    pub(crate) async fn dispatch(&mut self) -> (DispatchEnvelope, Box<Dispatch>) {
        let wanted = |incoming| if let Incoming::Dispatch(envelope, dispatch) = incoming { Some((envelope, dispatch)) } else { None };
        self.next_that("a dispatch", wanted).await
    }

    /// Says yes, without waiting for the acknowledgement.
    pub(crate) async fn say_accepted(&mut self, envelope: &DispatchEnvelope) {
        let (dispatch_id, attempt) = (envelope.dispatch_id.clone(), envelope.attempt);
        self.send(ToControlPlane::Accepted { dispatch_id, attempt, namespace: "nymph-runs".into() }).await;
    }

    /// Says yes and waits until it may create.
    pub(crate) async fn accept(&mut self, envelope: &DispatchEnvelope) {
        self.say_accepted(envelope).await;
        let id = envelope.dispatch_id.clone();
        let wanted = |incoming| matches!(incoming, Incoming::Message(ToDaemon::AcceptedAck { dispatch_id, .. }) if dispatch_id == id).then_some(());
        self.next_that("accepted_ack", wanted).await;
    }

    pub(crate) async fn reject(&mut self, envelope: &DispatchEnvelope, rejection: Rejection) {
        let (dispatch_id, attempt) = (envelope.dispatch_id.clone(), envelope.attempt);
        self.send(ToControlPlane::Rejected { dispatch_id, attempt, rejection }).await;
    }

    pub(crate) async fn say_report(&mut self, envelope: &DispatchEnvelope, seq: u64, epoch: u64, observation: Observation) {
        let DispatchEnvelope { dispatch_id, attempt, instance, .. } = envelope.clone();
        self.send(ToControlPlane::Report(Box::new(Report { dispatch_id, attempt, instance, seq, epoch, observation }))).await;
    }

    /// Reports and waits until it is on disk. What comes before the acknowledgement is dropped.
    pub(crate) async fn report(&mut self, envelope: &DispatchEnvelope, seq: u64, observation: Observation) {
        self.say_report(envelope, seq, self.welcome.epoch, observation).await;
        let name = envelope.instance.clone();
        let wanted = |incoming| matches!(incoming, Incoming::Message(ToDaemon::Ack(ack)) if ack.instance == name && ack.seq >= seq).then_some(());
        self.next_that("an ack", wanted).await;
    }

    /// Takes the next dispatch as far as an object that is scheduled.
    pub(crate) async fn create(&mut self) -> DispatchEnvelope {
        let (envelope, _) = self.dispatch().await;
        self.accept(&envelope).await;
        self.report(&envelope, 1, created()).await;
        envelope
    }

    /// Waits for a log to be asked for.
    pub(crate) async fn followed(&mut self) -> Followed {
        let wanted = |incoming| match incoming {
            Incoming::Message(ToDaemon::LogsFollow { stream, offset, resume, credit, .. }) => Some(Followed { stream, offset, resume, credit }),
            _ => None,
        };
        self.next_that("logs_follow", wanted).await
    }

    pub(crate) async fn send_log(&mut self, stream: u64, offset: u64, bytes: &[u8]) {
        let chunk = LogChunk { stream, offset, resume: resume_at(offset + bytes.len() as u64) };
        let frame = Binary::Log(chunk, Bytes::copy_from_slice(bytes)).encode().expect("it fits");
        self.try_send_raw(Message::Binary(frame)).await;
    }

    /// Sends and waits until it is on disk.
    pub(crate) async fn log(&mut self, stream: u64, offset: u64, bytes: &[u8]) {
        self.send_log(stream, offset, bytes).await;
        self.acked(stream, offset + bytes.len() as u64).await;
    }

    pub(crate) async fn acked(&mut self, stream: u64, position: u64) {
        let wanted = |incoming| {
            matches!(incoming, Incoming::Message(ToDaemon::LogsCredit { stream: s, acked, .. }) if s == stream && acked >= position).then_some(())
        };
        self.next_that("logs_credit", wanted).await;
    }

    pub(crate) async fn end_log(&mut self, stream: u64, reason: LogEndReason, offset: u64) {
        self.send(ToControlPlane::LogEnd { stream, reason, offset }).await;
    }

    /// The reason for which the session is closed.
    pub(crate) async fn closed(&mut self) -> Close {
        let wanted = |incoming| if let Incoming::Message(ToDaemon::Close(close)) = incoming { Some(close) } else { None };
        self.next_that("close", wanted).await
    }

    pub(crate) async fn cancelled(&mut self) -> nymph::types::InstanceName {
        let wanted = |incoming| if let Incoming::Message(ToDaemon::Cancel { instance }) = incoming { Some(instance) } else { None };
        self.next_that("cancel", wanted).await
    }
}

/// A resume point that tells the position, so that tests can see it come back.
pub(crate) fn resume_at(position: u64) -> ResumePoint {
    ResumePoint { container: "container-1".into(), timestamp: "2026-11-30T00:00:00.000000001Z".into(), lines: 1, partial: position }
}

/// The launch inside a dispatch.
pub(crate) fn launch(dispatch: &Dispatch) -> &wire::LaunchDispatch {
    let Work::Launch(launch) = &dispatch.work;
    launch
}

fn placeholder() -> Welcome {
    Welcome {
        cluster: String::new(),
        install: String::new(),
        session: String::new(),
        epoch: 0,
        heartbeat_ms: 0,
        lost_after_ms: 0,
        open: vec![],
        more: false,
    }
}
