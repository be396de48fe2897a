//! Whose turn it is to be accepted.
//!
//! What is accepted and has no object when the daemon dies ends as `lost`. So a dispatch is accepted only when its object can be asked for at once,
//! and the others stay offered: whoever comes next is offered them again.

use std::time::Duration;

use super::item::{Item, Phase};
use super::{DaemonState, Effect, Now};

/// Dispatches that may be accepted before their objects exist: the most that a daemon which dies can lose. Each takes a round trip to the control
/// plane and one to the API server, so that with a quarter of a second for both, eight at a time make 32 a second, more than a kubelet starts.
pub(super) const MAX_PROMISED: usize = 8;
/// A promise that is not acknowledged for so long keeps nobody waiting: the control plane may have ended its row, and then never answers.
const PROMISE_WAIT: Duration = Duration::from_secs(10);

impl DaemonState {
    /// Judges those whose turn it is. A daemon that ends takes all, to refuse them.
    pub(super) fn take_turns(&mut self, now: Now, out: &mut Vec<Effect>) {
        while !self.turns.is_empty() && (self.draining || self.promised_now(now) < MAX_PROMISED) {
            let Some(instance) = self.turns.pop_front() else { return };
            let Some(item) = self.items.get_mut(&instance) else { continue };
            match std::mem::replace(&mut item.phase, Phase::Rejoining) {
                Phase::Waiting { offer } => self.judge(&instance, offer, now, out),
                phase => item.phase = phase,
            }
        }
    }

    fn promised_now(&self, now: Now) -> usize {
        let promised = |item: &&Item| match &item.phase {
            Phase::Accepted { since, .. } => now.mono < *since + PROMISE_WAIT,
            Phase::Creating { .. } => true,
            Phase::ReadingBack { .. } => item.doubt.is_none(), // the others are read back for as long as a POST may take effect
            _ => false,
        };
        self.items.values().filter(promised).count()
    }
}
