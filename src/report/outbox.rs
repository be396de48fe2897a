//! Reports under way.

use std::collections::BTreeMap;

use crate::types::{Attempt, DispatchId, InstanceName, Observation, State};
use crate::wire::Report;

/// The reports of all instances that this daemon holds.
///
/// An observation that was not sent yet is replaced by a newer one: what counts is how things are. What says that an instance has
/// stopped is never replaced and stays until it is acknowledged.
///
/// **Bound:** one slot an instance, with an observation of at most 3 KiB; the daemon forgets an instance with its object.
/// A kubelet runs 110 Pods by default, and 1,000 finished ones are kept: 3.5 MiB.
#[derive(Debug, Default)]
pub struct Outbox {
    /// The session's epoch; `None` while there is no session.
    epoch: Option<u64>,
    slots: BTreeMap<InstanceName, Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    /// Sequence of the last report that was made; 0 before the first.
    seq: u64,
    /// Highest sequence that is on disk at the control plane.
    acked: u64,
    latest: Option<Latest>,
}

#[derive(Debug)]
struct Latest {
    dispatch_id: DispatchId,
    attempt: Attempt,
    observation: Observation,
    /// `seq` is its own; otherwise it waits for a session.
    numbered: bool,
}

impl Outbox {
    /// Takes what was seen of an instance, and gives the report to send now.
    ///
    /// `None`: it says nothing new, the instance has already stopped, or there is no session and [`Outbox::resend`] will give it.
    pub fn push(&mut self, instance: &InstanceName, dispatch_id: &DispatchId, attempt: Attempt, observation: Observation) -> Option<Report> {
        let slot = self.slots.entry(instance.clone()).or_default();
        if slot.latest.as_ref().is_some_and(|latest| latest.observation.state == State::Stopped || says_the_same(&latest.observation, &observation)) {
            return None;
        }
        slot.latest = Some(Latest { dispatch_id: dispatch_id.clone(), attempt, observation, numbered: false });
        self.epoch.and_then(|epoch| slot.report(instance, epoch))
    }

    /// Takes the control plane's word that everything of `instance` up to `seq` is on disk.
    pub fn ack(&mut self, instance: &InstanceName, seq: u64) {
        if let Some(slot) = self.slots.get_mut(instance) {
            // Never beyond what was sent: an acknowledgement of the future would silence a report.
            slot.acked = slot.acked.max(seq.min(slot.seq));
        }
    }

    /// Takes the sequence that the control plane holds, from `welcome`; the next report is above it.
    ///
    /// For an instance that was reported before it is an acknowledgement too. A lower one (its store came back from a backup) makes the
    /// latest observation be sent again.
    pub fn seed(&mut self, instance: &InstanceName, seq: u64) {
        let slot = self.slots.entry(instance.clone()).or_default();
        if seq > slot.seq {
            // Numbered by an earlier process of this daemon: what this one has seen is news, whatever number it had.
            slot.seq = seq;
            if let Some(latest) = &mut slot.latest {
                latest.numbered = false;
            }
        }
        slot.acked = seq;
    }

    /// Begins a session, and gives every report that is not acknowledged. Call it after [`Outbox::seed`] for each open item.
    pub fn resend(&mut self, epoch: u64) -> Vec<Report> {
        self.epoch = Some(epoch);
        self.slots.iter_mut().filter_map(|(instance, slot)| slot.report(instance, epoch)).collect()
    }

    /// The session is over: what comes now waits for the next one.
    pub fn disconnected(&mut self) {
        self.epoch = None;
    }

    /// Whether the control plane has on disk that the instance has stopped: nothing more will be said of it.
    pub fn is_settled(&self, instance: &InstanceName) -> bool {
        self.slots.get(instance).is_some_and(|slot| {
            let stopped = slot.latest.as_ref().is_some_and(|latest| latest.numbered && latest.observation.state == State::Stopped);
            stopped && slot.acked >= slot.seq
        })
    }

    /// What was last seen of an instance.
    pub fn latest(&self, instance: &InstanceName) -> Option<&Observation> {
        self.slots.get(instance)?.latest.as_ref().map(|latest| &latest.observation)
    }

    /// Reports that are not acknowledged.
    pub fn pending(&self) -> usize {
        self.slots.values().filter(|slot| slot.is_pending()).count()
    }

    /// Drops an instance whose object is gone and whose end is settled, or that is not this daemon's any more.
    pub fn forget(&mut self, instance: &InstanceName) {
        self.slots.remove(instance);
    }
}

impl Slot {
    fn is_pending(&self) -> bool {
        self.latest.as_ref().is_some_and(|latest| !latest.numbered || self.acked < self.seq)
    }

    /// The report to send, numbered now if it was not yet; `None` when everything is acknowledged.
    fn report(&mut self, instance: &InstanceName, epoch: u64) -> Option<Report> {
        if !self.is_pending() {
            return None;
        }
        let latest = self.latest.as_mut()?;
        if !latest.numbered {
            latest.numbered = true;
            self.seq += 1;
        }
        Some(Report {
            dispatch_id: latest.dispatch_id.clone(),
            attempt: latest.attempt,
            instance: instance.clone(),
            seq: self.seq,
            epoch,
            observation: latest.observation.clone(),
        })
    }
}

/// Whether two observations differ in nothing but the moment they were made.
fn says_the_same(one: &Observation, other: &Observation) -> bool {
    *one == Observation { observed_at: one.observed_at, ..other.clone() }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
