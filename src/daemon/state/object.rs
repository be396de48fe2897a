//! Watches, observations, deletion, and the end of an instance.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::item::{Item, Object, Phase, key_of};
use super::nodes::as_left_behind;
use super::{DaemonState, Effect, Now};
use crate::apply::DeleteOutcome;
use crate::daemon::event::ContainerState;
use crate::observe::{self, Gone};
use crate::telemetry::Condition;
use crate::types::{InstanceName, KubeNamespace, Observation, Reason, State};
use crate::watch::{Binding, Scope, Seen};
use crate::wire::ToControlPlane;

/// A watch that failed is taken to work again when it was silent about it for so long: twice the longest pause between its tries.
const QUIET: Duration = Duration::from_secs(60);
/// After a refused delete, how long until it is tried again: somebody has to change a role first.
const REFUSED_RETRY: Duration = Duration::from_secs(60);

/// What is known of a watch.
#[derive(Debug, Default)]
pub(super) struct ScopeState {
    synced: bool,
    /// Names of the list that is under way.
    listing: Option<BTreeSet<InstanceName>>,
    failing: Option<(String, Duration)>,
}

impl DaemonState {
    /// Watches the policy's run namespaces, and those that still hold open work of an older policy.
    pub(super) fn watch_namespaces(&mut self, out: &mut Vec<Effect>) {
        let open = self.items.values().filter(|item| !matches!(item.phase, Phase::Ended { .. } | Phase::Refused { .. }));
        let namespaces: BTreeSet<KubeNamespace> =
            self.policy.run_namespaces().iter().cloned().chain(open.filter_map(|item| item.namespace.clone())).collect();
        self.scopes.retain(|scope, _| namespaces.contains(&scope.namespace));
        self.objects.retain(|(namespace, _), _| namespaces.contains(namespace));
        for namespace in &namespaces {
            for binding in [Binding::Bound, Binding::Unbound] {
                self.scopes.entry(Scope { namespace: namespace.clone(), binding }).or_default();
            }
        }
        out.push(Effect::Watch { namespaces: namespaces.into_iter().collect() });
    }

    pub(super) fn seen(&mut self, scope: Scope, seen: Seen, now: Now, out: &mut Vec<Effect>) {
        let Some(known) = self.scopes.get_mut(&scope) else { return }; // of a watch that was ended
        match seen {
            Seen::Failing(why) => {
                known.failing = Some((why, now.mono));
                self.tell_watches(out);
            }
            Seen::Relisting => known.listing = Some(BTreeSet::new()),
            Seen::Listed(pod) => {
                if let (Some(listing), Some((_, name))) = (&mut known.listing, key_of(&pod)) {
                    listing.insert(name);
                }
                self.see(&pod, now, out);
            }
            Seen::Relisted => {
                known.synced = true;
                known.failing = None;
                let listed = known.listing.take().unwrap_or_default();
                let absent: Vec<InstanceName> = self
                    .objects
                    .iter()
                    .filter(|((namespace, name), object)| {
                        *namespace == scope.namespace && object.bound == (scope.binding == Binding::Bound) && !listed.contains(name)
                    })
                    .map(|((_, name), _)| name.clone())
                    .collect();
                for name in absent {
                    self.left(&scope, &name, now, out);
                }
                self.tell_watches(out);
                self.retry_streams(out);
                self.list_the_rest(out);
            }
            Seen::Applied(pod) => {
                known.failing = None;
                self.see(&pod, now, out);
            }
            Seen::Left(pod) => {
                known.failing = None;
                let Some((namespace, name)) = key_of(&pod) else { return };
                let Some(object) = self.objects.get_mut(&(namespace, name.clone())) else { return };
                let handed_over = scope.binding == Binding::Unbound && object.bound;
                if handed_over || Some(&object.uid) != pod.metadata.uid.as_ref() {
                    return;
                }
                // The last sight of it may say how the container ended.
                let cancel = self.items.get(&name).is_some_and(|item| item.cancel);
                if let Some(mut last) = Object::of(&pod, observe::pod(&pod, now.wall, cancel)) {
                    last.keep_cause(object);
                    if object.observation.finished_at.is_none() {
                        object.observation = last.observation;
                    }
                }
                self.left(&scope, &name, now, out);
            }
        }
    }

