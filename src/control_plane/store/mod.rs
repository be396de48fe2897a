//! Whatever decides is a row here; the hub's memory is a cache.
//!
//! One trait, one transaction a transition. [`SqliteStore`] is the implementation now; one with several replicas can come behind
//! the same trait, and `conformance` holds what any of them must do. A reply is given after the commit, so that an acknowledgement
//! sent afterwards never promises what a crash could take back. Every transition that a daemon asks for carries its session's
//! [`Fence`], checked inside the transaction.

mod error;
mod rows;
mod sqlite;
mod trust;

#[cfg(test)]
mod conformance;

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::tokens::TokenHash;
use crate::types::{DispatchId, InstanceName, NodeName};
use crate::wire::{LogEndReason, NodeFacts, NodeItem, Report};

pub use error::StoreError;
pub(crate) use rows::{
    Acceptance, Accepted, Adopted, Adoption, CallerToken, Cluster, DaemonRow, Declared, Deletion, Fence, GoneNode, Idempotency, Instance,
    InstanceFilter, Launched, LogProgress, LogRow, Missing, Mode, NewLaunch, Offer, OpenSession, OpenedSession, Phase, Place, Provider, Put, Refusal,
    Refused, Removal, Reported, StoredLog, TokenRow, Write, column,
};
#[cfg(test)]
pub(crate) use sqlite::Fate;
pub(crate) use sqlite::{DATABASE, ExclusiveStore, LOGS, SqliteStore};
pub(crate) use trust::{Account, Added, ClusterRow, Enrolled, Enrolment, MAX_ENROLMENTS, NewEnrolment, Proof, Trust};

/// An answer of the store.
pub(crate) type Reply<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Tries of one dispatch under different names, before the launch is given up: taken names are rare, four in a row are no chance.
pub(crate) const MAX_ATTEMPTS: u32 = 4;

