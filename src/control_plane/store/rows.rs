//! What the store holds and what its transitions answer. Nothing here names a database.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::Proof;
use crate::control_plane::tokens::TokenHash;
use crate::types::{Attempt, DispatchId, InstanceName, KubeNamespace, NodeName, Observation, Placement, Reason, Role};
use crate::wire::{Hello, LogEndReason, Loss, NodeFacts, Rejection, ResumePoint};

/// An enrolled cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    /// Value of the label `nymph.dev/install`; the same for the life of the cluster.
    pub(crate) install: String,
    pub(crate) created_at: Timestamp,
}

/// What came of creating something that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Done,
    /// The name is in use.
    Exists,
    /// Another name has the same slug, so the two would share labels.
    SlugTaken {
        by: String,
    },
    /// Something it refers to is not there.
    Missing(Missing),
}

/// What was referred to and is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Namespace(String),
    Cluster(String),
    Provider(String),
    /// Replacing something that does not exist.
    Itself,
}

/// Whether an existing one is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create,
    Replace,
}

/// What came of removing a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Done,
    Unknown,
    /// Instances that have not ended.
    InUse(u64),
}

/// A caller token to store.
#[derive(Clone, Debug)]
pub(crate) struct TokenRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) hash: TokenHash,
    pub(crate) admin: bool,
    /// Came from the bootstrap file; the next one from there replaces it.
    pub(crate) bootstrap: bool,
    pub(crate) namespaces: Vec<String>,
    pub(crate) created_at: Timestamp,
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CallerToken {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) admin: bool,
    pub(crate) namespaces: Vec<String>,
    pub(crate) created_at: Timestamp,
}

/// A provider.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Provider {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) launcher: String,
    pub(crate) dispatch: String,
    pub(crate) cluster: String,
    /// As they were sent.
    pub(crate) kwargs: Map<String, Value>,
}

/// A mode.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mode {
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) provider: String,
    pub(crate) fields: Map<String, Value>,
}

/// A node of a cluster, or the cluster as a whole: where a dispatch is placed, and who a session belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) cluster: String,
    pub(crate) placement: Placement,
}

impl Place {
    /// The node's name, empty for the cluster as a whole: how a place is kept in a column.
    pub(crate) fn key(&self) -> &str {
        column(&self.placement)
    }
}

/// How a placement is kept in a column, and counted by.
pub(crate) fn column(placement: &Placement) -> &str {
    placement.node().map_or("", NodeName::as_str)
}

/// A session's right to change rows: ends when a newer session of the place opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fence {
    pub(crate) place: Place,
    pub(crate) epoch: u64,
}

/// A daemon, connected or not.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DaemonRow {
    pub(crate) place: Place,
    pub(crate) epoch: u64,
    pub(crate) role: Role,
    pub(crate) version: String,
    pub(crate) policy_digest: String,
    /// What it last said of its node; a daemon of role `cluster` has none.
    pub(crate) facts: Option<NodeFacts>,
    /// The ServiceAccount that it proved to be, `NAMESPACE/NAME`; `None` when it had the enrolment token alone.
    pub(crate) identity: Option<String>,
    /// UID of its Node, from the proof.
    pub(crate) node_uid: Option<String>,
    /// UID of its Pod, from the proof.
    pub(crate) pod_uid: Option<String>,
    /// When a session of it last opened or closed; a live one is newer than its row.
    pub(crate) last_seen: Timestamp,
}

/// A session to open.
#[derive(Clone, Debug)]
pub(crate) struct OpenSession {
    pub(crate) place: Place,
    pub(crate) hello: Box<Hello>,
    /// Who the daemon proved to be; `None` when it had the enrolment token alone.
    pub(crate) proof: Option<Proof>,
    pub(crate) now: Timestamp,
}