    /// Keeps the newest sight of an object; false when a newer one is known.
    pub(super) fn note(&mut self, key: (KubeNamespace, InstanceName), mut object: Object) -> bool {
        if let Some(known) = self.objects.get(&key) {
            if known.is_newer_than(&object) {
                return false;
            }
            object.keep_cause(known);
        }
        self.objects.insert(key, object);
        true
    }

    /// An object as a watch showed it.
    fn see(&mut self, pod: &Pod, now: Now, out: &mut Vec<Effect>) {
        let Some(key) = key_of(pod) else { return };
        let (namespace, instance) = key.clone();
        let cancel = self.items.get(&instance).is_some_and(|item| item.cancel);
        let Some(object) = Object::of(pod, observe::pod(pod, now.wall, cancel)) else { return };
        let ours = self.items.get(&instance).is_some_and(|item| object.is_of(item, self.install.as_deref()));
        let uid = object.uid.clone();
        if !self.note(key, object) {
            return;
        }
        if ours {
            self.see_own(&namespace, &instance, &uid, now, out);
        }
        self.streams_of(&instance, out);
    }

    fn see_own(&mut self, namespace: &KubeNamespace, instance: &InstanceName, uid: &str, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        match &item.phase {
            Phase::Held { uid: held } if held == uid => {
                self.observe(instance, out);
                self.delete_if_wanted(instance, out);
            }
            Phase::Confirming { uid: held } if held == uid => self.observe(instance, out),
            Phase::Rejoining | Phase::Doubtful { .. } | Phase::ReadingBack { .. } => {
                self.adopt_from_watch(instance, now, out);
            }
            // It must not run: the dispatch was told to have made nothing.
            Phase::Ended { lost: true, .. } | Phase::Refused { .. } => self.delete_late(namespace, instance, uid, out),
            // The POST's own answer, or the read's, comes first.
            Phase::Looking { .. } | Phase::Waiting { .. } | Phase::Accepted { .. } | Phase::Creating { .. } => {}
            // Another object than the one that was held: the watch's `Left` is on its way.
            Phase::Held { .. } | Phase::Confirming { .. } | Phase::Ended { lost: false, .. } => {}
        }
    }

