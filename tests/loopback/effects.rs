//! What a daemon does, in the order in which `daemon/effects.rs` does it, against the model of the API server.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::api::{Created, at_version, matches};
use super::daemon::{Follow, Watch};
use super::links::End;
use super::world::{Step, World};
use crate::apply::DeleteOutcome;
use crate::audit::{Fact, Object, Subject};
use crate::daemon::{ContainerState, Creation, Effect, Event, Unread};
use crate::observe::LogFramer;
use crate::render::Rendered;
use crate::types::{InstanceName, KubeNamespace};
use crate::watch::{Binding, Scope, Seen};
use crate::wire::{Binary, Frame, LogChunk, LogEndReason, ToControlPlane};

/// How long the real client waits for one answer.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How late the API server may still act on a request that its client has given up. **Source:** `--request-timeout`, 60 s.
const LATEST: u64 = 60_000;

/// A call on its way to the API server, and what becomes of it.
#[derive(Debug)]
pub(super) struct Request {
    verb: Verb,
    fate: Fate,
}

#[derive(Debug)]
enum Verb {
    Look { instance: InstanceName, look: u64, namespaces: Vec<KubeNamespace> },
    Create { instance: InstanceName, subject: Subject, rendered: Arc<Rendered> },
    Delete { instance: InstanceName, namespace: KubeNamespace, uid: String, subject: Subject },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    /// It acts, and the client never hears.
    AnswerLost,
    /// It never acts, and the client never hears.
    Lost,
}

impl World {
    pub(super) fn perform_effects(&mut self, node: usize, effects: Vec<Effect>) {
        // A process may die between any two of its deeds.
        let dies_at = (!self.calm && self.rng.chance(2)).then(|| self.rng.below(effects.len() as u64 + 1));
        for (index, effect) in effects.into_iter().enumerate() {
            if dies_at == Some(index as u64) {
                return self.daemon_down(node);
            }
            self.perform_effect(node, effect);
        }
    }

    fn perform_effect(&mut self, node: usize, effect: Effect) {
        let Some(daemon) = &self.daemons[node] else { return };
        let process = daemon.process;
        match effect {
            Effect::Send(message) => self.say(node, &message),
            Effect::Record(fact) => self.facts.push((node, fact)),
            Effect::Admit { fact, answer, .. } => {
                self.facts.push((node, fact));
                self.say(node, &answer);
            }
            Effect::Look { instance, look, namespaces } => self.call(node, process, Verb::Look { instance, look, namespaces }),
            Effect::Create { instance, subject, rendered } => {
                let object = Object { namespace: rendered.namespace.clone(), name: instance.clone(), uid: None };
                self.facts.push((node, Fact::CreateIntended { subject: subject.clone(), object, manifest: rendered.digest.clone() }));
                self.call(node, process, Verb::Create { instance, subject, rendered });
            }
            Effect::Delete { instance, namespace, uid, subject, why, force: _ } => {
                let object = Object { namespace: namespace.clone(), name: instance.clone(), uid: Some(uid.clone()) };
                self.facts.push((node, Fact::DeleteIntended { subject: subject.clone(), object, why }));
                self.call(node, process, Verb::Delete { instance, namespace, uid, subject });
            }
            Effect::Follow(order) => {
                let (stream, state) = (order.stream, order.state);
                let follow = Follow { offset: order.offset, resume: order.resume.clone(), credit: order.credit, state, stopped: false, order };
                if let Some(daemon) = &mut self.daemons[node] {
                    daemon.follows.insert(stream, follow);
                }
                self.after(Duration::from_millis(50), Step::Logs { node, process, stream });
            }
            Effect::Credit { stream, bytes } => self.with_follow(node, stream, |follow| follow.credit += bytes),
            Effect::Container { stream, state } => self.with_follow(node, stream, |follow| follow.state = state),
            Effect::StopFollow { stream } => self.with_follow(node, stream, |follow| follow.stopped = true),
            Effect::StopFollows => {
                if let Some(daemon) = &mut self.daemons[node] {
                    daemon.follows.clear();
                }
            }
            Effect::Watch { namespaces } => {
                for namespace in namespaces {
                    for binding in [Binding::Bound, Binding::Unbound] {
                        let scope = Scope { namespace: namespace.clone(), binding };
                        if let Some(daemon) = &mut self.daemons[node] {
                            daemon.watches.entry(scope.clone()).or_insert(Watch { cursor: None, polled: true });
                        }
                        let delay = self.rng.delay(5, 3_000);
                        self.after(delay, Step::Watch { node, process, scope });
                    }
                }
            }
            Effect::Redial { .. } => {
                if let Some(link) = self.daemons[node].as_ref().and_then(|daemon| daemon.link) {
                    self.cut(link, End::Daemon);
                }
            }
            // Of role `cluster`, which has no part in this world.
            Effect::ReadNode { .. } | Effect::Sweep(_) | Effect::Remove { .. } => {}
            // Nobody asks in a simulation; readiness is shown elsewhere.
            Effect::Check { .. } | Effect::Lookup { .. } | Effect::Condition(..) => {}
        }
    }

