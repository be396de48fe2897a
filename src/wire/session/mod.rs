//! Both ends of a session as state machines without a socket, a clock or a task.
//!
//! They hold what is true of any conversation: who speaks first, which frames may come, how long silence may last. Times are durations since
//! the connection opened, on a monotonic clock that the caller reads. What a message *means* is decided elsewhere: by the daemon's state
//! and by the control plane's store.
//!
//! ```text
//! bytes ─► Frame ─► heard(frame, now) ─► Heard | Violation          due(now) ─► Beat | Wait | Violation
//! ```

mod control_plane;
mod daemon;
#[cfg(test)]
mod tests;

use std::time::Duration;

use bytes::Bytes;

use super::{BinaryError, Heartbeat, TextError};

pub use control_plane::{ControlPlaneSession, FromDaemon};
pub use daemon::{DaemonSession, FromControlPlane};

/// How long a daemon may take to say `hello`.
pub const HELLO_DEADLINE: Duration = Duration::from_secs(10);
/// How long the control plane may take to answer `hello`: what it gives us for ours, and as much for its store.
pub const WELCOME_DEADLINE: Duration = Duration::from_secs(20);
/// Shortest and longest interval of heartbeats that a `welcome` may name.
const INTERVALS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(300));

/// One message of the websocket, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A text frame.
    Text(String),
    /// A binary frame.
    Binary(Bytes),
    /// A ping or pong: the peer lives.
    Alive,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send a heartbeat now.
    Beat,
    /// Nothing until then, unless a frame comes.
    Wait(Duration),
}

/// Why a session cannot go on: its peer broke the protocol, or fell silent.
#[derive(Debug, thiserror::Error)]
pub enum Violation {
    /// A text frame that is no message.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A binary frame that is none.
    #[error(transparent)]
    Binary(#[from] BinaryError),
    /// A message that has no place here.
    #[error("{0}")]
    Unexpected(String),
    /// No `hello` in time.
    #[error("no hello within {} s", HELLO_DEADLINE.as_secs())]
    NoHello,
    /// No `welcome` in time.
    #[error("hello was not answered within {} s", WELCOME_DEADLINE.as_secs())]
    NoWelcome,
    /// Nothing was heard for two intervals of heartbeats.
    #[error("the peer fell silent: two heartbeats are missing")]
    Silent,
}

impl Violation {
    fn unexpected(what: impl Into<String>) -> Self {
        Self::Unexpected(what.into())
    }

    /// Whether the peer is only gone, and has broken no rule.
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Silent)
    }
}

/// Liveness with a deadline for the first message.
#[derive(Clone, Debug)]
struct Alive {
    beat: Heartbeat,
    /// Until when the first message must have come; `None` once it has.
    deadline: Option<Duration>,
}

impl Alive {
    fn new(interval: Duration, deadline: Duration, now: Duration) -> Self {
        Self { beat: Heartbeat::new(interval, now), deadline: Some(now + deadline) }
    }

    fn due(&mut self, now: Duration, late: fn() -> Violation) -> Result<Due, Violation> {
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Err(late());
        }
        match self.beat.poll(now) {
            super::Beat::Dead => Err(Violation::Silent),
            super::Beat::Send => Ok(Due::Beat),
            super::Beat::Wait(until) => Ok(Due::Wait(self.deadline.map_or(until, |deadline| until.min(deadline)))),
        }
    }
}
