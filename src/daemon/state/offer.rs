//! From the offer of a dispatch to its object.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use super::item::{Item, Look, Object, Phase, key_of};
use super::{DaemonState, Effect, MAX_UNDER_WAY, Now};
use crate::audit::{Fact, Subject};
use crate::daemon::event::{Creation, Unread};
use crate::observe::{self, Gone};
use crate::policy;
use crate::render::{self, Place, Rendered};
use crate::types::{DispatchId, InstanceName, KubeNamespace, LABEL_NODE, State};
use crate::wire::{Dispatch, DispatchEnvelope, Rejection, RejectionCode, ToControlPlane, Work};

/// How often an object is read that no watch shows.
const UNWATCHED_PAUSE: Duration = Duration::from_secs(10);

/// Who holds the name.
enum Found {
    Ours,
    Anothers,
    Nobody,
}

impl DaemonState {
    pub(super) fn offered(&mut self, envelope: DispatchEnvelope, body: &[u8], now: Now, out: &mut Vec<Effect>) {
        if let Some(item) = self.items.get(&envelope.instance)
            && item.dispatch == envelope.dispatch_id
            && item.attempt == envelope.attempt
        {
            return self.offered_again(&envelope.instance, out);
        }
        if let Some(rejection) = self.unacceptable(&envelope, body) {
            let DispatchEnvelope { dispatch_id, attempt, .. } = envelope;
            let subject = Subject { dispatch: dispatch_id.clone(), attempt, requested_by: String::new() };
            out.push(Effect::Record(Fact::DispatchRejected { subject, rejection: rejection.clone() }));
            out.push(Effect::Send(Box::new(ToControlPlane::Rejected { dispatch_id, attempt, rejection })));
            return;
        }
        let DispatchEnvelope { dispatch_id, attempt, instance, accepted_before, .. } = envelope;
        let offer = policy::parse_dispatch(body).map(Box::new);
        let mut item = Item::new(dispatch_id, attempt, instance.clone(), Phase::Looking { offer, accepted_before });
        item.weight = body.len();
        if let Phase::Looking { offer: Ok(dispatch), .. } = &item.phase {
            item.requested_by = format!("{}/{}", dispatch.caller.namespace, dispatch.caller.user);
            item.namespace = namespace_of(dispatch);
        }
        self.items.insert(instance.clone(), item);
        self.look(&instance, now, out);
    }

    /// Why a dispatch is refused by its envelope and this daemon's load alone, before it is opened.
    fn unacceptable(&self, envelope: &DispatchEnvelope, body: &[u8]) -> Option<Rejection> {
        let DispatchEnvelope { dispatch_id, attempt, instance, install, placement, accepted_before } = envelope;
        if *placement != self.settings.placement {
            let message = format!("the dispatch is for {}, and this is the daemon of {}", placement.whose(), self.settings.placement.whose());
            return Some(rejection(RejectionCode::Misdirected, "placement", &message));
        }
        if self.install.as_ref() != Some(install) {
            return Some(rejection(RejectionCode::Misdirected, "install", "the dispatch is for another enrolment than this session's"));
        }
        if dispatch_id.instance_name(*attempt) != *instance {
            let message = "the instance's name is not the one derived from dispatch and attempt";
            return Some(rejection(RejectionCode::Invalid, "instance", message));
        }
        if self.items.contains_key(instance) {
            return Some(rejection(RejectionCode::NameTaken, "instance", "another dispatch of this daemon has the same name"));
        }
        if self.settled.contains(dispatch_id, *attempt) {
            return Some(rejection(RejectionCode::Invalid, "replay", "the dispatch has ended here before; a new one needs an id of its own"));
        }
        let under_way: usize = self.items.values().filter(|item| item.is_being_made()).map(|item| item.weight).sum();
        if under_way + body.len() > MAX_UNDER_WAY && !accepted_before {
            return Some(rejection(RejectionCode::Unavailable, "load", "this daemon has too many dispatches under way; try again"));
        }
        None
    }

