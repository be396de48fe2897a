//! The daemon's state: [`DaemonState::handle`] is the only place that changes it.
//!
//! Synchronous and without I/O, clock and randomness: a test reads as events in, effects out.
//!
//! ```text
//! offered ─► Looking ─┬ ours ────────────────────────────────► Held ─► Confirming ─► Ended
//!                     ├ another's ─► rejected                    ▲
//!                     └ absent ─┬ accepted before ─► Doubtful ───┤ ─► Ended (lost)
//!                               └ Waiting ─► policy ─► Accepted ─ack► Creating ─► Held
//!                                              └ rejected              └ not known ─► ReadingBack
//! open at welcome ─► Rejoining | Doubtful | Held
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `item.rs` | what is remembered of a dispatch and of an object |
//! | `held.rs` | what `hello` lists |
//! | `session.rs` | link, hello, welcome, messages |
//! | `offer.rs` | from the offer to the object |
//! | `turns.rs` | how many may be accepted before their objects exist |
//! | `object.rs` | watches, observations, deletion, the end |
//! | `settled.rs` | which dispatches have ended, so that none is done twice |
//! | `nodes.rs` | role `cluster`: nodes that are gone, and what is left of them |
//! | `stream.rs` | which logs are followed |

mod held;
mod item;
mod nodes;
mod object;
mod offer;
mod session;
mod settled;
mod stream;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::Duration;

use super::event::{Effect, Event, Now};
use crate::policy::Policy;
use crate::report::Outbox;
use crate::telemetry::Condition;
use crate::types::{InstanceName, KubeNamespace, Placement};
use crate::watch::Scope;
use crate::wire::{ClusterKeys, NodeFacts, Welcome};
use item::{Item, Object, Phase};
use nodes::Nodes;
use object::ScopeState;
use session::Session;
use settled::Settled;
use stream::Stream;

/// Bytes of dispatches that may be under way before their objects exist; each is held about twice, opaque and as a manifest. Thousands of usual
/// launches fit. A control plane that sends more is told to wait.
const MAX_UNDER_WAY: usize = 64 << 20;
/// How long a lost dispatch is remembered, in case that its object appears. **Source:** the API server gives a request up after 60 s; an hour is
/// far beyond any clock or queue.
const REMEMBER_LOST: Duration = Duration::from_secs(3600);
/// How long `accepted` may stay without an acknowledgement over reconnects before the dispatch is forgotten: the control plane has ended
/// its row or will offer it again.
const FORGET_ACCEPTED: Duration = Duration::from_secs(600);
/// Refusals after `accepted` that are remembered until the next welcome.
const MAX_REFUSED: usize = 1024;

/// What stays the same while the process lives.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the daemon answers for.
    pub placement: Placement,
    /// This process.
    pub boot_id: String,
    /// Root of the workdirs on the node.
    pub workdir_root: PathBuf,
}

/// All that the daemon knows.
#[derive(Debug)]
pub struct DaemonState {
    settings: Settings,
    policy: Policy,
    /// The node; a daemon of role `cluster` has none.
    node: Option<NodeFacts>,
    /// The facts that this link was last told, by `hello` or after it.
    told: Option<NodeFacts>,
    cluster_uid: Option<String>,
    keys: Option<ClusterKeys>,
    /// The keys that this link was last told.
    told_keys: Option<ClusterKeys>,
    link: Option<u64>,
    session: Option<Session>,
    /// A `welcome` whose list is not complete.
    opening: Option<Box<Welcome>>,
    /// This link's `hello` was made when all objects had been shown.
    listed_all: bool,
    /// The enrolment, once a control plane has named it; it outlives sessions.
    install: Option<String>,
    items: BTreeMap<InstanceName, Item>,
    /// Those that wait to be accepted, in the order of their offers.
    turns: VecDeque<InstanceName>,
    objects: BTreeMap<(KubeNamespace, InstanceName), Object>,
    scopes: BTreeMap<Scope, ScopeState>,
    streams: BTreeMap<u64, Stream>,
    settled: Settled,
    nodes: Nodes,
    outbox: Outbox,
    looks: u64,
    draining: bool,
}

