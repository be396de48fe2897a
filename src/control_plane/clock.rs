//! What time it is: the wall clock for people and rows, the monotonic one for everything that waits.
//!
//! The wall clock may be set, forwards and backwards; nothing that waits or compares ages may notice.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// A length of time as a number for a message or a log line.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The control plane's clocks.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's; monotonic time counts from this process's start.
    System { started: Instant },
    /// A simulation's.
    #[cfg(test)]
    Simulated(std::sync::Arc<std::sync::Mutex<(Timestamp, Duration)>>),
}

impl Clock {
    pub(crate) fn system() -> Self {
        Self::System { started: Instant::now() }
    }

    /// For people and for what is stored.
    pub(crate) fn wall(&self) -> Timestamp {
        match self {
            Self::System { .. } => Timestamp::now(),
            #[cfg(test)]
            Self::Simulated(now) => super::hub::locked(now).0,
        }
    }

    /// Since this process started.
    pub(crate) fn mono(&self) -> Duration {
        match self {
            Self::System { started } => started.elapsed(),
            #[cfg(test)]
            Self::Simulated(now) => super::hub::locked(now).1,
        }
    }
}
