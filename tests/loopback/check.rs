//! The seven invariants of the fault matrix. Witnesses are the model of the API server and what callers were told, never what a part says of itself.

use std::collections::BTreeMap;

use super::plane::now;
use super::world::{RUNS, World};
use crate::audit::Fact;
use crate::control_plane::store::{Instance, Phase};
use crate::types::{Reason, State};
use crate::wire::LogEndReason;

impl World {
    /// What must hold after each step.
    pub(super) fn check_step(&mut self) {
        let mut alive: BTreeMap<&str, u32> = BTreeMap::new();
        let mut made: BTreeMap<(&str, &str), u32> = BTreeMap::new();
        let mut broken = Vec::new();
        for witness in self.api.witnesses.values() {
            *made.entry((&witness.dispatch, &witness.attempt)).or_default() += 1;
            if !witness.removed {
                *alive.entry(&witness.dispatch).or_default() += 1;
            }
            if witness.namespace != RUNS || !witness.image.starts_with("localhost/") {
                broken.push(format!("I6: {} in {} with image {} is outside the policy", witness.name, witness.namespace, witness.image));
            }
        }
        broken.extend(made.iter().filter(|(_, count)| **count > 1).map(|(what, count)| format!("I1: {what:?} was made {count} times")));
        broken.extend(alive.iter().filter(|(_, count)| **count > 1).map(|(what, count)| format!("I1: {count} attempts of {what} exist at once")));
        if let Some(rule) = broken.into_iter().next() {
            self.breaks(rule);
        }
    }

    /// What must hold of logs at the caller: a prefix of the true bytes.
    pub(super) fn check_logs(&mut self) {
        let rows = self.rows();
        for row in &rows {
            let truth = self.true_log(row);
            let stored = self.stored_log(row);
            if !truth.starts_with(&stored) {
                let at = stored.iter().zip(&truth).take_while(|(a, b)| a == b).count();
                self.breaks(format!(
                    "I4: the log of {} differs from the true one at byte {at}; {} stored of {}",
                    row.name,
                    stored.len(),
                    truth.len()
                ));
            }
        }
    }

    fn rows(&self) -> Vec<Instance> {
        let filter = crate::control_plane::store::InstanceFilter { namespace: "default".into(), provider: None };
        self.plane.as_ref().and_then(|plane| now(plane.store.instances(filter)).ok()).unwrap_or_default()
    }

    fn true_log(&self, row: &Instance) -> Vec<u8> {
        let uid = row.seen.uid.clone().unwrap_or_default();
        let witness = self.api.witnesses.get(&uid);
        witness.map(|witness| witness.log.iter().flat_map(|(_, line)| line.bytes()).collect()).unwrap_or_default()
    }

    fn stored_log(&self, row: &Instance) -> Vec<u8> {
        let Some(plane) = &self.plane else { return Vec::new() };
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < row.log.stored {
            let limit = usize::try_from(row.log.stored).expect("small") - bytes.len();
            match plane.hub.logs.read(&row.name, bytes.len() as u64, limit) {
                Ok(more) => bytes.extend_from_slice(&more),
                Err(error) => return format!("unreadable: {error}").into_bytes(),
            }
        }
        bytes
    }

    /// What must hold once everything works again.
    pub(super) fn check_end(&mut self) {
        self.look();
        self.check_logs();
        let mut broken = Vec::new();
        for node in 0..self.daemons.len() {
            let twin = self.nodes.iter().position(|name| *name == self.nodes[node]) != Some(node)
                || self.nodes.iter().filter(|name| **name == self.nodes[node]).count() > 1;
            let link = self.daemons[node].as_ref().and_then(|daemon| daemon.link);
            let open = link.is_some_and(|link| self.plane.as_ref().is_some_and(|plane| plane.has_session(link)));
            if !open && !twin {
                broken.push(format!("I7: the daemon of {} has not come back", self.nodes[node]));
            }
        }
        for (number, asked) in &self.caller.asked {
            let stored = asked.stored.is_some();
            if stored && asked.answered.is_none() && asked.rejected.is_none() {
                broken.push(format!("I2: launch {number} was stored and never answered"));
            }
            if asked.forbidden && asked.rejected.as_deref() != Some("images") && stored && asked.answered.is_none() {
                broken.push(format!("I6: launch {number} was not refused by policy: {:?}", asked.rejected));
            }
        }
        for row in self.rows() {
            if let Some(rule) = self.check_row(&row) {
                broken.push(rule);
            }
        }
        broken.extend(self.check_audit());
        if let Some(rule) = broken.into_iter().next() {
            self.breaks(rule);
        }
    }

