//! Performs effects. No decision is made here: what a call brought comes back as an event.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use super::check;
use super::event::{Creation, Effect, Event, Unread};
use super::follow::Follows;
use super::link::Slot;
use super::sweep;
use crate::apply::{ApiServer, CreateOutcome, DeleteOutcome, Kind};
use crate::audit::{Audit, Fact, Object, Subject};
use crate::error::Chain;
use crate::host::Workdirs;
use crate::render::Rendered;
use crate::telemetry::{Condition, Health};
use crate::types::{InstanceName, KubeNamespace, Placement};
use crate::watch::{self, Binding, Scope, Seen};
use crate::wire::ToControlPlane;

/// What tasks need; cheap to clone into them.
#[derive(Clone)]
pub(super) struct Hands {
    pub(super) api: ApiServer,
    pub(super) audit: Audit,
    /// A daemon of role `cluster` has none.
    pub(super) workdirs: Option<Arc<Workdirs>>,
    pub(super) health: Health,
    pub(super) events: mpsc::Sender<Event>,
}

impl Hands {
    pub(super) fn new(api: ApiServer, audit: Audit, workdirs: Option<Workdirs>, health: Health, events: mpsc::Sender<Event>) -> Self {
        Self { api, audit, workdirs: workdirs.map(Arc::new), health, events }
    }

    /// Writes a fact; false when it could not be, which is loud and makes the daemon not ready.
    pub(super) async fn record(&self, fact: Fact) -> bool {
        match self.audit.record(fact).await {
            Ok(()) => {
                self.health.hold(Condition::Audit);
                true
            }
            Err(error) => {
                let why = Chain(&error).to_string();
                if self.health.fail(Condition::Audit, why.clone()) {
                    error!(error = why, "The audit log cannot be written; nothing is created until it can");
                }
                false
            }
        }
    }

    pub(super) async fn tell(&self, event: Event) {
        let _ = self.events.send(event).await; // the loop is gone only when the process ends
    }
}

/// Performs effects in the order they are given; calls run as tasks of their own.
pub(super) struct Performer {
    hands: Hands,
    slot: Slot,
    follows: Follows,
    watch_client: Client,
    placement: Placement,
    seen: mpsc::Sender<(Scope, Seen)>,
    watches: BTreeMap<Scope, CancellationToken>,
    tracker: TaskTracker,
}

impl Performer {
    pub(super) fn new(
        hands: Hands,
        slot: Slot,
        watch_client: Client,
        follow_client: Client,
        placement: Placement,
        seen: mpsc::Sender<(Scope, Seen)>,
        tracker: TaskTracker,
    ) -> Self {
        let follows = Follows::new(follow_client, hands.events.clone(), tracker.clone());
        Self { hands, slot, follows, watch_client, placement, seen, watches: BTreeMap::new(), tracker }
    }

