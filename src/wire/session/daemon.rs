//! The daemon's end.

use std::time::Duration;

use bytes::Bytes;

use super::{Alive, Due, Frame, INTERVALS, Violation, WELCOME_DEADLINE};
use crate::wire::{self, Binary, Close, DispatchEnvelope, HEARTBEAT_INTERVAL, Heartbeat, MAX_OPEN_ITEMS, TextError, ToDaemon};

/// What a frame of the control plane says.
#[derive(Debug, PartialEq)]
pub enum FromControlPlane {
    /// Sign of life, and nothing else.
    Nothing,
    /// A message for the daemon's state.
    Message(Box<ToDaemon>),
    /// Work.
    Dispatch(DispatchEnvelope, Bytes),
    /// The session is over, and why.
    Close(Close),
    /// A message of a type that this release does not know: passed over.
    Unknown(String),
}

/// One connection, from the daemon's side.
#[derive(Clone, Debug)]
pub struct DaemonSession {
    alive: Alive,
    /// Open dispatches that were listed so far, while others are to follow.
    listed: Option<usize>,
}

impl DaemonSession {
    /// Begins at `now`; the daemon says `hello` next.
    pub fn new(now: Duration) -> Self {
        Self { alive: Alive::new(HEARTBEAT_INTERVAL, WELCOME_DEADLINE, now), listed: None }
    }

    fn is_open(&self) -> bool {
        self.alive.deadline.is_none()
    }

    /// Takes a frame.
    ///
    /// # Errors
    /// [`Violation`] when it is malformed or comes where it must not: the connection is to be closed. A message of an unknown type is none.
    pub fn heard(&mut self, frame: Frame, now: Duration) -> Result<FromControlPlane, Violation> {
        self.alive.beat.heard(now);
        match frame {
            Frame::Alive => Ok(FromControlPlane::Nothing),
            Frame::Text(text) => match wire::decode_text::<ToDaemon>(&text) {
                Err(TextError::Unknown { kind }) => Ok(FromControlPlane::Unknown(kind)),
                Err(error) => Err(error.into()),
                Ok(message) => self.message(message, now),
            },
            Frame::Binary(_) if !self.is_open() => Err(Violation::unexpected("a binary frame came before welcome")),
            Frame::Binary(bytes) => match Binary::decode(bytes)? {
                Binary::Dispatch(envelope, body) => Ok(FromControlPlane::Dispatch(envelope, body)),
                Binary::Log(..) => Err(Violation::unexpected("the control plane sent a log chunk")),
            },
        }
    }

    fn message(&mut self, message: ToDaemon, now: Duration) -> Result<FromControlPlane, Violation> {
        match message {
            ToDaemon::Heartbeat {} => Ok(FromControlPlane::Nothing),
            ToDaemon::Close(close) => Ok(FromControlPlane::Close(close)),
            ToDaemon::Welcome(_) if self.is_open() => Err(Violation::unexpected("welcome comes once")),
            ToDaemon::Welcome(welcome) => {
                let interval = Duration::from_millis(welcome.heartbeat_ms).clamp(INTERVALS.0, INTERVALS.1);
                self.alive = Alive { beat: Heartbeat::new(interval, now), deadline: None };
                self.listed = welcome.more.then_some(welcome.open.len());
                Ok(FromControlPlane::Message(Box::new(ToDaemon::Welcome(welcome))))
            }
            ToDaemon::Open { open, more } => {
                let listed = self.listed.take().ok_or_else(|| Violation::unexpected("open comes only behind a welcome that announced more"))?;
                let listed = listed.saturating_add(open.len());
                if listed > MAX_OPEN_ITEMS {
                    return Err(Violation::unexpected(format!("more than {MAX_OPEN_ITEMS} dispatches are open")));
                }
                self.listed = more.then_some(listed);
                Ok(FromControlPlane::Message(Box::new(ToDaemon::Open { open, more })))
            }
            _ if self.is_open() && self.listed.is_some() => Err(Violation::unexpected("a message came before all open dispatches were listed")),
            message if self.is_open() => Ok(FromControlPlane::Message(Box::new(message))),
            _ => Err(Violation::unexpected("the first message must be welcome")),
        }
    }

    /// What is due at `now`.
    ///
    /// # Errors
    /// [`Violation::NoWelcome`] or [`Violation::Silent`].
    pub fn due(&mut self, now: Duration) -> Result<Due, Violation> {
        self.alive.due(now, || Violation::NoWelcome)
    }
}
