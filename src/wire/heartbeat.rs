//! Liveness of a session, without a clock or a socket.

use std::time::Duration;

/// How often each side sends a heartbeat. **Source:** `design.md` section 4.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(15);
/// A peer that was silent for this many intervals is dead.
pub const MISSED_BEATS: u32 = 2;

/// What to do now about liveness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Send a heartbeat.
    Send,
    /// The peer is dead: drop the connection.
    Dead,
    /// Nothing until then (time since the session began).
    Wait(Duration),
}

/// Decides when to send a heartbeat and when the peer is dead. Times are durations since the session began, on a monotonic
/// clock that the caller reads. Any frame from the peer counts as a sign of life; what we send does not postpone our own beat,
/// since a busy link must not hide that the peer's timer has stopped.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    interval: Duration,
    heard: Duration,
    sent: Duration,
}

impl Heartbeat {
    /// Starts at `now`, with the interval that `welcome` named.
    pub fn new(interval: Duration, now: Duration) -> Self {
        Self { interval, heard: now, sent: now }
    }

    /// A frame arrived.
    pub fn heard(&mut self, now: Duration) {
        self.heard = now;
    }

    /// What is due at `now`. [`Beat::Send`] is answered once an interval.
    pub fn poll(&mut self, now: Duration) -> Beat {
        let deadline = self.heard + self.interval * MISSED_BEATS;
        let due = self.sent + self.interval;
        if now >= deadline {
            Beat::Dead
        } else if now >= due {
            self.sent = now;
            Beat::Send
        } else {
            Beat::Wait(due.min(deadline))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_dead_after_two_missed_beats() {
        let s = Duration::from_secs;
        let mut beat = Heartbeat::new(s(15), s(0));
        assert_eq!(beat.poll(s(0)), Beat::Wait(s(15)));
        assert_eq!(beat.poll(s(15)), Beat::Send);
        assert_eq!(beat.poll(s(15)), Beat::Wait(s(30)));
        assert_eq!(beat.poll(s(30)), Beat::Dead);
    }

    #[test]
    fn any_frame_keeps_it_alive() {
        let s = Duration::from_secs;
        let mut beat = Heartbeat::new(s(15), s(0));
        beat.heard(s(29));
        assert_eq!(beat.poll(s(30)), Beat::Send);
        assert_eq!(beat.poll(s(45)), Beat::Send);
        assert_eq!(beat.poll(s(59)), Beat::Dead);
    }
}