    /// Performs one effect. `link` is the state's current link: what it says to an older one is dropped.
    pub(super) async fn perform(&mut self, effect: Effect, link: Option<u64>) {
        match effect {
            Effect::Send(message) => {
                say(&message);
                if let Some(sender) = self.slot.of(link) {
                    sender.send(*message);
                }
            }
            Effect::Record(fact) => {
                self.hands.record(fact).await;
            }
            Effect::Admit { instance, fact, answer } => {
                if self.hands.record(fact).await {
                    info!(%instance, "Dispatch admitted");
                    if let Some(sender) = self.slot.of(link) {
                        sender.send(*answer);
                    }
                } else {
                    // In a task: this loop is the one that empties the queue.
                    let hands = self.hands.clone();
                    self.tracker.spawn(async move { hands.tell(Event::NotAudited { instance }).await });
                }
            }
            Effect::Look { instance, look, namespaces } => self.spawn(|hands| look_up(hands, instance, look, namespaces)),
            Effect::Create { instance, subject, rendered } => self.spawn(|hands| create(hands, instance, subject, rendered)),
            Effect::Delete { instance, namespace, uid, subject, why, force } => {
                let object = Object { namespace, name: instance, uid: Some(uid) };
                self.spawn(|hands| delete(hands, subject, object, why, force));
            }
            Effect::ReadNode { node } => self.spawn(|hands| sweep::read_node(hands, node)),
            Effect::Sweep(sweep) => self.spawn(|hands| sweep::sweep(hands, *sweep)),
            Effect::Remove { remnant, kind, why } => self.spawn(|hands| sweep::remove(hands, remnant, kind, why)),
            Effect::Follow(order) => {
                if let Some(sender) = self.slot.of(link) {
                    self.follows.start(order, sender);
                }
            }
            Effect::Credit { stream, bytes } => self.follows.credit(stream, bytes),
            Effect::Container { stream, state } => self.follows.container(stream, state),
            Effect::StopFollow { stream } => self.follows.stop(stream),
            Effect::StopFollows => self.follows.stop_all(),
            Effect::Check { request, namespaces, policy } => {
                let Some(sender) = self.slot.of(link) else { return };
                self.spawn(|hands| async move {
                    let items = check::run(&hands, &namespaces, &policy).await;
                    sender.send(ToControlPlane::CheckResult { request, items });
                });
            }
            Effect::Lookup { request, instance, labels, delete, install, namespaces } => {
                let Some(sender) = self.slot.of(link) else { return };
                self.spawn(|hands| async move {
                    let wanted = check::Wanted { instance, labels, install, delete };
                    if let Some((found, foreign)) = check::look_up(&hands, &wanted, &namespaces).await {
                        sender.send(ToControlPlane::LookupResult { request, found, foreign });
                    }
                });
            }
            Effect::Watch { namespaces } => self.watch(&namespaces),
            Effect::Redial { why } => {
                if let Some(sender) = self.slot.of(link) {
                    info!(why, "Closing the session in order to open it anew");
                    sender.close();
                }
            }
            Effect::Condition(condition, Ok(())) => self.hands.health.hold(condition),
            Effect::Condition(condition, Err(why)) => {
                if self.hands.health.fail(condition, why.clone()) {
                    warn!(condition = condition.name(), error = why, "Not ready");
                }
            }
        }
    }

    /// Ends what runs for this process' sake: watches and follows.
    pub(super) fn stop(&mut self) {
        self.follows.stop_all();
        for cancel in self.watches.values() {
            cancel.cancel();
        }
    }

    fn spawn<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce(Hands) -> F) {
        let (window, task) = (self.hands.api.window().clone(), task(self.hands.clone()));
        self.tracker.spawn(async move {
            let _place = window.enter().await;
            task.await;
        });
    }

    fn watch(&mut self, namespaces: &[KubeNamespace]) {
        self.watches.retain(|scope, cancel| {
            let kept = namespaces.contains(&scope.namespace);
            if !kept {
                cancel.cancel();
            }
            kept
        });
        for namespace in namespaces {
            for binding in [Binding::Bound, Binding::Unbound] {
                let scope = Scope { namespace: namespace.clone(), binding };
                if self.watches.contains_key(&scope) {
                    continue;
                }
                let cancel = CancellationToken::new();
                self.watches.insert(scope.clone(), cancel.clone());
                let (client, placement, seen) = (self.watch_client.clone(), self.placement.clone(), self.seen.clone());
                self.tracker.spawn(watch::follow(client, placement, scope, seen, cancel));
            }
        }
    }
}

/// The daemon's own log of what it tells the control plane.
fn say(message: &ToControlPlane) {
    match message {
        ToControlPlane::Rejected { dispatch_id, rejection, .. } => {
            info!(dispatch = %dispatch_id, code = %rejection.code, rule = rejection.rule, reason = rejection.message, "Dispatch rejected");
        }
        ToControlPlane::Report(report) => {
            let seen = &report.observation;
            info!(instance = %report.instance, seq = report.seq, state = %seen.state, reason = %seen.reason, "Reported");
        }
        _ => {}
    }
}

async fn look_up(hands: Hands, instance: InstanceName, look: u64, namespaces: Vec<KubeNamespace>) {
    let mut found = Ok(None);
    for namespace in &namespaces {
        match hands.api.read_pod(namespace, &instance).await {
            Ok(None) => {}
            Ok(Some(pod)) => {
                found = Ok(Some(pod));
                break;
            }
            // It may be in another one.
            Err(error) if error.code() == Some(403) => {
                warn!(%instance, ns = %namespace, error = %Chain(&error), "No right to read the namespace");
                found = Err(Unread::Forbidden);
            }
            Err(error) => {
                warn!(%instance, ns = %namespace, error = %Chain(&error), "Cannot look an instance up; trying again");
                found = Err(Unread::Unclear);
                break;
            }
        }
    }
    hands.tell(Event::Looked { instance, look, found }).await;
}

