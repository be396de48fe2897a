//! Nodes that are gone, and what is left of them: what a daemon of role `cluster` does beside its own instances.
//!
//! ```text
//! named by the control plane ─┐                ┌ there ─► (said to be gone before? then it is back)
//! own instances bound there ──┴► read ─► judge ┤
//!                                              └ gone ─► told ─► orphans handed over ─► swept ─► each removed ─► reported
//! ```
//!
//! Only what stands under `nymph.dev/install` of this enrolment and is pinned to the node that is gone is removed, by UID.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use super::item::{Item, Object, Phase};
use super::{DaemonState, Effect, Now};
use crate::apply::{DeleteOutcome, Kind, Left, NodeSight};
use crate::audit::{Fact, Remnant, Subject};
use crate::daemon::event::{Sweep, Swept};
use crate::observe::{self, Gone as Cause};
use crate::types::{InstanceName, KubeNamespace, NodeName, Observation, Placement, State};
use crate::wire::{Loss, MAX_OPEN_ITEMS, NodeItem, OpenItem, ToControlPlane};

/// How often each node is read, as long as there are no more than [`READS`] allow.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Reads that begin at one tick of half a second: a hundred nodes each 10 s, and more of them as much slower.
const READS: usize = 5;
/// How often a gone node is swept on which nothing was left the last time: an object may still appear that was under way.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// A node under one UID of its Node object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeRef {
    pub(super) node: NodeName,
    pub(super) uid: Option<String>,
}

/// All nodes that are looked after.
#[derive(Debug, Default)]
pub(super) struct Nodes(BTreeMap<NodeRef, Known>);

#[derive(Debug, Default)]
struct Known {
    /// The control plane named it; else instances of this daemon's own are bound to it.
    named: bool,
    /// The control plane holds it as gone.
    marked: bool,
    /// The UID that was read first, where none was named.
    first_uid: Option<String>,
    reading: bool,
    due: Duration,
    gone: Option<GoneNode>,
}

#[derive(Debug)]
struct GoneNode {
    why: Loss,
    /// When the node came that has the name now: what is younger is that one's.
    successor: Option<Timestamp>,
    /// Told in this session, and answered in it.
    told: bool,
    answered: bool,
    sweeping: bool,
    sweep_at: Duration,
    /// UIDs whose removal is under way.
    removing: BTreeSet<String>,
    /// Told of in this session, while others are to follow.
    listed: Vec<OpenItem>,
    orphans: BTreeMap<InstanceName, Orphan>,
}

/// A dispatch that was accepted on the node.
#[derive(Debug)]
struct Orphan {
    open: OpenItem,
    /// How its object was, and the object's UID, once it is being removed.
    last: Option<(Observation, String)>,
    ended: bool,
}

impl Known {
    fn judge(&mut self, uid: Option<&String>, sight: Option<&NodeSight>) -> Option<Loss> {
        let Some(sight) = sight else { return Some(Loss::Absent) };
        if uid.or(self.first_uid.as_ref()).is_some_and(|uid| *uid != sight.uid) {
            return Some(Loss::Replaced);
        }
        self.first_uid.get_or_insert_with(|| sight.uid.clone());
        sight.out_of_service.then_some(Loss::OutOfService)
    }
}

/// Whether an object of this age can be a gone node's, and not its successor's.
fn is_of_the_gone(created: Option<Timestamp>, successor: Option<Timestamp>) -> bool {
    successor.is_none_or(|successor| created.is_some_and(|created| created < successor))
}

impl DaemonState {
    /// The control plane's list, in place of the one before.
    pub(super) fn nodes_named(&mut self, nodes: Vec<NodeItem>) {
        let mut named: BTreeMap<NodeRef, bool> = nodes.into_iter().map(|item| (NodeRef { node: item.node, uid: item.uid }, item.gone)).collect();
        for (node, known) in &mut self.nodes.0 {
            let marked = named.remove(node);
            known.named = marked.is_some();
            known.marked = marked.unwrap_or_default();
        }
        self.nodes.0.extend(named.into_iter().map(|(node, marked)| (node, Known { named: true, marked, ..Known::default() })));
    }