    fn delete_late(&mut self, namespace: &KubeNamespace, instance: &InstanceName, uid: &str, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance).filter(|item| !item.deleting) else { return };
        item.deleting = true;
        let namespace = namespace.clone();
        let (subject, why) = (item.subject(), "it appeared after its dispatch had ended");
        out.push(Effect::Delete { instance: instance.clone(), namespace, uid: uid.to_owned(), subject, why, force: false });
    }

    /// Takes up an object that a watch has shown already; false when there is none.
    pub(super) fn adopt_from_watch(&mut self, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) -> bool {
        let Some(item) = self.items.get(instance) else { return false };
        let found = self.objects.iter().find(|((_, name), object)| name == instance && object.belongs_to(item, self.install.as_deref()));
        let Some(((namespace, _), _)) = found else { return false };
        let namespace = namespace.clone();
        if let Some(item) = self.items.get_mut(instance) {
            item.namespace = Some(namespace);
            item.looking = None;
        }
        self.hold(instance, None, now, out);
        self.record_adopted(instance, out);
        true
    }

    /// The object exists: from now on it is followed.
    pub(super) fn hold(&mut self, instance: &InstanceName, pod: Option<&Pod>, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        if let Some((namespace, _)) = pod.and_then(key_of) {
            item.namespace = Some(namespace);
        }
        let Some(namespace) = item.namespace.clone() else { return };
        let Some(object) = self.objects.get(&(namespace, instance.clone())) else {
            // A watch has shown its end already: the read that follows settles it.
            item.phase = Phase::Confirming { uid: pod.and_then(|pod| pod.metadata.uid.clone()).unwrap_or_default() };
            return self.look(instance, now, out);
        };
        if item.requested_by.is_empty() {
            item.requested_by.clone_from(&object.requested_by);
        }
        if item.left.take().as_ref() == Some(&object.uid) {
            // A watch has shown its end before the answer came that it is there.
            item.phase = Phase::Confirming { uid: object.uid.clone() };
            return self.look(instance, now, out);
        }
        item.phase = Phase::Held { uid: object.uid.clone() };
        item.succeeded();
        self.observe(instance, out);
        self.streams_of(instance, out);
        self.delete_if_wanted(instance, out);
    }

    /// Reports the item's object as it was last seen, when that is news.
    pub(super) fn observe(&mut self, instance: &InstanceName, out: &mut Vec<Effect>) {
        let Some(namespace) = self.items.get(instance).and_then(|item| item.namespace.clone()) else { return };
        if let Some(object) = self.objects.get(&(namespace, instance.clone())) {
            let observation = object.observation.clone();
            self.report(instance, observation, out);
        }
    }

    fn report(&mut self, instance: &InstanceName, observation: Observation, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get(instance) else { return };
        if let Some(report) = self.outbox.push(instance, &item.dispatch, item.attempt, observation) {
            out.push(Effect::Send(Box::new(ToControlPlane::Report(Box::new(report)))));
        }
    }

    /// An object is no longer in its watch. Nothing is said before a read confirms it.
    fn left(&mut self, scope: &Scope, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        let key = (scope.namespace.clone(), instance.clone());
        let Some(object) = self.objects.get(&key) else { return };
        let uid = object.uid.clone();
        if let Some(item) = self.items.get_mut(instance) {
            let here = item.namespace.as_ref() == Some(&scope.namespace);
            let ours = object.belongs_to(item, self.install.as_deref());
            match &mut item.phase {
                Phase::Held { uid: held } | Phase::Confirming { uid: held } if here && *held != uid => return,
                // The object stays in mind until the read has confirmed it: its last sight may say how it ended.
                phase @ (Phase::Held { .. } | Phase::Confirming { .. }) if here => {
                    *phase = Phase::Confirming { uid };
                    item.looking = None; // a read that is under way may have begun before: what it found may be gone
                    return self.look(instance, now, out);
                }
                // It is still being made or looked for, and the answer to that decides.
                _ if ours => item.left = Some(uid),
                _ => {}
            }
        }
        self.objects.remove(&key);
        self.streams_of(instance, out);
    }

    /// A read confirmed that the held object is gone.
    pub(super) fn gone(&mut self, instance: &InstanceName, uid: &str, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get(instance) else { return };
        let cause = match item {
            Item { cancel: true, .. } => Gone::DeletedByRequest,
            Item { node_lost: true, .. } => Gone::NodeLost,
            _ => Gone::DeletedByOther,
        };
        let key = item.namespace.clone().map(|namespace| (namespace, instance.clone()));
        let object = key.filter(|key| self.objects.get(key).is_some_and(|object| object.uid == uid)).and_then(|key| self.objects.remove(&key));
        let last = object.map(|object| object.observation).or_else(|| self.outbox.latest(instance).cloned());
        let last = if item.node_lost { last.map(as_left_behind) } else { last };
        self.end(instance, observe::gone(last.as_ref(), now.wall, cause), false, now, out);
    }

    /// The last report of an instance.
    pub(super) fn end(&mut self, instance: &InstanceName, observation: Observation, lost: bool, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        item.phase = Phase::Ended { lost, since: now.mono };
        item.retry_at = None;
        item.deleting = false;
        self.report(instance, observation, out);
        self.streams_of(instance, out);
        self.forget_if_settled(instance);
    }

    pub(super) fn cancel(&mut self, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else {
            return self.cancel_finished(instance, out);
        };
        item.cancel = true;
        match &item.phase {
            Phase::Accepted { .. } => self.end(instance, observe::gone(None, now.wall, Gone::DeletedByRequest), false, now, out),
            // What is under way decides first; each then asks `cancel`.
            Phase::Looking { .. } | Phase::Waiting { .. } | Phase::Creating { .. } | Phase::ReadingBack { .. } => {}
            Phase::Rejoining | Phase::Doubtful { .. } => {}
            Phase::Held { .. } => self.delete_if_wanted(instance, out),
            Phase::Confirming { .. } | Phase::Ended { .. } | Phase::Refused { .. } => {}
        }
    }

    /// An instance that ended long ago and whose object stayed: the control plane does not list it as open.
    fn cancel_finished(&mut self, instance: &InstanceName, out: &mut Vec<Effect>) {
        let ours = self.objects.iter().find(|((_, name), object)| name == instance && object.is_ours(self.install.as_deref()));
        let Some(((namespace, _), object)) = ours else { return };
        if let (Some(subject), false) = (object.subject(instance), object.deleting) {
            let (namespace, uid) = (namespace.clone(), object.uid.clone());
            out.push(Effect::Delete { instance: instance.clone(), namespace, uid, subject, why: "a caller asked for it", force: false });
        }
    }

    /// Deletes the held object when a caller asked for it and nobody has yet.
    pub(super) fn delete_if_wanted(&mut self, instance: &InstanceName, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        let (Phase::Held { uid }, Some(namespace)) = (&item.phase, item.namespace.clone()) else { return };
        let object = self.objects.get(&(namespace.clone(), instance.clone()));
        // Nobody carries out a deletion on a node that is gone, so that one under way does not count.
        let under_way = item.deleting || (object.is_some_and(|object| object.deleting) && !item.node_lost);
        if !(item.cancel || item.node_lost) || under_way || item.retry_at.is_some() {
            return;
        }
        let (uid, subject, force) = (uid.clone(), item.subject(), item.node_lost);
        item.deleting = true;
        let why = if force { "its node is gone" } else { "a caller asked for it" };
        out.push(Effect::Delete { instance: instance.clone(), namespace, uid, subject, why, force });
    }

    pub(super) fn delete_ended(&mut self, instance: &InstanceName, uid: &str, outcome: DeleteOutcome, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        if matches!(item.phase, Phase::Ended { .. } | Phase::Refused { .. }) {
            item.deleting = matches!(outcome, DeleteOutcome::Taken); // a late object is deleted again when it is seen again
            return;
        }
        let Phase::Held { uid: held } = &item.phase else { return };
        if held != uid {
            return;
        }
        match outcome {
            DeleteOutcome::Taken => item.succeeded(), // `deleting` stays: the watch tells the rest
            DeleteOutcome::AlreadyGone => {
                item.deleting = false;
                item.phase = Phase::Confirming { uid: uid.to_owned() };
                self.look(instance, now, out);
            }
            DeleteOutcome::Refused { message } => {
                item.deleting = false;
                item.retry_at = Some(now.mono + REFUSED_RETRY);
                let Some(mut observation) = self.outbox.latest(instance).cloned() else { return };
                observation.state = State::Stopping;
                observation.reason = Reason::DeleteRefused;
                observation.message = message;
                observation.observed_at = now.wall;
                self.report(instance, observation, out);
            }
            DeleteOutcome::Unclear { .. } => {
                item.deleting = false;
                item.failed(now.mono);
            }
        }
    }

    pub(super) fn settle_scopes(&mut self, now: Now, out: &mut Vec<Effect>) {
        let mut settled = false;
        for scope in self.scopes.values_mut().filter(|scope| scope.synced) {
            settled |= scope.failing.take_if(|(_, since)| now.mono > *since + QUIET).is_some();
        }
        if settled {
            self.tell_watches(out);
        }
    }

    /// Whether every object that exists has been shown.
    pub(super) fn is_synced(&self) -> bool {
        self.scopes.values().all(|scope| scope.synced)
    }

    fn tell_watches(&self, out: &mut Vec<Effect>) {
        let failing =
            self.scopes.iter().find_map(|(scope, known)| known.failing.as_ref().map(|(why, _)| format!("namespace {}: {why}", scope.namespace)));
        let status = match failing {
            Some(why) => Err(why),
            None if self.is_synced() => Ok(()),
            None => Err("the first list of objects is not complete".to_owned()),
        };
        out.push(Effect::Condition(Condition::Watches, status));
    }

    /// What a followed log of the instance has to know.
    pub(super) fn container_of(&self, instance: &InstanceName) -> Option<(KubeNamespace, Option<String>, ContainerState)> {
        let install = self.install.as_deref();
        let is_of = |object: &Object| object.is_ours(install) || self.items.get(instance).is_some_and(|item| object.is_of(item, install));
        let ours = self.objects.iter().find(|((_, name), object)| name == instance && is_of(object));
        ours.map(|((namespace, _), object)| (namespace.clone(), object.container.clone(), object.state))
    }
}