    /// The control plane did not hear, or not store, what was said before: it is said again.
    fn offered_again(&mut self, instance: &InstanceName, out: &mut Vec<Effect>) {
        let in_session = self.session.map_or(0, |session| session.epoch);
        let Some(item) = self.items.get_mut(instance) else { return };
        if let Phase::Accepted { epoch, .. } = &mut item.phase {
            *epoch = in_session;
        }
        match &item.phase {
            // The answer is on its way.
            Phase::Looking { .. } | Phase::Waiting { .. } | Phase::Rejoining | Phase::Doubtful { .. } => {}
            Phase::Refused { rejection, .. } => {
                let (dispatch_id, attempt, rejection) = (item.dispatch.clone(), item.attempt, rejection.clone());
                out.push(Effect::Send(Box::new(ToControlPlane::Rejected { dispatch_id, attempt, rejection })));
            }
            Phase::Accepted { .. }
            | Phase::Creating { .. }
            | Phase::ReadingBack { .. }
            | Phase::Held { .. }
            | Phase::Confirming { .. }
            | Phase::Ended { .. } => {
                out.extend(accepted(item)); // reports that are not acknowledged went out at `welcome`
            }
        }
    }

    /// Begins the read that the item waits for, unless one is under way.
    pub(super) fn look(&mut self, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance).filter(|item| item.looking.is_none()) else { return };
        self.looks += 1;
        item.looking = Some(Look { number: self.looks, since: now.mono });
        // An object that was seen has its namespace. Without one, what may have been made can be in any run namespace, under an older
        // policy's default; what was never accepted is looked up where it would be made.
        let namespaces = match (&item.namespace, &item.phase) {
            (Some(namespace), _) => vec![namespace.clone()],
            (None, Phase::Looking { accepted_before: false, .. }) => vec![self.policy.default_namespace().clone()],
            (None, _) => self.policy.run_namespaces().to_vec(),
        };
        out.push(Effect::Look { instance: instance.clone(), look: self.looks, namespaces });
    }

    pub(super) fn looked(&mut self, instance: &InstanceName, look: u64, found: Result<Option<Box<Pod>>, Unread>, now: Now, out: &mut Vec<Effect>) {
        if self.confirmed(instance, look, &found, now, out) {
            return;
        }
        let Some(item) = self.items.get_mut(instance) else { return };
        let Some(read) = item.looking.filter(|read| read.number == look) else { return };
        item.looking = None;
        let found = match found {
            Ok(found) => found,
            // Never accepted, so never made: policy and the POST's own answer say what is wrong with that namespace.
            Err(Unread::Forbidden) if matches!(item.phase, Phase::Looking { accepted_before: false, .. }) => None,
            Err(Unread::Forbidden | Unread::Unclear) => {
                item.failed(now.mono); // nothing is known: nothing is said
                return;
            }
        };
        item.succeeded();
        let holder = self.holder(instance, found.as_deref(), now);
        let Some(item) = self.items.get_mut(instance) else { return };
        if let (Some(uid), Found::Anothers | Found::Nobody) = (item.left.clone(), &holder)
            && !matches!(item.phase, Phase::Confirming { .. })
            && item.wants_a_read()
        {
            return self.gone(instance, &uid, now, out); // it was made, and whatever became of the POST, it is not made again
        }
        match (std::mem::replace(&mut item.phase, Phase::Rejoining), holder) {
            (Phase::Looking { .. }, Found::Ours) => {
                out.extend(accepted_in(item, found.as_deref()));
                self.adopt(instance, found, now, out);
            }
            (Phase::Looking { accepted_before: false, .. }, Found::Anothers) => {
                let message = "an object of this name exists and was not made for this dispatch";
                self.refuse(instance, rejection(RejectionCode::NameTaken, "instance", message), false, now, out);
            }
            (Phase::Looking { offer, accepted_before: false }, Found::Nobody) => {
                item.phase = Phase::Waiting { offer };
                self.turns.push_back(instance.clone());
            }
            (Phase::Looking { accepted_before: true, .. }, Found::Anothers | Found::Nobody) => {
                // It was accepted, and this process does not know whether it was POSTed: never again.
                item.phase = Phase::Doubtful { due: now.mono + self.session.map(|s| s.lost_after).unwrap_or_default() };
                self.wait_for_due(instance);
            }
            (Phase::Creating { .. } | Phase::ReadingBack { .. }, Found::Ours) => self.created(instance, found, now, out),
            (Phase::ReadingBack { .. }, Found::Anothers) => {
                let message = "an object of this name was made by somebody else in the meantime";
                self.refuse(instance, rejection(RejectionCode::NameTaken, "instance", message), true, now, out);
            }
            (Phase::ReadingBack { rendered }, Found::Nobody) => self.nothing_made(instance, rendered, read.since, now, out),
            (Phase::Rejoining | Phase::Doubtful { .. }, Found::Ours) => self.adopt(instance, found, now, out),
            (Phase::Doubtful { due }, Found::Anothers | Found::Nobody) if read.since < due => {
                item.phase = Phase::Doubtful { due };
                self.wait_for_due(instance);
            }
            (Phase::Doubtful { .. }, Found::Anothers | Found::Nobody) => self.lost(instance, now, out),
            // It had been reported: somebody deleted it while no daemon saw it.
            (Phase::Rejoining, Found::Anothers | Found::Nobody) => self.gone(instance, "", now, out),
            (Phase::Confirming { uid }, Found::Ours) if found.as_ref().is_some_and(|pod| pod.metadata.uid.as_deref() == Some(&uid)) => {
                let watched = found.as_ref().is_some_and(|pod| self.is_watched(pod));
                let Some(item) = self.items.get_mut(instance) else { return };
                item.phase = Phase::Held { uid }; // it only changed hands between two watches, or the link was down
                self.observe(instance, out);
                self.streams_of(instance, out);
                self.delete_if_wanted(instance, out);
                if !watched {
                    self.keep_reading(instance, now);
                }
            }
            (Phase::Confirming { uid }, _) => self.gone(instance, &uid, now, out),
            // These wait for no read; an answer that comes late changes nothing.
            (phase @ (Phase::Waiting { .. } | Phase::Accepted { .. } | Phase::Creating { .. } | Phase::Held { .. }), _) => item.phase = phase,
            (phase @ (Phase::Ended { .. } | Phase::Refused { .. }), _) => item.phase = phase,
        }
    }

    /// Whether a watch of ours shows the Pod.
    fn is_watched(&self, pod: &Pod) -> bool {
        let label = pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_NODE));
        label.is_some_and(|value| *value == self.settings.placement.label())
    }

    /// Somebody took the label away by which the watches know the object: until it has ended, it is read again and again.
    fn keep_reading(&mut self, instance: &InstanceName, now: Now) {
        let ended = self.outbox.latest(instance).is_some_and(|seen| seen.state == State::Stopped);
        let Some(item) = self.items.get_mut(instance).filter(|_| !ended) else { return };
        if let Phase::Held { uid } = &item.phase {
            item.phase = Phase::Confirming { uid: uid.clone() };
            item.retry_at = Some(now.mono + UNWATCHED_PAUSE);
        }
    }

    /// Who holds the instance's name, by an object that was just read; it goes into `objects` as a watch would have put it there.
    fn holder(&mut self, instance: &InstanceName, found: Option<&Pod>, now: Now) -> Found {
        let Some(pod) = found else { return Found::Nobody };
        let cancel = self.items.get(instance).is_some_and(|item| item.cancel);
        let object = Object::of(pod, observe::pod(pod, now.wall, cancel));
        let ours = match (&object, self.items.get(instance)) {
            (Some(object), Some(item)) => object.is_of(item, self.install.as_deref()),
            _ => false,
        };
        if let (true, Some(key), Some(object)) = (ours, key_of(pod), object) {
            self.note(key, object);
        }
        if ours { Found::Ours } else { Found::Anothers }
    }

    fn wait_for_due(&mut self, instance: &InstanceName) {
        if let Some(item) = self.items.get_mut(instance)
            && let Phase::Doubtful { due } = item.phase
        {
            item.retry_at = Some(due);
        }
    }

    pub(super) fn judge(&mut self, instance: &InstanceName, offer: Result<Box<Dispatch>, Rejection>, now: Now, out: &mut Vec<Effect>) {
        if self.draining {
            let message = "this daemon is ending; its successor on the node takes new work in a moment";
            return self.refuse(instance, rejection(RejectionCode::Unavailable, "drain", message), false, now, out);
        }
        let Some(item) = self.items.get_mut(instance) else { return };
        if item.cancel {
            return self.never_made(instance, now, out);
        }
        let rendered = offer.and_then(|dispatch| self.policy.judge(&dispatch)).and_then(|admitted| {
            let install = self.install.as_deref().unwrap_or_default();
            let workdir_root = &self.settings.workdir_root;
            let place =
                Place { placement: &self.settings.placement, install, workdir_root, dispatch_id: &item.dispatch, attempt: item.attempt, instance };
            render::launch(&admitted, &place).map_err(|error| error.rejection())
        });
        match rendered {
            Err(rejection) => self.refuse(instance, rejection, false, now, out),
            Ok(rendered) => {
                item.namespace = Some(rendered.namespace.clone());
                let object = item.audit_object(&rendered.namespace, None);
                let fact = Fact::DispatchAdmitted { subject: item.subject(), object, manifest: rendered.digest.clone() };
                let epoch = self.session.map_or(0, |session| session.epoch);
                item.phase = Phase::Accepted { rendered: Arc::new(rendered), since: now.mono, epoch };
                if let Some(Effect::Send(answer)) = accepted(item) {
                    out.push(Effect::Admit { instance: instance.clone(), fact, answer });
                }
            }
        }
    }

    /// Nothing is made without an audit line.
    pub(super) fn not_audited(&mut self, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        if self.items.get(instance).is_some_and(|item| matches!(item.phase, Phase::Accepted { .. })) {
            self.refuse(instance, rejection(RejectionCode::Unavailable, "audit", NO_AUDIT), false, now, out);
        }
    }

    /// Refuses a dispatch. Before `accepted` it is forgotten at once: whoever offers it again is answered anew.
    fn refuse(&mut self, instance: &InstanceName, rejection: Rejection, after_accepted: bool, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        out.push(Effect::Record(Fact::DispatchRejected { subject: item.subject(), rejection: rejection.clone() }));
        let (dispatch_id, attempt) = (item.dispatch.clone(), item.attempt);
        out.push(Effect::Send(Box::new(ToControlPlane::Rejected { dispatch_id, attempt, rejection: rejection.clone() })));
        if after_accepted {
            item.phase = Phase::Refused { rejection, since: now.mono };
            self.bound_refusals();
        } else {
            self.items.remove(instance);
        }
        self.streams_of(instance, out);
    }

    pub(super) fn accepted_ack(&mut self, instance: &InstanceName, dispatch: &DispatchId, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance).filter(|item| item.dispatch == *dispatch) else { return };
        let Phase::Accepted { rendered, .. } = &item.phase else { return };
        let rendered = Arc::clone(rendered);
        if item.cancel { self.never_made(instance, now, out) } else { self.post(instance, rendered, out) }
    }

    /// A read after a POST that brought no answer found nothing. A POST that may have taken effect is never repeated: its object may have been made,
    /// have run and have been deleted by somebody, all unseen.
    fn nothing_made(&mut self, instance: &InstanceName, rendered: Arc<Rendered>, read: Duration, now: Now, out: &mut Vec<Effect>) {
        let connected = self.session.is_some();
        let Some(item) = self.items.get_mut(instance) else { return };
        let again = match item.doubt {
            Some(until) if read < until => until, // it may take effect yet
            Some(_) => return self.lost(instance, now, out),
            None if item.cancel => return self.never_made(instance, now, out),
            None if connected => return self.post(instance, rendered, out),
            None => now.mono + UNWATCHED_PAUSE, // another daemon may answer for the place by now
        };
        item.phase = Phase::ReadingBack { rendered };
        item.retry_at = Some(again);
    }

    fn post(&mut self, instance: &InstanceName, rendered: Arc<Rendered>, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        item.phase = Phase::Creating { rendered: Arc::clone(&rendered) };
        out.push(Effect::Create { instance: instance.clone(), subject: item.subject(), rendered });
    }

    pub(super) fn create_ended(&mut self, instance: &InstanceName, ended: Creation, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get_mut(instance) else { return };
        let Phase::Creating { rendered } = &item.phase else { return };
        let rendered = Arc::clone(rendered);
        let refusal = match ended {
            Creation::Done(pod) => {
                return match self.holder(instance, Some(&pod), now) {
                    Found::Ours => self.created(instance, Some(pod), now, out),
                    // An admission webhook took our marks off: the object could never be found again.
                    Found::Anothers | Found::Nobody => {
                        let message = "the cluster changed the object's labels or annotations on creation, so that it cannot be followed; \
                                       exempt the run namespace from the webhook that does so";
                        self.refuse(instance, rejection(RejectionCode::ClusterRefused, "cluster", message), true, now, out);
                        out.extend(self.delete_stray(instance, &pod, "its marks were removed on creation"));
                    }
                };
            }
            Creation::Exists => {
                item.doubt = Some(now.mono); // if it is gone by the read, it may have been ours
                item.phase = Phase::ReadingBack { rendered };
                return self.look(instance, now, out);
            }
            Creation::Unclear { message } => {
                item.trouble = Some(message);
                item.doubt = Some(now.mono + self.session.map(|s| s.lost_after).unwrap_or(DEFAULT_LOST_AFTER));
                item.phase = Phase::ReadingBack { rendered };
                if !self.adopt_from_watch(instance, now, out) {
                    self.look(instance, now, out);
                }
                return;
            }
            // The API server never heard of it: however long it is down, nothing is in doubt.
            Creation::NotSent => {
                item.phase = Phase::ReadingBack { rendered };
                return item.failed(now.mono);
            }
            Creation::Refused { code, message } => {
                rejection(RejectionCode::ClusterRefused, "cluster", &refused_text(&rendered.namespace, code, &message))
            }
            Creation::NotAudited => rejection(RejectionCode::Unavailable, "audit", NO_AUDIT),
            Creation::NoWorkdir { message } => rejection(RejectionCode::Unavailable, "workdir", &message),
        };
        self.refuse(instance, refusal, true, now, out);
    }

    /// The object that was asked for is there.
    fn created(&mut self, instance: &InstanceName, pod: Option<Box<Pod>>, now: Now, out: &mut Vec<Effect>) {
        self.hold(instance, pod.as_deref(), now, out);
    }

    /// The object was there before it was asked for.
    fn adopt(&mut self, instance: &InstanceName, pod: Option<Box<Pod>>, now: Now, out: &mut Vec<Effect>) {
        self.hold(instance, pod.as_deref(), now, out);
        self.record_adopted(instance, out);
    }

    pub(super) fn record_adopted(&self, instance: &InstanceName, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get(instance) else { return };
        if let (Phase::Held { uid }, Some(namespace)) = (&item.phase, &item.namespace) {
            out.push(Effect::Record(Fact::Adopted { subject: item.subject(), object: item.audit_object(namespace, Some(uid)) }));
        }
    }

    /// Deleted before anything was made.
    fn never_made(&mut self, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        self.end(instance, observe::gone(None, now.wall, Gone::DeletedByRequest), false, now, out);
    }

    /// Accepted, and absent by a consistent read that began when a POST could no longer take effect.
    fn lost(&mut self, instance: &InstanceName, now: Now, out: &mut Vec<Effect>) {
        let Some(item) = self.items.get(instance) else { return };
        let cause = if item.cancel { Gone::DeletedByRequest } else { Gone::Lost };
        out.push(Effect::Record(Fact::Lost { subject: item.subject() }));
        let mut observation = observe::gone(self.outbox.latest(instance), now.wall, cause);
        if let (Gone::Lost, Some(trouble)) = (cause, &item.trouble) {
            observation.message = format!("{}; the attempt to make it: {trouble}", observation.message);
        }
        self.end(instance, observation, true, now, out);
    }

    /// Deletes an object that must not stay, whatever its labels.
    fn delete_stray(&self, instance: &InstanceName, pod: &Pod, why: &'static str) -> Option<Effect> {
        let (item, (namespace, _), uid) = (self.items.get(instance)?, key_of(pod)?, pod.metadata.uid.clone()?);
        Some(Effect::Delete { instance: instance.clone(), namespace, uid, subject: item.subject(), why, force: false })
    }
}

