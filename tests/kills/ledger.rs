//! What the parts of the test note while it runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nymph::wire::{ToControlPlane, ToDaemon};

use crate::judge::Told;
use crate::proxy::ws::{Said, Seen};

/// Shared by the load, the kubelet, the relay's hook and the driver.
#[derive(Clone)]
pub(crate) struct Ledger {
    started: Instant,
    notes: Arc<Mutex<Notes>>,
}

/// By dispatch or by instance, as in [`crate::judge::Evidence`].
#[derive(Clone, Default)]
pub(crate) struct Notes {
    pub(crate) told: BTreeMap<u64, Told>,
    pub(crate) finished: BTreeMap<String, i64>,
    pub(crate) deleted: BTreeMap<String, Duration>,
    pub(crate) accepted: BTreeMap<String, Duration>,
    pub(crate) seen: BTreeMap<String, Duration>,
    /// Sequence of the first report on a connection of an instance that names its object's UID.
    reported: BTreeMap<(u64, String), u64>,
    pub(crate) daemon_kills: Vec<Duration>,
}

impl Ledger {
    #[allow(clippy::disallowed_methods, reason = "real processes, in real time")]
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), notes: Arc::default() }
    }

    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a message that goes on.
    pub(crate) fn passed(&self, seen: &Seen) {
        let now = self.now();
        match &seen.said {
            Said::ToControlPlane(ToControlPlane::Accepted { dispatch_id, .. }) => {
                self.notes().accepted.entry(dispatch_id.to_string()).or_insert(now);
            }
            Said::ToControlPlane(ToControlPlane::Report(report)) if report.observation.uid.is_some() => {
                self.notes().reported.entry((seen.connection, report.instance.to_string())).or_insert(report.seq);
            }
            Said::ToDaemon(ToDaemon::Ack(ack)) => {
                let mut notes = self.notes();
                if notes.reported.get(&(seen.connection, ack.instance.to_string())).is_some_and(|seq| *seq <= ack.seq) {
                    notes.seen.entry(ack.instance.to_string()).or_insert(now);
                }
            }
            _ => {}
        }
    }
}
