//! What the parts of the test note while it runs.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nymph::wire::{ToControlPlane, ToDaemon};
use serde_json::Value;

use crate::caller::end_of;
use crate::judge::{Evidence, Told};
use crate::proxy::ws::{Said, Seen};

/// Shared by the load, the kubelet, the relay's hook and the driver.
#[derive(Clone)]
pub(crate) struct Ledger {
    started: Instant,
    notes: Arc<Mutex<Notes>>,
}

/// By dispatch or by instance, as in [`crate::judge::Evidence`].
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) told: BTreeMap<u64, Told>,
    /// When the launch was first asked for, by dispatch.
    pub(crate) begun: BTreeMap<String, Duration>,
    pub(crate) finished: BTreeMap<String, i64>,
    pub(crate) deleted: BTreeMap<String, Duration>,
    pub(crate) accepted: BTreeMap<String, Duration>,
    pub(crate) seen: BTreeMap<String, Duration>,
    /// Sequence of the first report on a connection of an instance that names its object's UID.
    reported: BTreeMap<(u64, String), u64>,
    pub(crate) daemon_kills: Vec<Range<Duration>>,
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

    /// Whatever a killed daemon had said has passed when the next one begins.
    pub(crate) fn daemon_starts(&self) {
        let now = self.now();
        if let Some(kill) = self.notes().daemon_kills.last_mut() {
            kill.end = now;
        }
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

    /// What was noted, with how the control plane shows each instance in the end; audit log and host file are still to be added.
    pub(crate) fn evidence(&self, shown: &[Value]) -> Evidence {
        let notes = self.notes();
        let told = notes.told.values().cloned().map(|mut told| {
            let of = |shown: &&Value| told.answer.as_ref().is_some_and(|(instance, _)| shown["instanceId"] == instance.as_str());
            if let Some(shown) = shown.iter().find(of) {
                told.shown = shown.to_string();
                told.finally = Some(end_of(shown)).filter(|_| shown["state"] == "stopped");
            }
            told
        });
        Evidence {
            told: told.collect(),
            finished: notes.finished.clone(),
            deleted: notes.deleted.clone(),
            accepted: notes.accepted.clone(),
            seen: notes.seen.clone(),
            daemon_kills: notes.daemon_kills.clone(),
            ..Evidence::default()
        }
    }
}