async fn create(hands: Hands, instance: InstanceName, subject: Subject, rendered: Arc<Rendered>) {
    let mut object = Object { namespace: rendered.namespace.clone(), name: instance.clone(), uid: None };
    let intent = Fact::CreateIntended { subject: subject.clone(), object: object.clone(), manifest: rendered.digest.clone() };
    if !hands.record(intent).await {
        return hands.tell(Event::CreateEnded { instance, ended: Creation::NotAudited }).await;
    }
    if let Err(message) = make_workdir(&hands, &rendered).await {
        warn!(%instance, error = message, "Cannot make the workdir");
        hands.record(Fact::CreateFailed { subject, object, message: message.clone() }).await;
        return hands.tell(Event::CreateEnded { instance, ended: Creation::NoWorkdir { message } }).await;
    }
    let outcome = hands.api.create_pod(&rendered.namespace, &instance, &rendered.manifest).await;
    let failed = |message: &str| Fact::CreateFailed { subject: subject.clone(), object: object.clone(), message: message.to_owned() };
    let (fact, ended) = match outcome {
        CreateOutcome::Created(pod) => {
            info!(%instance, ns = %rendered.namespace, dispatch = %subject.dispatch, "Pod created");
            object.uid.clone_from(&pod.metadata.uid);
            (Fact::CreateDone { subject, object }, Creation::Done(pod))
        }
        CreateOutcome::AlreadyExists => (failed("an object of that name exists already"), Creation::Exists),
        CreateOutcome::Refused { code, message } => {
            warn!(%instance, ns = %rendered.namespace, code, error = message, "The cluster refused the Pod");
            (failed(&message), Creation::Refused { code, message })
        }
        CreateOutcome::NotSent { message } => {
            warn!(%instance, ns = %rendered.namespace, error = message, "The API server cannot be reached; trying again");
            (failed(&message), Creation::NotSent)
        }
        CreateOutcome::Unclear { message } => {
            warn!(%instance, ns = %rendered.namespace, error = message, "It is not known whether the Pod was made; reading it");
            (failed(&message), Creation::Unclear { message })
        }
    };
    hands.record(fact).await;
    hands.tell(Event::CreateEnded { instance, ended }).await;
}

async fn make_workdir(hands: &Hands, rendered: &Rendered) -> Result<(), String> {
    let Some(path) = rendered.workdir.clone() else { return Ok(()) };
    let Some(workdirs) = hands.workdirs.clone() else { return Err("this daemon has no node, and makes no workdirs".to_owned()) };
    match tokio::task::spawn_blocking(move || workdirs.create(&path.namespace, &path.instance)).await {
        Ok(made) => made.map_err(|error| Chain(&error).to_string()),
        Err(error) => Err(error.to_string()),
    }
}

async fn delete(hands: Hands, subject: Subject, object: Object, why: &'static str, force: bool) {
    let outcome = delete_object(&hands, subject, &object, why, force).await;
    let (instance, uid) = (object.name, object.uid.unwrap_or_default());
    hands.tell(Event::DeleteEnded { instance, uid, outcome }).await;
}

/// Deletes an object by its UID, with its two audit lines. A deletion that cannot be audited is carried out all the same: work that goes on
/// against its owner's wish is worse.
pub(super) async fn delete_object(hands: &Hands, subject: Subject, object: &Object, why: &'static str, force: bool) -> DeleteOutcome {
    hands.record(Fact::DeleteIntended { subject: subject.clone(), object: object.clone(), why }).await;
    let outcome = hands.api.delete(Kind::Pod, &object.namespace, object.name.as_str(), object.uid.as_deref().unwrap_or_default(), force).await;
    let fact = match &outcome {
        DeleteOutcome::Taken | DeleteOutcome::AlreadyGone => {
            info!(instance = %object.name, ns = %object.namespace, why, "Pod deleted");
            Fact::DeleteDone { subject, object: object.clone() }
        }
        DeleteOutcome::Refused { message } | DeleteOutcome::Unclear { message } => {
            warn!(instance = %object.name, ns = %object.namespace, error = message, "Cannot delete the Pod");
            Fact::DeleteFailed { subject, object: object.clone(), message: message.clone() }
        }
    };
    hands.record(fact).await;
    outcome
}
