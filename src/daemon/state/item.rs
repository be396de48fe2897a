//! What the daemon remembers of a dispatch and of an object.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;

use crate::audit::{Object as AuditObject, Subject};
use crate::daemon::event::ContainerState;
use crate::observe::CONTAINER;
use crate::render::Rendered;
use crate::types::{
    ANNOTATION_ATTEMPT, ANNOTATION_DISPATCH, ANNOTATION_REQUESTED_BY, Attempt, DispatchId, InstanceName, KubeNamespace, LABEL_INSTALL,
    LABEL_NAMESPACE, LABEL_PROVIDER, Observation, Reason, State,
};
use crate::wire::{Dispatch, Rejection};

/// First and longest pause between reads or deletes that fail: the API server may be down for long.
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(10);

/// One dispatch that this daemon answers for.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) dispatch: DispatchId,
    pub(super) attempt: Attempt,
    pub(super) instance: InstanceName,
    pub(super) requested_by: String,
    /// Where its object is or would be; `None` while only the opaque dispatch is known.
    pub(super) namespace: Option<KubeNamespace>,
    pub(super) phase: Phase,
    /// Length of the offered dispatch, in bytes: what it holds of memory while its object is not there.
    pub(super) weight: usize,
    /// A caller asked for the deletion.
    pub(super) cancel: bool,
    /// The read that is under way.
    pub(super) looking: Option<Look>,
    /// UID of an object that left its watch before it was held: who takes it up reads once more.
    pub(super) left: Option<String>,
    /// The node that its object was bound to is gone.
    pub(super) node_lost: bool,
    /// A DELETE is under way, or was taken.
    pub(super) deleting: bool,
    /// Until when a POST whose outcome is not known may take effect.
    pub(super) doubt: Option<Duration>,
    /// What came in place of an answer to that POST.
    pub(super) trouble: Option<String>,
    /// When to read or delete again.
    pub(super) retry_at: Option<Duration>,
    failures: u32,
}

/// A read that is under way. Its number keeps the answer to an older question from being taken for this one's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) number: u64,
    pub(super) since: Duration,
}

/// How far a dispatch has come.
#[derive(Debug)]
pub(super) enum Phase {
    /// Offered; the read that comes before everything else is under way.
    Looking { offer: Result<Box<Dispatch>, Rejection>, accepted_before: bool },
    /// It is not there, and is accepted when fewer are being made.
    Waiting { offer: Result<Box<Dispatch>, Rejection> },
    /// `accepted` is sent or about to be; nothing may be created before it is acknowledged.
    Accepted {
        rendered: Arc<Rendered>,
        since: Duration,
        /// Of the session in which it was said.
        epoch: u64,
    },
    /// The object is being made.
    Creating { rendered: Arc<Rendered> },
    /// The last POST's outcome is not known, or it was not sent: a read is under way or planned.
    ReadingBack { rendered: Arc<Rendered> },
    /// The control plane knows the object and this process does not: a read is under way.
    Rejoining,
    /// It was accepted and may have been POSTed: absent only counts when read at `due` or later.
    Doubtful { due: Duration },
    /// The object exists.
    Held { uid: String },
    /// The object left its watch; a read is under way.
    Confirming { uid: String },
    /// Ended for good. `lost` ones are remembered for a while, in case the object appears after all.
    Ended { lost: bool, since: Duration },
    /// Refused after `accepted`; remembered until the control plane no longer lists it.
    Refused { rejection: Rejection, since: Duration },
}

impl Item {
    pub(super) fn new(dispatch: DispatchId, attempt: Attempt, instance: InstanceName, phase: Phase) -> Self {
        Self {
            dispatch,
            attempt,
            instance,
            requested_by: String::new(),
            namespace: None,
            phase,
            weight: 0,
            cancel: false,
            node_lost: false,
            looking: None,
            left: None,
            deleting: false,
            doubt: None,
            trouble: None,
            retry_at: None,
            failures: 0,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        Subject { dispatch: self.dispatch.clone(), attempt: self.attempt, requested_by: self.requested_by.clone() }
    }

    /// Its object for an audit line, once the namespace is known.
    pub(super) fn audit_object(&self, namespace: &KubeNamespace, uid: Option<&str>) -> AuditObject {
        AuditObject { namespace: namespace.clone(), name: self.instance.clone(), uid: uid.map(str::to_owned) }
    }

    /// Whether work may still come of it that a drain should wait for.
    pub(super) fn is_being_made(&self) -> bool {
        let phase = &self.phase;
        matches!(phase, Phase::Looking { .. } | Phase::Waiting { .. } | Phase::Accepted { .. } | Phase::Creating { .. } | Phase::ReadingBack { .. })
    }

    /// Whether what it waits for is a read.
    pub(super) fn wants_a_read(&self) -> bool {
        matches!(self.phase, Phase::Looking { .. } | Phase::ReadingBack { .. } | Phase::Rejoining | Phase::Doubtful { .. } | Phase::Confirming { .. })
    }

    /// Plans the next try after a failure.
    pub(super) fn failed(&mut self, now: Duration) {
        let pause = RETRY_MIN.saturating_mul(1 << self.failures.min(5)).min(RETRY_MAX);
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(now + pause);
    }

    /// A read or delete went through.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = None;
    }
}

