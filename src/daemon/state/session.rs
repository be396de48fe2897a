//! Link, hello, welcome, and the messages of a session.

use std::collections::BTreeMap;
use std::time::Duration;

use super::item::{Item, Phase};
use super::nodes::NodeRef;
use super::{DaemonState, Effect, Now};
use crate::audit::Fact;
use crate::policy::Policy;
use crate::telemetry::Condition;
use crate::types::InstanceName;
use crate::wire::{ClusterKeys, Hello, NodeFacts, OpenItem, OpenPhase, ToControlPlane, ToDaemon, Welcome};

/// The session that the control plane opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Session {
    pub(super) lost_after: Duration,
    pub(super) epoch: u64,
}

impl DaemonState {
    pub(super) fn link_up(&mut self, link: u64, out: &mut Vec<Effect>) {
        self.end_session(out);
        self.link = Some(link);
        let held = self.held();
        self.listed_all = self.is_synced();
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.settings.placement.role(),
            cluster_uid: self.cluster_uid.clone(),
            boot_id: self.settings.boot_id.clone(),
            node: self.node.clone(),
            keys: self.keys.clone(),
            policy_digest: self.policy.digest().to_owned(),
            capabilities: Vec::new(),
            held,
        };
        self.told.clone_from(&self.node);
        self.told_keys.clone_from(&self.keys);
        out.push(Effect::Send(Box::new(ToControlPlane::Hello(Box::new(hello)))));
    }

    pub(super) fn link_down(&mut self, link: u64, out: &mut Vec<Effect>) {
        if self.link == Some(link) {
            self.link = None;
            self.end_session(out);
        }
    }

    /// What was promised to no one is forgotten: the control plane offers it again.
    fn end_session(&mut self, out: &mut Vec<Effect>) {
        self.opening = None;
        if self.session.take().is_some() {
            self.items.retain(|_, item| !matches!(item.phase, Phase::Looking { .. } | Phase::Waiting { .. }));
            self.turns.clear();
            self.streams.clear();
            self.nodes_session_ended();
            self.outbox.disconnected();
            out.push(Effect::StopFollows);
        }
    }

    pub(super) fn message(&mut self, message: ToDaemon, now: Now, out: &mut Vec<Effect>) {
        let message = match message {
            ToDaemon::Welcome(welcome) => {
                self.opening = Some(welcome);
                return self.open_when_listed(now, out);
            }
            ToDaemon::Open { open, more } => {
                let Some(opening) = &mut self.opening else { return };
                opening.open.extend(open);
                opening.more = more;
                return self.open_when_listed(now, out);
            }
            message => message,
        };
        let Some(install) = self.install.clone().filter(|_| self.session.is_some()) else { return };
        match message {
            // The link itself answers to these.
            ToDaemon::Welcome(_) | ToDaemon::Open { .. } | ToDaemon::Close(_) | ToDaemon::Heartbeat {} => {}
            ToDaemon::AcceptedAck { dispatch_id, attempt } => self.accepted_ack(&dispatch_id.instance_name(attempt), &dispatch_id, now, out),
            ToDaemon::Ack(ack) => {
                self.outbox.ack(&ack.instance, ack.seq);
                self.forget_if_settled(&ack.instance);
                self.forget_orphan_if_settled(&ack.instance);
            }
            ToDaemon::Cancel { instance } => self.cancel(&instance, now, out),
            ToDaemon::LogsFollow { stream, instance, offset, resume, credit } => self.logs_follow(stream, instance, offset, resume, credit, out),
            ToDaemon::LogsCredit { stream, credit, .. } => self.logs_credit(stream, credit, out),
            ToDaemon::LogsStop { stream } => self.logs_stop(stream, out),
            ToDaemon::Nodes { nodes } => self.nodes_named(nodes),
            ToDaemon::Orphans { node, uid, open, more } => self.orphans(NodeRef { node, uid }, open, more, now, out),
            ToDaemon::Check { request } => {
                let namespaces = self.policy.run_namespaces().to_vec();
                out.push(Effect::Check { request, namespaces, policy: self.policy.digest().to_owned() });
            }
            ToDaemon::Lookup { request, instance, labels, delete } => {
                let namespaces = self.policy.run_namespaces().to_vec();
                out.push(Effect::Lookup { request, instance, labels, delete, install, namespaces });
            }
        }
    }

    fn open_when_listed(&mut self, now: Now, out: &mut Vec<Effect>) {
        if let Some(welcome) = self.opening.take_if(|opening| !opening.more) {
            self.welcome(*welcome, now, out);
        }
    }

    fn welcome(&mut self, welcome: Welcome, now: Now, out: &mut Vec<Effect>) {
        if self.install.as_ref().is_some_and(|known| *known != welcome.install) {
            // Another enrolment: what the old one asked for is none of the new one's business.
            self.items.clear();
            self.nodes = super::Nodes::default();
            self.outbox = crate::report::Outbox::default();
        }
        self.install = Some(welcome.install.clone());
        let lost_after = Duration::from_millis(welcome.lost_after_ms);
        self.session = Some(Session { lost_after, epoch: welcome.epoch });
        out.push(Effect::Record(Fact::SessionOpened { session: welcome.session, install: welcome.install }));
        out.push(Effect::Condition(Condition::ControlPlane, Ok(())));
        self.tell_facts(out);

        let open: BTreeMap<InstanceName, OpenItem> = welcome.open.into_iter().map(|item| (item.instance.clone(), item)).collect();
        self.forget_what_ended(&open);
        for item in open.into_values() {
            self.outbox.seed(&item.instance, item.seq);
            self.reopen(item, now, out);
        }
        for report in self.outbox.resend(welcome.epoch) {
            out.push(Effect::Send(Box::new(ToControlPlane::Report(Box::new(report)))));
        }
        self.list_the_rest(out);
    }

    /// What the control plane no longer lists has ended there: objects stay as they are, and nothing more is said of them. A promise that is
    /// not stored yet (`Accepted`) may still be offered again, and what is under way to the API server is waited for.
    fn forget_what_ended(&mut self, open: &BTreeMap<InstanceName, OpenItem>) {
        let outbox = &mut self.outbox;
        self.items.retain(|name, item| {
            let listed = open.get(name).is_some_and(|o| o.dispatch_id == item.dispatch && o.attempt == item.attempt);
            if !listed {
                outbox.forget(name);
                // What is under way to the API server cannot be called back; what comes of it must not stay.
                item.cancel |= matches!(item.phase, Phase::Creating { .. } | Phase::ReadingBack { .. });
            }
            listed
                || match item.phase {
                    Phase::Accepted { .. } | Phase::Creating { .. } | Phase::ReadingBack { .. } | Phase::Ended { lost: true, .. } => true,
                    Phase::Looking { .. } | Phase::Waiting { .. } | Phase::Rejoining | Phase::Doubtful { .. } | Phase::Held { .. } => false,
                    Phase::Confirming { .. } | Phase::Ended { lost: false, .. } | Phase::Refused { .. } => false,
                }
        });
    }

    /// Drops an ended instance that the control plane has on disk as ended. A lost one is remembered, in case that its object appears.
    pub(super) fn forget_if_settled(&mut self, instance: &InstanceName) {
        let over = self.items.get(instance).is_some_and(|item| matches!(item.phase, Phase::Ended { lost: false, .. }));
        if over && self.outbox.is_settled(instance) {
            if let Some(item) = self.items.remove(instance) {
                self.settled.insert(item.dispatch, item.attempt);
            }
            self.outbox.forget(instance);
        }
    }

    /// Takes up a dispatch that the control plane lists as open.
    fn reopen(&mut self, open: OpenItem, now: Now, out: &mut Vec<Effect>) {
        let instance = open.instance.clone();
        if open.dispatch_id.instance_name(open.attempt) != instance {
            return; // a name that is not derived from its dispatch is never ours
        }
        let doubtful = self.doubtful(&open, now);
        if let Some(item) = self.items.get_mut(&instance) {
            item.cancel |= open.cancel;
            item.deleting = false;
            match &item.phase {
                // The acknowledgement got lost with the link; that it was stored is what it would have said. No POST was made.
                Phase::Accepted { epoch, .. } if *epoch == open.accepted_epoch => {
                    return self.accepted_ack(&instance, &open.dispatch_id, now, out);
                }
                // Another process of this place said it too, and was heard: it may have made the object.
                Phase::Accepted { .. } => {
                    item.phase = doubtful;
                    return self.look(&instance, now, out);
                }
                Phase::Refused { rejection, .. } => {
                    let (dispatch_id, attempt, rejection) = (item.dispatch.clone(), item.attempt, rejection.clone());
                    out.push(Effect::Send(Box::new(ToControlPlane::Rejected { dispatch_id, attempt, rejection })));
                }
                // What cut the link may have cut the watches too, which are silent about it for up to two minutes: how the object is now
                // is read, and a wish to delete is carried out on what was read.
                Phase::Held { uid } => {
                    item.phase = Phase::Confirming { uid: uid.clone() };
                    self.look(&instance, now, out);
                }
                // `seed` has put the end of an ended one on the way again; the others have a read or POST under way or planned.
                Phase::Looking { .. }
                | Phase::Waiting { .. }
                | Phase::Creating { .. }
                | Phase::ReadingBack { .. }
                | Phase::Rejoining
                | Phase::Doubtful { .. }
                | Phase::Confirming { .. }
                | Phase::Ended { .. } => {}
            }
            return;
        }
        let phase = match open.phase {
            OpenPhase::Created => Phase::Rejoining,
            OpenPhase::Accepted => doubtful,
        };
        let mut item = Item::new(open.dispatch_id, open.attempt, instance.clone(), phase);
        item.cancel = open.cancel;
        item.namespace = open.namespace.parse().ok();
        self.items.insert(instance.clone(), item);
        if !self.adopt_from_watch(&instance, now, out) {
            self.look(&instance, now, out);
        }
    }

    /// Accepted, and whether it was made is not known.
    fn doubtful(&self, open: &OpenItem, now: Now) -> Phase {
        let lost_after = self.session.map(|session| session.lost_after).unwrap_or_default();
        Phase::Doubtful { due: now.mono + lost_after.saturating_sub(Duration::from_millis(open.accepted_ms_ago)) }
    }

    pub(super) fn policy_changed(&mut self, policy: Policy, out: &mut Vec<Effect>) {
        if policy.digest() == self.policy.digest() {
            return;
        }
        out.push(Effect::Record(Fact::PolicyLoaded { digest: policy.digest().to_owned() }));
        self.policy = policy;
        self.watch_namespaces(out);
        if self.session.is_some() {
            // `hello` is where the digest is told.
            out.push(Effect::Redial { why: "the policy changed" });
        }
    }

    pub(super) fn facts_read(&mut self, node: Option<NodeFacts>, cluster_uid: Option<String>, out: &mut Vec<Effect>) {
        self.cluster_uid = cluster_uid.or(self.cluster_uid.take());
        self.node = node;
        self.tell_facts(out);
    }

    pub(super) fn keys_read(&mut self, keys: ClusterKeys, cluster_uid: Option<String>, out: &mut Vec<Effect>) {
        self.cluster_uid = cluster_uid.or(self.cluster_uid.take());
        self.keys = Some(keys);
        self.tell_facts(out);
    }

    /// Tells the facts and keys that the link has not heard. Those read between `hello` and `welcome` wait for the session.
    fn tell_facts(&mut self, out: &mut Vec<Effect>) {
        if let Some(node) = self.node.as_ref().filter(|_| self.session.is_some() && self.told != self.node) {
            out.push(Effect::Send(Box::new(ToControlPlane::NodeFacts(node.clone()))));
            self.told = self.node.clone();
        }
        if let Some(keys) = self.keys.as_ref().filter(|keys| self.session.is_some() && self.told_keys.as_ref() != Some(*keys)) {
            self.told_keys = Some(keys.clone());
            out.push(Effect::Send(Box::new(ToControlPlane::Keys(keys.clone()))));
        }
    }
}