    fn with_follow(&mut self, node: usize, stream: u64, change: impl FnOnce(&mut Follow)) {
        if let Some(follow) = self.daemons[node].as_mut().and_then(|daemon| daemon.follows.get_mut(&stream)) {
            change(follow);
        }
    }

    fn say(&mut self, node: usize, message: &ToControlPlane) {
        let Some(link) = self.daemons[node].as_ref().and_then(|daemon| daemon.link) else { return };
        self.tell(|| format!("daemon {node} says {}", super::world::brief(message)));
        if let Ok(text) = crate::wire::encode_text(message) {
            self.transmit(link, End::Plane, Frame::Text(text));
        }
    }

    fn call(&mut self, node: usize, process: u64, verb: Verb) {
        let fate = match self.rng.below(1000) {
            _ if self.calm => Fate::Answered,
            0..30 => Fate::AnswerLost,
            30..60 => Fate::Lost,
            _ => Fate::Answered,
        };
        let delay = match fate {
            Fate::AnswerLost if self.rng.chance(600) => self.rng.delay(10, LATEST),
            _ => self.rng.delay(1, 500),
        };
        if fate != Fate::Answered {
            self.count("API answers lost");
            let event = Box::new(unclear(&verb));
            let facts = failure(&verb);
            self.after(CALL_DEADLINE, Step::Reply { node, process, facts, event });
        }
        if fate != Fate::Lost {
            self.after(delay, Step::Request { node, process, request: Request { verb, fate } });
        }
    }

    /// The API server acts.
    pub(super) fn request(&mut self, node: usize, process: u64, request: Request) {
        let Request { verb, fate } = request;
        let back = self.rng.delay(1, 500);
        if self.api_down > self.now {
            if fate == Fate::Answered {
                let refused = self.rng.chance(500); // a closed port says at once that nothing was sent
                let event = match &verb {
                    Verb::Create { instance, .. } if refused => Event::CreateEnded { instance: instance.clone(), ended: Creation::NotSent },
                    verb => unclear(verb),
                };
                let (facts, event) = (failure(&verb), Box::new(event));
                self.after(back, Step::Reply { node, process, facts, event });
            }
            return;
        }
        let (facts, event) = match verb {
            Verb::Look { instance, look, namespaces } => {
                let found = namespaces.iter().find_map(|namespace| self.api.get(namespace.as_str(), instance.as_str()));
                let found = Ok(found.map(|pod| Box::new((*pod).clone())));
                (vec![], Event::Looked { instance, look, found })
            }
            Verb::Create { instance, subject, rendered } => self.create(instance, subject, &rendered),
            Verb::Delete { instance, namespace, uid, subject } => {
                let now = self.cluster_time();
                let taken = self.api.delete(namespace.as_str(), instance.as_str(), &uid, now);
                self.tell(|| format!("API server: DELETE {instance} uid {uid}: taken {taken}"));
                let grace = self.rng.delay(100, 5_000);
                self.after(grace, Step::Kubelet { uid: uid.clone() });
                let object = Object { namespace, name: instance.clone(), uid: Some(uid.clone()) };
                let outcome = if taken { DeleteOutcome::Taken } else { DeleteOutcome::AlreadyGone };
                (vec![Fact::DeleteDone { subject, object }], Event::DeleteEnded { instance, uid, outcome })
            }
        };
        if fate == Fate::Answered {
            self.after(back, Step::Reply { node, process, facts, event: Box::new(event) });
        }
    }