/// A session that was opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenedSession {
    pub(crate) epoch: u64,
    /// Accepted or created, and not ended.
    pub(crate) open: Vec<Instance>,
    /// Logs to go on with: started, and not read to their end. Ended instances among them.
    pub(crate) logs: Vec<Instance>,
    /// What came of each instance that the daemon holds and the store did not know.
    pub(crate) unknown: Vec<Adoption>,
}

/// An instance that a daemon holds and the store did not know, since its data came back from an older copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Adoption {
    pub(crate) instance: InstanceName,
    pub(crate) outcome: Adopted,
}

/// What came of it. Whatever it is, the object stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Adopted {
    /// It has a row now, under this namespace and provider. `provider_known`: there is such a provider; else it is named by its slug.
    Taken { namespace: String, provider: String, provider_known: bool },
    /// It has none, for this reason.
    Left(&'static str),
}

/// A log in a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLog {
    pub(crate) instance: InstanceName,
    /// Bytes of it that are on disk: a prefix.
    pub(crate) bytes: u64,
}

/// How far a dispatch has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// On disk; no daemon has said yes.
    Queued,
    /// The daemon's yes is on disk: it may create the object.
    Accepted,
    /// The object was reported.
    Created,
    /// Terminal, rejections included.
    Ended,
}

/// How much of an instance's log is here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogRow {
    /// The container has started, so there is a log.
    pub(crate) started: bool,
    /// Bytes of the container's log that were acknowledged.
    pub(crate) position: u64,
    /// Bytes of them that are on disk: a prefix. Less than `position` when the log is over its limit.
    pub(crate) stored: u64,
    pub(crate) resume: ResumePoint,
    /// Why nothing more will come; `None` while more may.
    pub(crate) end: Option<LogEndReason>,
}

/// A dispatch and its instance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Instance {
    pub(crate) dispatch_id: DispatchId,
    pub(crate) attempt: Attempt,
    pub(crate) name: InstanceName,
    pub(crate) namespace: String,
    pub(crate) provider: String,
    pub(crate) place: Place,
    pub(crate) requested_by: String,
    pub(crate) kube_namespace: Option<String>,
    pub(crate) phase: Phase,
    /// Epoch of the session in which it was accepted; 0 when it was not, or by the store's own doing.
    pub(crate) accepted_epoch: u64,
    pub(crate) launched_at: Timestamp,
    pub(crate) delete_requested: bool,
    /// The last report that was taken.
    pub(crate) report_seq: u64,
    pub(crate) seen: Observation,
    pub(crate) rejection: Option<Rejection>,
    pub(crate) log: LogRow,
}

impl Instance {
    /// Whether nothing more will come of its log.
    pub(crate) fn log_done(&self) -> bool {
        let cannot_come =
            self.phase == Phase::Ended && (!self.log.started || matches!(self.seen.reason, Reason::Lost | Reason::NodeLost | Reason::Rejected));
        self.log.end.is_some() || cannot_come
    }

    /// Bytes of the log that came and were not stored.
    pub(crate) fn log_dropped(&self) -> u64 {
        self.log.position.saturating_sub(self.log.stored)
    }
}

/// A caller's key that makes a retry safe, and what it was first used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Idempotency {
    pub(crate) token: String,
    pub(crate) key: String,
    pub(crate) body_hash: [u8; 32],
}

/// A launch to store.
#[derive(Clone, Debug)]
pub(crate) struct NewLaunch {
    pub(crate) dispatch_id: DispatchId,
    pub(crate) namespace: String,
    pub(crate) provider: String,
    pub(crate) cluster: String,
    /// Places in the cluster that may get it; the one with the fewest open instances does.
    pub(crate) candidates: Vec<Placement>,
    /// The caller named the node: it goes to no other.
    pub(crate) node_named: bool,
    pub(crate) requested_by: String,
    /// The opaque bytes of the dispatch. Kept until it is accepted or ended, since they may hold secrets.
    pub(crate) payload: Vec<u8>,
    pub(crate) idempotency: Option<Idempotency>,
    pub(crate) now: Timestamp,
}