/// Used when an object's making outlives the session that named another value. **Source:** `design.md` section 8.
const DEFAULT_LOST_AFTER: std::time::Duration = std::time::Duration::from_secs(70);

const NO_AUDIT: &str = "this daemon cannot write its audit log, and creates nothing without it; see the daemon's log";

fn rejection(code: RejectionCode, rule: &str, message: &str) -> Rejection {
    Rejection { code, rule: rule.to_owned(), message: message.to_owned() }
}

fn namespace_of(dispatch: &Dispatch) -> Option<KubeNamespace> {
    match &dispatch.work {
        Work::Launch(launch) => launch.namespace.as_deref()?.parse().ok(),
    }
}

/// `accepted` for an item whose namespace is known.
fn accepted(item: &Item) -> Option<Effect> {
    let namespace = item.namespace.as_ref()?.to_string();
    Some(Effect::Send(Box::new(ToControlPlane::Accepted { dispatch_id: item.dispatch.clone(), attempt: item.attempt, namespace })))
}

/// `accepted` for an object that was found.
fn accepted_in(item: &mut Item, pod: Option<&Pod>) -> Option<Effect> {
    item.namespace = pod.and_then(key_of).map(|(namespace, _)| namespace).or(item.namespace.take());
    accepted(item)
}

/// What a refused POST means to the sender.
fn refused_text(namespace: &KubeNamespace, code: u16, message: &str) -> String {
    match code {
        404 => format!(
            "the run namespace {namespace} does not exist in the cluster; its owner can make it with `kubectl create namespace {namespace}` ({message})"
        ),
        401 => format!("the cluster does not accept the daemon's own account ({message}); see the daemon's log"),
        403 if message.contains("exceeded quota") => format!("the cluster's quota in namespace {namespace} is used up: {message}"),
        _ => format!("the cluster refused the Pod in namespace {namespace} ({code}): {message}"),
    }
}