    fn create(&mut self, instance: InstanceName, subject: Subject, rendered: &Rendered) -> (Vec<Fact>, Event) {
        let now = self.cluster_time();
        let mut object = Object { namespace: rendered.namespace.clone(), name: instance.clone(), uid: None };
        match self.api.create(rendered.namespace.as_str(), &rendered.manifest, now) {
            Created::Exists => {
                let message = "an object of that name exists already".to_owned();
                (vec![Fact::CreateFailed { subject, object, message }], Event::CreateEnded { instance, ended: Creation::Exists })
            }
            Created::Made(pod) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                self.tell(|| format!("API server: POST {instance} made uid {uid}"));
                self.count("objects");
                let delay = self.rng.delay(10, 8_000);
                self.after(delay, Step::Kubelet { uid: uid.clone() });
                object.uid = Some(uid);
                let ended = Creation::Done(Box::new((*pod).clone()));
                (vec![Fact::CreateDone { subject, object }], Event::CreateEnded { instance, ended })
            }
        }
    }

    /// Every watch that has something new is polled soon; some are late.
    pub(super) fn notice_changes(&mut self) {
        if self.noticed == self.api.version() {
            return;
        }
        self.noticed = self.api.version();
        for node in 0..self.daemons.len() {
            let Some(daemon) = &mut self.daemons[node] else { continue };
            let process = daemon.process;
            let idle: Vec<Scope> = daemon
                .watches
                .iter_mut()
                .filter(|(_, watch)| !watch.polled)
                .map(|(scope, watch)| {
                    watch.polled = true;
                    scope.clone()
                })
                .collect();
            for scope in idle {
                let late = if !self.calm && self.rng.chance(30) { 40_000 } else { 600 };
                let delay = self.rng.delay(1, late);
                self.after(delay, Step::Watch { node, process, scope });
            }
        }
    }

    pub(super) fn poll_watch(&mut self, node: usize, scope: &Scope) {
        let process = self.daemons[node].as_ref().map_or(0, |daemon| daemon.process);
        if self.api_down > self.now {
            self.handle(node, Event::Seen { scope: scope.clone(), seen: Seen::Failing("the API server is down".into()) });
            let again = self.rng.delay(500, 5_000);
            return self.after(again, Step::Watch { node, process, scope: scope.clone() });
        }
        let breaks = !self.calm && self.rng.chance(20);
        let Some(watch) = self.daemons[node].as_mut().and_then(|daemon| daemon.watches.get_mut(scope)) else { return };
        watch.polled = false;
        let seen = match watch.cursor.filter(|_| !breaks) {
            None => self.relist(node, scope),
            Some(cursor) => self.events(node, scope, cursor),
        };
        for seen in seen {
            self.handle(node, Event::Seen { scope: scope.clone(), seen });
        }
    }

    /// A full list; now and then a replica of the server that lags behind answers it.
    fn relist(&mut self, node: usize, scope: &Scope) -> Vec<Seen> {
        let newest = self.api.version();
        let stale = !self.calm && self.rng.chance(150);
        let version = if stale { newest.saturating_sub(self.rng.below(12)) } else { newest };
        if stale && version < newest {
            self.count("stale lists");
        }
        let name = self.nodes[node].to_string();
        let pods = self.api.list(&name, scope.namespace.as_str(), scope.binding, version);
        if let Some(watch) = self.daemons[node].as_mut().and_then(|daemon| daemon.watches.get_mut(scope)) {
            watch.cursor = Some(version);
            watch.polled = version < newest;
        }
        if version < newest {
            let process = self.daemons[node].as_ref().map_or(0, |daemon| daemon.process);
            let again = self.rng.delay(100, 10_000);
            self.after(again, Step::Watch { node, process, scope: scope.clone() });
        }
        let listed = pods.into_iter().map(|pod| Seen::Listed(Box::new((*pod).clone())));
        [Seen::Relisting].into_iter().chain(listed).chain([Seen::Relisted]).collect()
    }

    fn events(&mut self, node: usize, scope: &Scope, cursor: u64) -> Vec<Seen> {
        let (name, newest) = (self.nodes[node].to_string(), self.api.version());
        let shown = |pod: &Option<Arc<Pod>>| pod.as_ref().is_some_and(|pod| matches(pod, &name, scope.namespace.as_str(), scope.binding));
        let mut seen = Vec::new();
        for change in self.api.history.iter().skip_while(|change| change.version <= cursor) {
            match (shown(&change.before), shown(&change.after), &change.before, &change.after) {
                (_, true, _, Some(pod)) => seen.push(Seen::Applied(Box::new((**pod).clone()))),
                (true, false, Some(before), after) => {
                    let last = after.as_ref().unwrap_or(before);
                    seen.push(Seen::Left(Box::new(at_version(last, change.version))));
                }
                _ => {}
            }
        }
        if let Some(watch) = self.daemons[node].as_mut().and_then(|daemon| daemon.watches.get_mut(scope)) {
            watch.cursor = Some(newest);
        }
        seen
    }

    /// Reads a log anew from the resume point, as far as credit goes.
    pub(super) fn poll_logs(&mut self, node: usize, stream: u64) {
        let Some(daemon) = &self.daemons[node] else { return };
        let (process, link) = (daemon.process, daemon.link);
        let (Some(follow), Some(link)) = (daemon.follows.get(&stream).cloned(), link) else { return };
        let pod = self.api.get(follow.order.namespace.as_str(), follow.order.instance.as_str());
        let mut follow = follow;
        let before = follow.offset;
        let starved = pod.as_ref().is_some_and(|pod| self.read_log(link, &mut follow, pod));
        let end = match follow.state {
            _ if follow.stopped => Some(LogEndReason::Stopped),
            ContainerState::Gone => Some(LogEndReason::Gone),
            ContainerState::Ended if pod.is_some() && follow.offset == before && !starved => Some(LogEndReason::Complete),
            _ => None,
        };
        let offset = follow.offset;
        if let Some(daemon) = &mut self.daemons[node] {
            match end {
                Some(_) => drop(daemon.follows.remove(&stream)),
                None => drop(daemon.follows.insert(stream, follow)),
            }
        }
        if let Some(reason) = end {
            self.say(node, &ToControlPlane::LogEnd { stream, reason, offset });
            return self.handle(node, Event::FollowEnded { stream });
        }
        let pause = self.rng.delay(200, 4_000);
        self.after(pause, Step::Logs { node, process, stream });
    }

    /// Sends what is new; true when credit ran out.
    fn read_log(&mut self, link: u64, follow: &mut Follow, pod: &Pod) -> bool {
        if self.api_down > self.now {
            return true;
        }
        let Some(witness) = pod.metadata.uid.as_ref().and_then(|uid| self.api.witnesses.get(uid)) else { return false };
        let mut framer = LogFramer::new(follow.order.container.clone(), &follow.resume, follow.offset);
        let since = framer.since_time();
        let raw: String =
            witness.log.iter().filter(|(at, _)| since.is_none_or(|since| *at >= since)).map(|(at, line)| format!("{at:.9} {line}")).collect();
        let mut pieces = framer.push(raw.as_bytes());
        pieces.extend(framer.end());
        for piece in pieces {
            let length = piece.bytes.len() as u64;
            if follow.credit < length {
                return true;
            }
            follow.credit -= length;
            let chunk = LogChunk { stream: follow.order.stream, offset: piece.offset, resume: piece.resume.clone() };
            if let Ok(frame) = Binary::Log(chunk, piece.bytes).encode() {
                self.transmit(link, End::Plane, Frame::Binary(frame));
            }
            follow.offset = piece.offset + length;
            follow.resume = piece.resume;
        }
        false
    }
}

/// The client has no answer.
fn unclear(verb: &Verb) -> Event {
    match verb {
        Verb::Look { instance, look, .. } => Event::Looked { instance: instance.clone(), look: *look, found: Err(Unread::Unclear) },
        Verb::Create { instance, .. } => Event::CreateEnded { instance: instance.clone(), ended: Creation::Unclear { message: "no answer".into() } },
        Verb::Delete { instance, uid, .. } => {
            let outcome = DeleteOutcome::Unclear { message: "no answer".into() };
            Event::DeleteEnded { instance: instance.clone(), uid: uid.clone(), outcome }
        }
    }
}

fn failure(verb: &Verb) -> Vec<Fact> {
    let message = "no answer".to_owned();
    match verb {
        Verb::Look { .. } => vec![],
        Verb::Create { instance, subject, rendered } => {
            let object = Object { namespace: rendered.namespace.clone(), name: instance.clone(), uid: None };
            vec![Fact::CreateFailed { subject: subject.clone(), object, message }]
        }
        Verb::Delete { instance, namespace, uid, subject } => {
            let object = Object { namespace: namespace.clone(), name: instance.clone(), uid: Some(uid.clone()) };
            vec![Fact::DeleteFailed { subject: subject.clone(), object, message }]
        }
    }
}