    /// What was told in a session holds in that session alone.
    pub(super) fn nodes_session_ended(&mut self) {
        for gone in self.nodes.0.values_mut().filter_map(|known| known.gone.as_mut()) {
            (gone.told, gone.answered) = (false, false);
            gone.listed.clear();
        }
    }

    /// Reads what is due, and sweeps what is due.
    pub(super) fn tick_nodes(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.settings.placement != Placement::Cluster || self.session.is_none() {
            return;
        }
        self.own_nodes();
        let mut due: Vec<(Duration, &NodeRef)> =
            self.nodes.0.iter().filter(|(_, known)| !known.reading && known.due <= now.mono).map(|(node, known)| (known.due, node)).collect();
        due.sort();
        let names: BTreeSet<NodeName> = due.into_iter().take(READS).map(|(_, node)| node.node.clone()).collect();
        for (_, known) in self.nodes.0.iter_mut().filter(|(node, _)| names.contains(&node.node)) {
            known.reading = true;
        }
        out.extend(names.into_iter().map(|node| Effect::ReadNode { node }));
    }

    /// Looks after the nodes too to which the scheduler bound instances of this daemon's own; forgets those that nobody asks for.
    fn own_nodes(&mut self) {
        let held = self.items.iter().filter(|(_, item)| matches!(item.phase, Phase::Held { .. }));
        let bound: BTreeSet<NodeName> = held.filter_map(|(name, item)| self.bound_to(name, item).cloned()).collect();
        let outbox = &mut self.outbox;
        self.nodes.0.retain(|node, known| {
            let kept = known.named || (node.uid.is_none() && bound.contains(&node.node));
            if !kept {
                known.gone.iter().flat_map(|gone| gone.orphans.keys()).for_each(|instance| outbox.forget(instance));
            }
            kept
        });
        for node in bound {
            self.nodes.0.entry(NodeRef { node, uid: None }).or_default();
        }
    }

    fn bound_to(&self, instance: &InstanceName, item: &Item) -> Option<&NodeName> {
        let namespace = item.namespace.clone()?;
        self.objects.get(&(namespace, instance.clone()))?.observation.node.as_ref()
    }

    pub(super) fn node_read(&mut self, name: &NodeName, sight: Result<Option<NodeSight>, ()>, now: Now, out: &mut Vec<Effect>) {
        let mut lost = Vec::new();
        for (node, known) in self.nodes.0.iter_mut().filter(|(node, _)| node.node == *name) {
            known.reading = false;
            known.due = now.mono + READ_EVERY;
            let Ok(sight) = &sight else { continue }; // nothing is known: nothing is said
            let Some(why) = known.judge(node.uid.as_ref(), sight.as_ref()) else {
                if std::mem::take(&mut known.marked) && self.session.is_some() {
                    out.push(Effect::Send(Box::new(ToControlPlane::NodeBack { node: node.node.clone(), uid: node.uid.clone() })));
                }
                if let Some(gone) = known.gone.take() {
                    gone.orphans.keys().for_each(|instance| self.outbox.forget(instance));
                }
                continue;
            };
            let successor = (why == Loss::Replaced).then(|| sight.as_ref().and_then(|sight| sight.created)).flatten();
            let gone = known.gone.get_or_insert_with(|| {
                out.push(Effect::Record(Fact::NodeGone { node: node.node.clone(), uid: node.uid.clone(), why: why.words() }));
                GoneNode {
                    why,
                    successor,
                    told: false,
                    answered: false,
                    sweeping: false,
                    sweep_at: now.mono,
                    removing: BTreeSet::new(),
                    listed: Vec::new(),
                    orphans: BTreeMap::new(),
                }
            });
            if known.named && self.session.is_some() && !std::mem::replace(&mut gone.told, true) {
                out.push(Effect::Send(Box::new(ToControlPlane::NodeGone { node: node.node.clone(), uid: node.uid.clone(), why: gone.why })));
            }
            lost.push((node.clone(), successor));
        }
        for (node, successor) in lost {
            self.lose_own(&node.node, successor, out);
            self.sweep_if_due(&node, now, out);
        }
    }