    fn check_row(&self, row: &Instance) -> Option<String> {
        let name = &row.name;
        if row.phase != Phase::Ended {
            return Some(format!("I2: {name} has not ended: {:?} {} {}", row.phase, row.seen.state, row.seen.reason));
        }
        let asked = self.caller.asked.values().find(|asked| asked.stored.as_ref() == Some(&row.dispatch_id));
        let object = self.api.witnesses.iter().find(|(_, witness)| witness.name == name.as_str());
        let wrong = |why: &str| Some(format!("I2: {name} ended as {} {:?}: {why}; {object:?}", row.seen.reason, row.seen.exit_code));
        if row.seen.state != State::Stopped {
            return wrong("an ended instance is stopped");
        }
        match (row.seen.reason, object) {
            (Reason::Completed | Reason::ExitCode, Some((_, witness))) => {
                if witness.exited != row.seen.exit_code || witness.executed != 1 {
                    return wrong("that is not how it ended");
                }
            }
            (Reason::Completed | Reason::ExitCode, None) => return wrong("it never existed"),
            (Reason::DeletedByRequest, _) if !asked.is_some_and(|asked| asked.deleted) => return wrong("nobody asked for it"),
            (Reason::DeletedByOther, Some((_, witness))) if witness.deleted_by_other => {}
            (Reason::DeletedByOther, _) => return wrong("nobody else deleted it"),
            (Reason::Lost | Reason::Rejected, Some((_, witness))) if !witness.removed => return wrong("its object is still there"),
            (Reason::Lost | Reason::Rejected | Reason::DeletedByRequest, _) => {}
            (_, _) => return wrong("a reason that this cluster never gives"),
        }
        self.check_log_end(row)
    }

    /// A log that could be read to its end was.
    fn check_log_end(&self, row: &Instance) -> Option<String> {
        let there = self.api.get(RUNS, row.name.as_str()).is_some();
        let complete = row.log.end == Some(LogEndReason::Complete) && self.stored_log(row) == self.true_log(row);
        let due = there && row.log.started && matches!(row.seen.reason, Reason::Completed | Reason::ExitCode);
        (due && !complete).then(|| {
            format!("I4: the log of {} is not complete: {:?}, {} bytes of {}", row.name, row.log.end, row.log.stored, self.true_log(row).len())
        })
    }

    /// Each object has an intent line and an outcome line, joined by dispatch and attempt; each deletion of ours too.
    fn check_audit(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (uid, witness) in &self.api.witnesses {
            let of = |fact: &Fact| {
                let subject = match fact {
                    Fact::CreateIntended { subject, .. } | Fact::CreateDone { subject, .. } | Fact::CreateFailed { subject, .. } => subject,
                    Fact::Adopted { subject, .. }
                    | Fact::Lost { subject }
                    | Fact::DeleteIntended { subject, .. }
                    | Fact::DeleteDone { subject, .. } => subject,
                    _ => return false,
                };
                subject.dispatch.as_str() == witness.dispatch && subject.attempt.to_string() == witness.attempt
            };
            let lines: Vec<&Fact> = self.facts.iter().map(|(_, fact)| fact).filter(|fact| of(fact)).collect();
            if !lines.iter().any(|fact| matches!(fact, Fact::CreateIntended { .. })) {
                broken.push(format!("I5: {} ({uid}) was made without an intent in the audit", witness.name));
            }
            let outcome = |fact: &&Fact| !matches!(fact, Fact::CreateIntended { .. } | Fact::DeleteIntended { .. });
            if !lines.iter().any(outcome) {
                broken.push(format!("I5: {} ({uid}) has no outcome in the audit", witness.name));
            }
        }
        broken
    }
}