/// The control plane's store. Dropping a reply does not undo its transition.
pub(crate) trait Store: Send + Sync + 'static {
    /// Enrols a cluster with its first enrolment token.
    fn create_cluster(&self, cluster: Cluster, enrolment: NewEnrolment) -> Reply<'_, Put>;
    /// All clusters by name.
    fn clusters(&self) -> Reply<'_, Vec<ClusterRow>>;
    /// The cluster that an enrolment token belongs to, unless the token is revoked or expired.
    fn cluster_by_token(&self, hash: TokenHash, now: Timestamp) -> Reply<'_, Option<Enrolled>>;
    /// Adds an enrolment token to a cluster that has fewer than [`MAX_ENROLMENTS`] live ones.
    fn add_enrolment(&self, cluster: String, enrolment: NewEnrolment) -> Reply<'_, Added>;
    /// Notes that a session is opened with an enrolment token; `false` when it was revoked or has expired.
    fn use_enrolment(&self, id: String, now: Timestamp) -> Reply<'_, bool>;
    /// Revokes an enrolment token; `false` when the cluster has none of this id.
    fn revoke_enrolment(&self, cluster: String, id: String, now: Timestamp) -> Reply<'_, bool>;
    /// What the proofs of a cluster's daemons are checked against.
    fn trust(&self, cluster: String) -> Reply<'_, Option<Trust>>;
    /// Records what proofs are checked against, in place of what was recorded at `known`; `false` when that has changed meanwhile.
    fn record_trust(&self, cluster: String, known: Option<Timestamp>, trust: Trust) -> Reply<'_, bool>;

    /// Stores a caller token.
    fn create_token(&self, token: TokenRow) -> Reply<'_, Put>;
    /// Makes the bootstrap token known, in place of an older one. [`Put::Exists`] when its name is taken by a token made by hand.
    fn put_bootstrap_token(&self, token: TokenRow) -> Reply<'_, Put>;
    /// All caller tokens that are not revoked.
    fn tokens(&self) -> Reply<'_, Vec<CallerToken>>;
    /// Whose token this is.
    fn caller_by_token(&self, hash: TokenHash) -> Reply<'_, Option<CallerToken>>;
    /// Revokes a caller token; `false` when there is none of this id.
    fn revoke_token(&self, id: String, now: Timestamp) -> Reply<'_, bool>;

    /// Makes a namespace.
    fn create_namespace(&self, name: String, now: Timestamp) -> Reply<'_, Put>;
    /// All namespaces by name.
    fn namespaces(&self) -> Reply<'_, Vec<(String, Timestamp)>>;

    /// Makes or replaces a provider.
    fn put_provider(&self, provider: Provider, write: Write, now: Timestamp) -> Reply<'_, Put>;
    /// A provider by name.
    fn provider(&self, namespace: String, name: String) -> Reply<'_, Option<Provider>>;
    /// The providers of a namespace, by name.
    fn providers(&self, namespace: String) -> Reply<'_, Vec<Provider>>;
    /// Removes a provider that has no open instances.
    fn remove_provider(&self, namespace: String, name: String) -> Reply<'_, Removal>;

    /// Makes or replaces a mode.
    fn put_mode(&self, mode: Mode, write: Write, now: Timestamp) -> Reply<'_, Put>;
    /// A mode by name.
    fn mode(&self, namespace: String, name: String) -> Reply<'_, Option<Mode>>;
    /// The modes of a namespace, by name.
    fn modes(&self, namespace: String) -> Reply<'_, Vec<Mode>>;
    /// Removes a mode; `false` when there is none of this name.
    fn remove_mode(&self, namespace: String, name: String) -> Reply<'_, bool>;

    /// Opens a session: raises the epoch, which fences older ones, takes over what the daemon holds and a restored store does not
    /// know, and reads what the daemon owes, in one transaction.
    fn open_session(&self, session: OpenSession) -> Reply<'_, OpenedSession>;
    /// Instances of a place whose deletion was asked for and is not confirmed.
    fn unconfirmed_deletions(&self, place: Place) -> Reply<'_, Vec<InstanceName>>;
    /// Notes when a session's daemon was last heard. Nothing when a newer one has opened.
    fn close_session(&self, fence: Fence, last_seen: Timestamp) -> Reply<'_, ()>;
    /// Keeps what a daemon says of its node now; `false` when its session is stale.
    fn note_facts(&self, fence: Fence, facts: NodeFacts) -> Reply<'_, bool>;
    /// The nodes of a cluster that its daemon of role `cluster` looks after.
    fn nodes(&self, cluster: String, now: Timestamp) -> Reply<'_, Vec<NodeItem>>;
    /// Takes a session's word that a node is gone: what was not accepted there goes elsewhere or ends, and the rest is the session's to end.
    fn declare_gone(&self, gone: GoneNode) -> Reply<'_, Declared>;
    /// Takes a session's word that a node is there after all; `false` when the session is stale.
    fn node_back(&self, fence: Fence, node: NodeName, uid: Option<String>) -> Reply<'_, bool>;
    /// All daemons that ever connected.
    fn daemons(&self) -> Reply<'_, Vec<DaemonRow>>;
    /// One daemon.
    fn daemon(&self, cluster: String, node: String) -> Reply<'_, Option<DaemonRow>>;

    /// Stores a launch and chooses its node.
    fn launch(&self, launch: NewLaunch) -> Reply<'_, Launched>;
    /// What [`Store::launch`] would say of an idempotency key that was used before on the provider.
    fn launched_before(&self, namespace: String, provider: String, used: Idempotency) -> Reply<'_, Option<Launched>>;
    /// Notes that the caller is being told the name, which never changes after this; answers with the row.
    fn mark_answered(&self, dispatch_id: DispatchId) -> Reply<'_, Option<Instance>>;
    /// Queued dispatches of a place, oldest first, beginning after the row `after`: at most `limit`, and no more than leave the
    /// place with `max_open` dispatches that were offered (those up to `after`) or are open.
    fn queued(&self, place: Place, after: i64, limit: u32, max_open: u32) -> Reply<'_, Vec<Offer>>;
    /// One queued dispatch of a place.
    fn offer(&self, place: Place, dispatch_id: DispatchId) -> Reply<'_, Option<Offer>>;
    /// Stores a daemon's yes.
    fn accept(&self, fence: Fence, acceptance: Acceptance) -> Reply<'_, Accepted>;
    /// Stores a daemon's no.
    fn refuse(&self, fence: Fence, refusal: Refusal) -> Reply<'_, Refused>;
    /// Stores a report: states never go back, and a terminal one is final.
    fn report(&self, fence: Fence, report: Box<Report>) -> Reply<'_, Reported>;
    /// Stores the wish to delete an instance.
    fn request_delete(&self, namespace: String, provider: String, instance: InstanceName, now: Timestamp) -> Reply<'_, Deletion>;

    /// An instance of a namespace by name.
    fn instance(&self, namespace: String, instance: InstanceName) -> Reply<'_, Option<Instance>>;
    /// An instance by its dispatch.
    fn instance_of(&self, dispatch_id: DispatchId) -> Reply<'_, Option<Instance>>;
    /// Instances, newest first.
    fn instances(&self, filter: InstanceFilter) -> Reply<'_, Vec<Instance>>;

    /// Commits how far logs have come; `false` when the session is stale, and nothing was committed.
    fn commit_logs(&self, fence: Fence, progress: Vec<LogProgress>) -> Reply<'_, bool>;
    /// Notes that nothing more will come of a log; `false` when the session is stale or the instance is not placed there.
    fn end_log(&self, fence: Fence, dispatch_id: DispatchId, reason: LogEndReason) -> Reply<'_, bool>;

    /// Writes a consistent copy of all rows into `file`, for a store of the same kind, and marks it: whoever opens it in this one's
    /// place gets higher epochs, nothing queued, and what was not ended as accepted. Answers with the logs that the copy names.
    fn copy(&self, file: PathBuf) -> Reply<'_, Vec<StoredLog>>;

    /// Whether the database takes a transaction; after one that failed, whether it can be written again.
    fn ping(&self) -> Reply<'_, ()>;
}