    /// Ends this daemon's own instances that were bound to the node.
    fn lose_own(&mut self, node: &NodeName, successor: Option<Timestamp>, out: &mut Vec<Effect>) {
        let held = self.items.iter().filter(|(_, item)| matches!(item.phase, Phase::Held { .. }) && !item.node_lost);
        let on_it = held.filter(|(name, item)| self.bound_to(name, item) == Some(node));
        let older = |name: &InstanceName| is_of_the_gone(self.outbox.latest(name).and_then(|seen| seen.created_at), successor);
        let lost: Vec<InstanceName> = on_it.map(|(name, _)| name.clone()).filter(older).collect();
        for instance in lost {
            if let Some(item) = self.items.get_mut(&instance) {
                (item.node_lost, item.deleting, item.retry_at) = (true, false, None);
            }
            self.delete_if_wanted(&instance, out);
        }
    }

    /// What the control plane hands over of a node that it was told is gone.
    pub(super) fn orphans(&mut self, node: NodeRef, open: Vec<OpenItem>, more: bool, now: Now, out: &mut Vec<Effect>) {
        let Some(gone) = self.nodes.0.get_mut(&node).and_then(|known| known.gone.as_mut()) else { return };
        gone.listed.extend(open.into_iter().take(MAX_OPEN_ITEMS.saturating_sub(gone.listed.len())));
        if more {
            return;
        }
        let open: BTreeMap<InstanceName, OpenItem> = std::mem::take(&mut gone.listed)
            .into_iter()
            .filter(|item| item.dispatch_id.instance_name(item.attempt) == item.instance) // else the name is never ours
            .map(|item| (item.instance.clone(), item))
            .collect();
        let outbox = &mut self.outbox;
        gone.orphans.retain(|instance, _| {
            let kept = open.contains_key(instance);
            if !kept {
                outbox.forget(instance);
            }
            kept
        });
        for (instance, open) in open {
            outbox.seed(&instance, open.seq);
            gone.orphans.entry(instance).or_insert(Orphan { open, last: None, ended: false });
        }
        (gone.answered, gone.sweep_at) = (true, now.mono);
        self.sweep_if_due(&node, now, out);
    }

    fn sweep_if_due(&mut self, node: &NodeRef, now: Now, out: &mut Vec<Effect>) {
        let Some(install) = self.install.clone() else { return };
        let mut namespaces: BTreeSet<KubeNamespace> = self.policy.run_namespaces().iter().cloned().collect();
        let Some(gone) = self.nodes.0.get_mut(node).and_then(|known| known.gone.as_mut()) else { return };
        if !gone.answered || gone.sweeping || now.mono < gone.sweep_at {
            return;
        }
        let wanted: Vec<(KubeNamespace, InstanceName)> =
            gone.orphans.values().filter(|o| !o.ended).filter_map(|o| Some((o.open.namespace.parse().ok()?, o.open.instance.clone()))).collect();
        namespaces.extend(wanted.iter().map(|(namespace, _)| namespace.clone()));
        gone.sweeping = true;
        let (node, uid) = (node.node.clone(), node.uid.clone());
        out.push(Effect::Sweep(Box::new(Sweep { node, uid, install, namespaces: namespaces.into_iter().collect(), wanted })));
    }

    pub(super) fn swept(&mut self, swept: Swept, now: Now, out: &mut Vec<Effect>) {
        let Swept { node, uid, found } = swept;
        let node = NodeRef { node, uid };
        let (install, mut ended) = (self.install.clone(), Vec::new());
        let Some(gone) = self.nodes.0.get_mut(&node).and_then(|known| known.gone.as_mut()) else { return };
        gone.sweeping = false;
        gone.sweep_at = now.mono + READ_EVERY;
        let Ok(found) = found else { return };
        let mut remove = Vec::new();
        for (instance, pod) in found.wanted {
            let Some(orphan) = gone.orphans.get_mut(&instance).filter(|orphan| !orphan.ended) else { continue };
            match pod.as_deref().and_then(|pod| own_object(orphan, pod, install.as_deref(), now)) {
                None => ended.push(instance),
                Some(object) if object.observation.node.as_ref().is_some_and(|bound| *bound != node.node) => {} // never another node's
                Some(object) => {
                    let Ok(namespace) = orphan.open.namespace.parse() else { continue };
                    orphan.last = Some((object.observation.clone(), object.uid.clone()));
                    let (subject, kind) = (object.subject(&instance), Kind::Pod);
                    remove.push((kind, Remnant { subject, kind: kind.name(), namespace, name: instance.to_string(), uid: object.uid }));
                }
            }
        }
        let named: BTreeSet<String> = remove.iter().map(|(_, remnant)| remnant.uid.clone()).collect();
        remove.extend(found.left.into_iter().filter(|left| is_of_the_gone(left.created, gone.successor) && !named.contains(&left.uid)).map(remnant));
        if remove.is_empty() && gone.orphans.len() == ended.len() {
            gone.sweep_at = now.mono + SWEEP_EVERY;
        }
        for (kind, remnant) in remove {
            if gone.removing.insert(remnant.uid.clone()) {
                out.push(Effect::Remove { remnant, kind, why: gone.why.words() });
            }
        }
        for instance in ended {
            self.end_orphan(&node, &instance, now, out);
        }
    }

