//! Which logs are followed. The bytes themselves never pass through here.

use k8s_openapi::api::core::v1::Pod;

use super::item::{Object, Phase, key_of};
use super::{DaemonState, Effect, Now};
use crate::daemon::event::{ContainerState, FollowOrder, Unread};
use crate::observe;
use crate::types::InstanceName;
use crate::wire::{LogEndReason, ResumePoint, ToControlPlane};

/// A stream that the control plane asked for.
#[derive(Debug)]
pub(super) struct Stream {
    instance: InstanceName,
    /// What to start it with, until it is started.
    waiting: Option<(u64, ResumePoint, u64)>,
    told: ContainerState,
    /// The read that shall say whether there is an object at all.
    looking: Option<u64>,
}

impl DaemonState {
    pub(super) fn logs_follow(&mut self, stream: u64, instance: InstanceName, offset: u64, resume: ResumePoint, credit: u64, out: &mut Vec<Effect>) {
        if self.streams.contains_key(&stream) {
            return; // ids are never used twice in a session
        }
        self.streams.insert(
            stream,
            Stream { instance: instance.clone(), waiting: Some((offset, resume, credit)), told: ContainerState::Waiting, looking: None },
        );
        self.streams_of(&instance, out);
    }

    pub(super) fn logs_credit(&mut self, stream: u64, bytes: u64, out: &mut Vec<Effect>) {
        match self.streams.get_mut(&stream) {
            Some(Stream { waiting: Some((_, _, credit)), .. }) => *credit = credit.saturating_add(bytes),
            Some(Stream { waiting: None, .. }) => out.push(Effect::Credit { stream, bytes }),
            None => {}
        }
    }

    pub(super) fn logs_stop(&mut self, stream: u64, out: &mut Vec<Effect>) {
        match self.streams.get(&stream) {
            Some(Stream { waiting: Some((offset, ..)), .. }) => {
                out.push(log_end(stream, LogEndReason::Stopped, *offset));
                self.streams.remove(&stream);
            }
            Some(Stream { waiting: None, .. }) => out.push(Effect::StopFollow { stream }), // it says the end itself, behind its last chunk
            None => {}
        }
    }

    /// Starts, informs or ends the streams of an instance after something about it changed.
    pub(super) fn streams_of(&mut self, instance: &InstanceName, out: &mut Vec<Effect>) {
        if !self.streams.values().any(|stream| stream.instance == *instance) {
            return;
        }
        let container = self.container_of(instance);
        let item = self.items.get(instance);
        if item.is_none() && container.is_none() {
            return self.confirm_absence(instance, out);
        }
        let ended_item = item.is_some_and(|item| matches!(item.phase, Phase::Ended { .. } | Phase::Refused { .. }));
        let over = ended_item.then_some(LogEndReason::Gone);
        let mut ended = Vec::new();
        for (&number, stream) in self.streams.iter_mut().filter(|(_, stream)| stream.instance == *instance) {
            match (&container, &mut stream.waiting) {
                (Some((namespace, Some(id), state)), waiting @ Some(_)) if *state != ContainerState::Waiting => {
                    let Some((offset, resume, credit)) = waiting.take() else { continue };
                    stream.told = *state;
                    out.push(Effect::Follow(FollowOrder {
                        stream: number,
                        namespace: namespace.clone(),
                        instance: instance.clone(),
                        container: id.clone(),
                        offset,
                        resume,
                        credit,
                        state: *state,
                    }));
                }
                // A Pod that ended before its container started has no log.
                (Some((_, None, ContainerState::Ended)), Some((offset, ..))) => {
                    out.push(log_end(number, LogEndReason::Complete, *offset));
                    ended.push(number);
                }
                (Some((_, _, state)), None) if *state != stream.told && *state != ContainerState::Waiting => {
                    stream.told = *state;
                    out.push(Effect::Container { stream: number, state: *state });
                }
                (None, None) if over.is_some() && stream.told != ContainerState::Gone => {
                    stream.told = ContainerState::Gone;
                    out.push(Effect::Container { stream: number, state: ContainerState::Gone });
                }
                (None, Some((offset, ..))) => {
                    if let Some(reason) = over {
                        out.push(log_end(number, reason, *offset));
                        ended.push(number);
                    }
                }
                _ => {}
            }
        }
        for number in ended {
            self.streams.remove(&number);
        }
    }

    /// A list may come from a server that lags behind: that there is no object is said only after a consistent read.
    fn confirm_absence(&mut self, instance: &InstanceName, out: &mut Vec<Effect>) {
        if !self.is_synced() {
            return;
        }
        let look = self.looks + 1;
        let unanswered = |stream: &&mut Stream| stream.instance == *instance && stream.looking.is_none() && stream.told != ContainerState::Gone;
        for stream in self.streams.values_mut().filter(unanswered) {
            stream.looking = Some(look);
            self.looks = look;
        }
        if self.looks == look {
            out.push(Effect::Look { instance: instance.clone(), look, namespaces: self.policy.run_namespaces().to_vec() });
        }
    }

    /// The answer to [`DaemonState::confirm_absence`]; false when the read was for something else.
    pub(super) fn confirmed(
        &mut self,
        instance: &InstanceName,
        look: u64,
        found: &Result<Option<Box<Pod>>, Unread>,
        now: Now,
        out: &mut Vec<Effect>,
    ) -> bool {
        let asked = |stream: &Stream| stream.instance == *instance && stream.looking == Some(look);
        if !self.streams.values().any(asked) {
            return false;
        }
        let held = self.items.contains_key(instance);
        let object = match found {
            Ok(Some(pod)) => {
                key_of(pod).zip(Object::of(pod, observe::pod(pod, now.wall, false))).filter(|(_, object)| object.is_ours(self.install.as_deref()))
            }
            Ok(None) | Err(_) => None,
        };
        let absent = found.is_ok() && object.is_none() && !held;
        if let Some((key, object)) = object {
            self.note(key, object);
        }
        let streams: Vec<u64> = self.streams.iter().filter(|(_, stream)| asked(stream)).map(|(number, _)| *number).collect();
        for number in streams {
            let Some(stream) = self.streams.get_mut(&number) else { continue };
            stream.looking = None;
            match (absent, &stream.waiting) {
                (false, _) => {}
                (true, Some((offset, ..))) => {
                    out.push(log_end(number, LogEndReason::NotHeld, *offset));
                    self.streams.remove(&number);
                }
                (true, None) => {
                    stream.told = ContainerState::Gone;
                    out.push(Effect::Container { stream: number, state: ContainerState::Gone });
                }
            }
        }
        if found.is_ok() {
            self.streams_of(instance, out);
        }
        true // a read that failed is asked again with the next list or tick
    }

    /// The first list is complete: streams of objects that do not exist can be answered now.
    pub(super) fn retry_streams(&mut self, out: &mut Vec<Effect>) {
        // What happens to an item's object comes as an event of its own.
        let unknown = |stream: &&Stream| stream.looking.is_none() && !self.items.contains_key(&stream.instance);
        let waiting: Vec<InstanceName> = self.streams.values().filter(unknown).map(|s| s.instance.clone()).collect();
        for instance in waiting {
            self.streams_of(&instance, out);
        }
    }
}

fn log_end(stream: u64, reason: LogEndReason, offset: u64) -> Effect {
    Effect::Send(Box::new(ToControlPlane::LogEnd { stream, reason, offset }))
}