/// A Pod with our node's label, whoever's it is.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) uid: String,
    version: Option<u64>,
    pub(super) bound: bool,
    pub(super) deleting: bool,
    pub(super) install: Option<String>,
    pub(super) dispatch: Option<DispatchId>,
    pub(super) attempt: Option<Attempt>,
    pub(super) requested_by: String,
    /// Slugs of the caller's namespace and of the provider.
    pub(super) caller_namespace: Option<String>,
    pub(super) provider: Option<String>,
    pub(super) container: Option<String>,
    pub(super) state: ContainerState,
    /// The whole object's last observation, for an item that adopts it later.
    pub(super) observation: Observation,
}

impl Object {
    pub(super) fn of(pod: &Pod, observation: Observation) -> Option<Self> {
        let meta = &pod.metadata;
        let label = |key: &str| meta.labels.as_ref().and_then(|map| map.get(key)).cloned();
        let annotation = |key: &str| meta.annotations.as_ref().and_then(|map| map.get(key));
        let status = pod.status.as_ref().and_then(|s| s.container_statuses.as_ref()?.iter().find(|c| c.name == CONTAINER));
        let state = status.and_then(|s| s.state.as_ref());
        let over = pod.status.as_ref().and_then(|s| s.phase.as_deref()).is_some_and(|phase| phase == "Succeeded" || phase == "Failed");
        Some(Self {
            uid: meta.uid.clone()?,
            version: meta.resource_version.as_deref().and_then(|version| version.parse().ok()),
            bound: pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref().is_some_and(|name| !name.is_empty())),
            deleting: meta.deletion_timestamp.is_some(),
            install: label(LABEL_INSTALL),
            dispatch: annotation(ANNOTATION_DISPATCH).and_then(|id| id.parse().ok()),
            attempt: annotation(ANNOTATION_ATTEMPT).and_then(|attempt| attempt.parse().ok()).map(Attempt),
            requested_by: annotation(ANNOTATION_REQUESTED_BY).cloned().unwrap_or_default(),
            caller_namespace: label(LABEL_NAMESPACE),
            provider: label(LABEL_PROVIDER),
            container: status.and_then(|s| s.container_id.clone()).filter(|id| !id.is_empty()),
            state: if over || state.is_some_and(|s| s.terminated.is_some()) {
                ContainerState::Ended
            } else if state.is_some_and(|s| s.running.is_some()) {
                ContainerState::Running
            } else {
                ContainerState::Waiting
            },
            observation,
        })
    }

    /// Whether it was made for this dispatch under this enrolment.
    pub(super) fn belongs_to(&self, item: &Item, install: Option<&str>) -> bool {
        self.is_ours(install) && self.dispatch.as_ref() == Some(&item.dispatch) && self.attempt == Some(item.attempt)
    }

    /// Whether this is the item's object: by its marks, or, once it is held, by its UID alone, since anybody with rights in the cluster may
    /// take the marks away while it runs.
    pub(super) fn is_of(&self, item: &Item, install: Option<&str>) -> bool {
        let held = matches!(&item.phase, Phase::Held { uid } | Phase::Confirming { uid } if *uid == self.uid);
        held || self.belongs_to(item, install)
    }

    /// Whether this enrolment made it.
    pub(super) fn is_ours(&self, install: Option<&str>) -> bool {
        install.is_some() && self.install.as_deref() == install
    }

    /// Whether `other` is an older sight of the same object: reads and watches overtake one another. **Source:** resource versions are
    /// comparable as numbers (KEP-5504; true of every API server on etcd before it).
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        self.uid == other.uid && matches!((self.version, other.version), (Some(a), Some(b)) if a > b)
    }

    /// Keeps what an earlier sight said of why the object goes. A kubelet deletes a Pod that has ended once more, without grace, and then its time
    /// stamps look as if the end had come before the deletion.
    pub(super) fn keep_cause(&mut self, before: &Self) {
        let deleted = |seen: &Observation| matches!(seen.reason, Reason::DeletedByOther | Reason::DeletedByRequest);
        let (old, new) = (&before.observation, &mut self.observation);
        if before.uid == self.uid && old.state == State::Stopping && deleted(old) && new.state == State::Stopping && !deleted(new) {
            new.reason = old.reason;
            new.message.clone_from(&old.message);
        }
    }

    pub(super) fn subject(&self, instance: &InstanceName) -> Option<Subject> {
        let (dispatch, attempt) = (self.dispatch.clone()?, self.attempt?);
        (dispatch.instance_name(attempt) == *instance).then(|| Subject { dispatch, attempt, requested_by: self.requested_by.clone() })
    }
}

/// Where a Pod is, when its name can be one of ours.
pub(super) fn key_of(pod: &Pod) -> Option<(KubeNamespace, InstanceName)> {
    Some((pod.metadata.namespace.as_deref()?.parse().ok()?, pod.metadata.name.as_deref()?.parse().ok()?))
}