    pub(super) fn removed(&mut self, uid: &str, outcome: &DeleteOutcome, now: Now, out: &mut Vec<Effect>) {
        let mut ended = Vec::new();
        for (node, known) in &mut self.nodes.0 {
            let Some(gone) = &mut known.gone else { continue };
            if gone.removing.remove(uid) && matches!(outcome, DeleteOutcome::Taken | DeleteOutcome::AlreadyGone) {
                let of_it = gone.orphans.iter().filter(|(_, orphan)| orphan.last.as_ref().is_some_and(|(_, of)| of == uid));
                ended.extend(of_it.map(|(instance, _)| (node.clone(), instance.clone())));
            }
        }
        for (node, instance) in ended {
            self.end_orphan(&node, &instance, now, out);
        }
    }

    fn end_orphan(&mut self, node: &NodeRef, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        let gone = self.nodes.0.get_mut(node).and_then(|known| known.gone.as_mut());
        let Some(orphan) = gone.and_then(|gone| gone.orphans.get_mut(instance)).filter(|orphan| !orphan.ended) else { return };
        orphan.ended = true;
        let cause = if orphan.open.cancel { Cause::DeletedByRequest } else { Cause::NodeLost };
        let last = orphan.last.take().map(|(last, _)| as_left_behind(last));
        let observation = observe::gone(last.as_ref(), now.wall, cause);
        if let Some(report) = self.outbox.push(instance, &orphan.open.dispatch_id, orphan.open.attempt, observation) {
            out.push(Effect::Send(Box::new(ToControlPlane::Report(Box::new(report)))));
        }
    }

    /// Drops an orphan whose end is on disk at the control plane.
    pub(super) fn forget_orphan_if_settled(&mut self, instance: &InstanceName) {
        if !self.outbox.is_settled(instance) {
            return;
        }
        for gone in self.nodes.0.values_mut().filter_map(|known| known.gone.as_mut()) {
            if gone.orphans.get(instance).is_some_and(|orphan| orphan.ended) {
                gone.orphans.remove(instance);
                self.outbox.forget(instance);
            }
        }
    }
}

fn remnant(left: Left) -> (Kind, Remnant) {
    let Left { kind, namespace, name, uid, made_for, .. } = left;
    let subject = made_for.map(|(dispatch, attempt, requested_by)| Subject { dispatch, attempt, requested_by });
    (kind, Remnant { subject, kind: kind.name(), namespace, name, uid })
}

/// The orphan's object, when it is what the dispatch made.
fn own_object(orphan: &Orphan, pod: &Pod, install: Option<&str>, now: Now) -> Option<Object> {
    let object = Object::of(pod, observe::pod(pod, now.wall, orphan.open.cancel))?;
    let made = object.dispatch.as_ref() == Some(&orphan.open.dispatch_id) && object.attempt == Some(orphan.open.attempt);
    (made && object.is_ours(install)).then_some(object)
}

/// What was last seen of an object whose node is gone. Kubernetes marks it for deletion without anybody there to carry it out: only an end that
/// the node itself had told is one.
pub(super) fn as_left_behind(mut last: Observation) -> Observation {
    if last.state == State::Stopping && last.exit_code.is_none() {
        last.state = State::Running;
    }
    last
}