impl DaemonState {
    /// Begins with nothing but a policy; the effects start the watches.
    pub fn new(settings: Settings, policy: Policy) -> (Self, Vec<Effect>) {
        let node = settings.placement.node().map(|name| NodeFacts {
            name: name.clone(),
            uid: None,
            labels: BTreeMap::new(),
            taints: Vec::new(),
            allocatable: BTreeMap::new(),
            conditions: Vec::new(),
            unschedulable: false,
        });
        let mut state = Self {
            settings,
            policy,
            node,
            told: None,
            cluster_uid: None,
            keys: None,
            told_keys: None,
            link: None,
            session: None,
            opening: None,
            listed_all: false,
            install: None,
            items: BTreeMap::new(),
            turns: VecDeque::new(),
            objects: BTreeMap::new(),
            scopes: BTreeMap::new(),
            streams: BTreeMap::new(),
            settled: Settled::default(),
            nodes: Nodes::default(),
            outbox: Outbox::default(),
            looks: 0,
            draining: false,
        };
        let mut out = Vec::new();
        state.watch_namespaces(&mut out);
        (state, out)
    }

    /// Takes one event and says what to do.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::LinkUp { link } => self.link_up(link, &mut out),
            Event::LinkDown { link } => self.link_down(link, &mut out),
            Event::Message { link, message } => {
                if self.link == Some(link) {
                    self.message(*message, now, &mut out);
                }
            }
            Event::Offered { link, envelope, body } => {
                if self.link == Some(link) && self.session.is_some() {
                    self.offered(envelope, &body, now, &mut out);
                }
            }
            Event::Seen { scope, seen } => self.seen(scope, seen, now, &mut out),
            Event::Looked { instance, look, found } => self.looked(&instance, look, found, now, &mut out),
            Event::NotAudited { instance } => self.not_audited(&instance, now, &mut out),
            Event::CreateEnded { instance, ended } => self.create_ended(&instance, ended, now, &mut out),
            Event::DeleteEnded { instance, uid, outcome } => self.delete_ended(&instance, &uid, outcome, now, &mut out),
            Event::FollowEnded { stream } => {
                self.streams.remove(&stream);
            }
            Event::PolicyChanged(policy) => self.policy_changed(*policy, &mut out),
            Event::KeysRead { keys, cluster_uid } => self.keys_read(*keys, cluster_uid, &mut out),
            Event::FactsRead { node, cluster_uid } => self.facts_read(node.map(|node| *node), cluster_uid, &mut out),
            Event::NodeRead { node, sight } => self.node_read(&node, sight, now, &mut out),
            Event::Swept(swept) => self.swept(*swept, now, &mut out),
            Event::Removed { uid, outcome } => self.removed(&uid, &outcome, now, &mut out),
            Event::Draining => {
                self.draining = true;
                out.push(Effect::Condition(Condition::Running, Err("the daemon is ending".into())));
            }
            Event::Tick => self.tick(now, &mut out),
        }
        self.take_turns(now, &mut out);
        out
    }

    /// The link that is open, as far as the state has heard.
    pub fn link(&self) -> Option<u64> {
        self.link
    }

    /// Whether a drain has nothing left to wait for: no object is being made, and what a connected control plane can still
    /// acknowledge is acknowledged.
    pub fn is_idle(&self) -> bool {
        let posting = |item: &Item| matches!(item.phase, Phase::Creating { .. } | Phase::ReadingBack { .. });
        if self.session.is_some() {
            self.outbox.pending() == 0 && !self.items.values().any(Item::is_being_made)
        } else {
            !self.items.values().any(posting)
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Effect>) {
        let due: Vec<InstanceName> =
            self.items.iter().filter(|(_, item)| item.retry_at.is_some_and(|at| at <= now.mono)).map(|(name, _)| name.clone()).collect();
        for instance in due {
            let Some(item) = self.items.get_mut(&instance) else { continue };
            item.retry_at = None;
            if item.wants_a_read() {
                self.look(&instance, now, out);
            } else {
                self.delete_if_wanted(&instance, out);
            }
        }
        let outbox = &mut self.outbox;
        self.items.retain(|instance, item| {
            let kept = match &item.phase {
                Phase::Accepted { since, .. } => now.mono < *since + FORGET_ACCEPTED,
                Phase::Ended { lost: true, since } => now.mono < *since + REMEMBER_LOST,
                _ => true,
            };
            if !kept {
                outbox.forget(instance);
            }
            kept
        });
        self.settle_scopes(now, out);
        self.retry_streams(out);
        self.tick_nodes(now, out);
    }

    /// Remembers a refusal after `accepted`, and forgets the oldest beyond the bound.
    fn bound_refusals(&mut self) {
        let mut refused: Vec<(Duration, InstanceName)> = self
            .items
            .iter()
            .filter_map(|(name, item)| if let Phase::Refused { since, .. } = item.phase { Some((since, name.clone())) } else { None })
            .collect();
        if refused.len() > MAX_REFUSED {
            refused.sort();
            for (_, name) in refused.drain(..MAX_REFUSED / 2) {
                self.items.remove(&name);
            }
        }
    }
}