/// What came of storing a launch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Launched {
    New(Box<Instance>),
    /// The key was used before, for the same body.
    Replayed(Box<Instance>),
    /// The key was used before, for another body.
    KeyReused,
    /// The provider went away meanwhile.
    ProviderGone,
    /// No candidate was given.
    Nowhere,
}

/// A dispatch that waits for its daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    /// Order of arrival; where the next page goes on.
    pub(crate) row: i64,
    pub(crate) dispatch_id: DispatchId,
    pub(crate) attempt: Attempt,
    pub(crate) instance: InstanceName,
    pub(crate) payload: Vec<u8>,
}

/// A daemon's yes.
#[derive(Clone, Debug)]
pub(crate) struct Acceptance {
    pub(crate) dispatch_id: DispatchId,
    pub(crate) attempt: Attempt,
    pub(crate) kube_namespace: KubeNamespace,
    pub(crate) now: Timestamp,
}

/// What came of a daemon's yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Accepted {
    /// On disk in this session: the daemon may create the object.
    Committed,
    /// It was accepted in an earlier session: creating could make it a second time, so it is not acknowledged.
    Earlier,
    /// Nobody wants it any more.
    Unwanted { instance: InstanceName },
    /// Another session took over.
    Stale,
    /// Not placed here.
    Foreign,
}

/// A daemon's no.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) dispatch_id: DispatchId,
    pub(crate) attempt: Attempt,
    pub(crate) rejection: Rejection,
    /// Places that could take it instead, if this one only cannot take work now.
    pub(crate) elsewhere: Vec<Placement>,
    pub(crate) now: Timestamp,
}

/// What came of a daemon's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Ended,
    /// The name was taken, or the node cannot take work, and nobody was told either yet: the next attempt is queued there.
    NextAttempt(Place),
    /// It had ended before, or this was about an older attempt.
    Ignored,
    Stale,
    Foreign,
}

/// A node that is gone, as the cluster's daemon read it.
#[derive(Clone, Debug)]
pub(crate) struct GoneNode {
    pub(crate) fence: Fence,
    pub(crate) node: NodeName,
    /// The UID under which it is gone; `None` when no daemon could read it.
    pub(crate) uid: Option<String>,
    pub(crate) why: Loss,
    /// Places that could take what was not accepted there.
    pub(crate) elsewhere: Vec<Placement>,
    pub(crate) now: Timestamp,
}

/// What came of a node's loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Declared {
    Gone {
        /// Accepted there: the session's to end.
        open: Vec<Instance>,
        /// Not accepted there: the next attempt is queued at these places.
        moved: Vec<(DispatchId, Place)>,
        /// Not accepted there, and ended with it.
        ended: Vec<DispatchId>,
    },
    /// Another session took over, or it is not the cluster's.
    Stale,
}

/// What came of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reported {
    /// On disk, this one or a newer one; carries the row as it now is.
    Stored(Box<Instance>),
    Stale,
    Foreign,
    /// Its sequence is further above the stored one than any daemon counts ([`crate::wire::MAX_SEQUENCE_STEP`]): nothing was stored.
    Leap,
}

/// What came of a wish to delete.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Deletion {
    /// The store does not know the name.
    Unknown,
    /// It is another provider's.
    Elsewhere,
    /// It had ended before.
    AlreadyEnded,
    /// It had not been accepted, and ended with this.
    EndedUnstarted(Box<Instance>),
    /// On disk; its daemon must be told.
    Requested(Box<Instance>),
}

/// Which instances to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct InstanceFilter {
    pub(crate) namespace: String,
    pub(crate) provider: Option<String>,
}

/// How far a log has come: written to its segment before this is committed.
#[derive(Clone, Debug)]
pub(crate) struct LogProgress {
    pub(crate) dispatch_id: DispatchId,
    pub(crate) position: u64,
    pub(crate) stored: u64,
    pub(crate) resume: ResumePoint,
}
