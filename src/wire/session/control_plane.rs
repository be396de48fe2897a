//! The control plane's end.

use std::time::Duration;

use bytes::Bytes;

use super::{Alive, Due, Frame, HELLO_DEADLINE, Violation};
use crate::types::{Placement, Role};
use crate::wire::{self, Binary, Hello, LogChunk, MAX_LOG_CHUNK, MAX_UID, TextError, ToControlPlane};

/// What a frame of the daemon says.
#[derive(Debug, PartialEq)]
pub enum FromDaemon {
    /// Sign of life, and nothing else.
    Nothing,
    /// The first message: answer it with `welcome` or a close.
    Hello(Box<Hello>),
    /// Any later one.
    Message(Box<ToControlPlane>),
    /// Bytes of a log.
    Log(LogChunk, Bytes),
    /// A message of a type that this release does not know: passed over.
    Unknown(String),
}

/// One connection, from the control plane's side.
#[derive(Clone, Debug)]
pub struct ControlPlaneSession {
    /// Who it is with, as the handshake proved.
    placement: Placement,
    alive: Alive,
}

impl ControlPlaneSession {
    /// Begins at `now`, with the daemon of this place. `interval` is that of the heartbeats, which `welcome` names.
    pub fn new(placement: Placement, interval: Duration, now: Duration) -> Self {
        Self { placement, alive: Alive::new(interval, HELLO_DEADLINE, now) }
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// [`Violation`] when it is malformed or comes where it must not: the session is to be closed with the reason.
    pub fn heard(&mut self, frame: Frame, now: Duration) -> Result<FromDaemon, Violation> {
        let said = self.read(frame)?;
        self.alive.beat.heard(now);
        Ok(said)
    }

    /// Counts what was just handled as a sign of life, at the time when that was done: what waited in our own hands is not the peer's silence.
    pub fn handled(&mut self, now: Duration) {
        self.alive.beat.heard(now);
    }

    fn read(&mut self, frame: Frame) -> Result<FromDaemon, Violation> {
        match frame {
            Frame::Alive => Ok(FromDaemon::Nothing),
            Frame::Text(text) => match wire::decode_text::<ToControlPlane>(&text) {
                Err(TextError::Unknown { kind }) if self.alive.deadline.is_none() => Ok(FromDaemon::Unknown(kind)),
                Err(error) => Err(error.into()),
                Ok(message) => self.message(message),
            },
            Frame::Binary(_) if self.alive.deadline.is_some() => Err(Violation::unexpected("the first message must be hello")),
            Frame::Binary(bytes) => match Binary::decode(bytes)? {
                Binary::Log(_, bytes) if bytes.len() > MAX_LOG_CHUNK => {
                    Err(Violation::unexpected(format!("a log chunk of {} bytes is over the limit of {MAX_LOG_CHUNK}", bytes.len())))
                }
                Binary::Log(chunk, bytes) => Ok(FromDaemon::Log(chunk, bytes)),
                Binary::Dispatch(..) => Err(Violation::unexpected("a daemon sends no dispatch")),
            },
        }
    }

    fn message(&mut self, message: ToControlPlane) -> Result<FromDaemon, Violation> {
        match message {
            ToControlPlane::Hello(hello) if self.alive.deadline.is_some() => self.hello(hello),
            ToControlPlane::Hello(_) => Err(Violation::unexpected("hello comes once")),
            _ if self.alive.deadline.is_some() => Err(Violation::unexpected("the first message must be hello")),
            ToControlPlane::Heartbeat {} => Ok(FromDaemon::Nothing),
            ToControlPlane::NodeFacts(facts) if self.placement.node() != Some(&facts.name) => {
                Err(Violation::unexpected("node facts of another node"))
            }
            ToControlPlane::NodeGone { .. } | ToControlPlane::NodeBack { .. } if self.placement.role() != Role::Cluster => {
                Err(Violation::unexpected("a node's daemon speaks for its own node only"))
            }
            ToControlPlane::Report(report) if report.observation.uid.as_ref().is_some_and(|uid| uid.len() > MAX_UID) => {
                Err(Violation::unexpected(format!("the UID in a report is over the limit of {MAX_UID} bytes")))
            }
            message => Ok(FromDaemon::Message(Box::new(message))),
        }
    }

    /// Identity comes from the handshake; a `hello` that contradicts it is a mistake, not another identity.
    fn hello(&mut self, hello: Box<Hello>) -> Result<FromDaemon, Violation> {
        let node = hello.node.as_ref().map(|node| &node.name);
        if hello.role != self.placement.role() || node != self.placement.node() {
            let node = node.map_or_else(|| "no node".to_owned(), |node| format!("node {node}"));
            return Err(Violation::unexpected(format!("hello names the role {} and {node}, the handshake {}", hello.role, self.placement.whose())));
        }
        self.alive.deadline = None;
        Ok(FromDaemon::Hello(hello))
    }

    /// What is due at `now`.
    ///
    /// # Errors
    /// [`Violation::NoHello`] or [`Violation::Silent`].
    pub fn due(&mut self, now: Duration) -> Result<Due, Violation> {
        match (self.alive.due(now, || Violation::NoHello)?, self.alive.deadline) {
            // `welcome` is the first word: no beat before it.
            (Due::Beat, Some(deadline)) => Ok(Due::Wait(deadline)),
            (due, _) => Ok(due),
        }
    }
}
