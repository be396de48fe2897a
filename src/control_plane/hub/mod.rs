//! The sessions of daemons. Memory here is a cache of what is connected now: all that decides is in the store.
//!
//! [`connect`] upgrades a daemon's request, [`conversation`] runs what follows: [`receive`] turns messages into the store's
//! transitions, an [`outbox`] writes, and an [`ingest`] stores logs, so that a slow disk under the logs does not hold up
//! an acceptance. Queues are bounded: a daemon that does not read is disconnected, and one that sends too fast is not read.

pub(crate) mod connect;
mod conversation;
mod identity;
mod ingest;
mod nodes;
mod opening;
mod outbox;
mod receive;
mod session;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::audit::Strangers;
use super::changes::Changes;
use super::clock::Clock;
use super::identity::Rotation;
use super::logs::LogFiles;
use super::store::{Instance, Place, Store};
use crate::types::{DispatchId, Placement};
use crate::wire::{Close, CloseCode, NodeFacts, ToDaemon};

pub(crate) use session::{Found, Session, locked};
#[cfg(test)]
pub(crate) use {
    conversation::End,
    identity::{Admitted, Away},
    ingest::{INTAKE, Ingest, Intake},
    opening::open,
    outbox::{Outgoing, Scribe},
    receive::Receiver,
};

/// Limits and waits that sessions keep.
#[derive(Clone, Debug)]
pub(crate) struct HubSettings {
    /// Told to daemons in `welcome`.
    pub(crate) lost_after: Duration,
    /// Longest stored log of an instance, in bytes.
    pub(crate) log_limit: u64,
    /// Audience of the tokens by which daemons prove who they are.
    pub(crate) audience: String,
}

/// All sessions of this process, and what they share.
pub(crate) struct Hub {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) logs: LogFiles,
    pub(crate) changes: Changes,
    settings: HubSettings,
    pub(crate) clock: Clock,
    /// When sessions ended, on the monotonic clock: for how long a daemon is away.
    left: Mutex<HashMap<Place, Duration>>,
    /// When dispatches were accepted, on the monotonic clock; those whose object is not reported yet.
    accepted: Mutex<HashMap<DispatchId, Duration>>,
    sessions: Mutex<BTreeMap<Place, Arc<Session>>>,
    /// Places whose session is being opened.
    entering: Mutex<BTreeSet<Place>>,
    /// Enrolment tokens that were revoked while this process runs: a session that was being opened meanwhile is closed as it appears.
    revoked: Mutex<BTreeSet<String>>,
    rotation: Rotation,
    strangers: Strangers,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Hub {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        logs: LogFiles,
        settings: HubSettings,
        clock: Clock,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self {
            store,
            logs,
            changes: Changes::default(),
            settings,
            clock,
            left: Mutex::default(),
            accepted: Mutex::default(),
            sessions: Mutex::default(),
            entering: Mutex::default(),
            revoked: Mutex::default(),
            rotation: Rotation::default(),
            strangers: Strangers::default(),
            tasks,
            stop,
        }
    }

    /// The session of a place, when its daemon is connected.
    pub(crate) fn session(&self, place: &Place) -> Option<Arc<Session>> {
        locked(&self.sessions).get(place).cloned()
    }

    /// The sessions of a cluster, by node.
    pub(crate) fn live(&self, cluster: &str) -> Vec<Arc<Session>> {
        let sessions = locked(&self.sessions);
        sessions.iter().filter(|(place, _)| place.cluster == cluster).map(|(_, session)| Arc::clone(session)).collect()
    }

    /// Whether a daemon of role `cluster` is connected.
    pub(crate) fn has_cluster_daemon(&self, cluster: &str) -> bool {
        self.session(&Place { cluster: cluster.to_owned(), placement: Placement::Cluster }).is_some()
    }

    /// What the live daemons of a cluster say of their nodes.
    pub(crate) fn facts(&self, cluster: &str) -> Vec<NodeFacts> {
        self.live(cluster).iter().filter_map(|session| session.facts()).collect()
    }

    /// For how long the daemon of a place is away; zero while it is connected. It had no chance to be heard while this process did
    /// not run, so its absence counts from this process's start.
    pub(crate) fn away(&self, place: &Place) -> Duration {
        if self.session(place).is_some() {
            return Duration::ZERO;
        }
        let left = locked(&self.left).get(place).copied().unwrap_or_default();
        self.clock.mono().saturating_sub(left)
    }

    /// `accepted` is on disk.
    fn note_accepted(&self, dispatch_id: &DispatchId) {
        locked(&self.accepted).entry(dispatch_id.clone()).or_insert(self.clock.mono());
    }

    fn forget_accepted(&self, dispatch_id: &DispatchId) {
        locked(&self.accepted).remove(dispatch_id);
    }

    /// For how long at least a dispatch is accepted. One of an earlier process counts from this one's start: the time between is not known.
    fn accepted_ago(&self, dispatch_id: &DispatchId) -> Duration {
        let since = locked(&self.accepted).get(dispatch_id).copied().unwrap_or_default();
        self.clock.mono().saturating_sub(since)
    }

    /// Has what is queued for a place offered to its daemon, if that is connected. If not, it is offered when a session opens.
    pub(crate) fn offer(&self, place: &Place) {
        if let Some(session) = self.session(place) {
            session.look_at_queue();
        }
    }

    /// Passes on a wish to delete that is on disk. If the daemon is not connected, `welcome` tells it.
    pub(crate) fn cancel(&self, instance: &Instance) {
        if let Some(session) = self.session(&instance.place) {
            session.send(ToDaemon::Cancel { instance: instance.name.clone() });
            session.look_at_queue(); // one that was offered may have ended, which leaves room
        }
    }

    /// Announces that a session of the place is being opened.
    ///
    /// # Errors
    /// When the place is taken: by this session, or by one that is being opened, too.
    fn enter(&self, place: &Place) -> Result<Entry<'_>, Option<Arc<Session>>> {
        let mut entering = locked(&self.entering);
        if let Some(session) = self.session(place) {
            return Err(Some(session));
        }
        if !entering.insert(place.clone()) {
            return Err(None);
        }
        Ok(Entry { hub: self, place: place.clone() })
    }

    /// Has the daemons of a cluster dial again that have no proof: its keys are recorded now.
    fn ask_for_proof(&self, cluster: &str) {
        for session in self.live(cluster).iter().filter(|session| session.proof().is_none()) {
            let message = "the cluster's signing keys are recorded: dial again, with a proof".to_owned();
            session.close(Close { code: CloseCode::GoAway, message, retry_after_ms: None });
        }
    }

    /// Closes the sessions that were opened with an enrolment token; answers with how many.
    pub(crate) fn revoke(&self, enrolment: &str) -> usize {
        locked(&self.revoked).insert(enrolment.to_owned());
        let sessions = locked(&self.sessions);
        let of_it: Vec<_> = sessions.values().filter(|session| session.enrolment() == enrolment).collect();
        for session in &of_it {
            session.close(revoked());
        }
        of_it.len()
    }

    /// Puts a session in its place; answers with the older one that it displaces, or with itself when a newer one is there.
    fn register(&self, session: &Arc<Session>) -> Option<Arc<Session>> {
        let mut sessions = locked(&self.sessions);
        if locked(&self.revoked).contains(session.enrolment()) {
            session.close(revoked());
        }
        match sessions.get(session.place()) {
            Some(other) if other.epoch() > session.epoch() => Some(Arc::clone(session)),
            _ => sessions.insert(session.place().clone(), Arc::clone(session)),
        }
    }

    pub(crate) fn remove(&self, session: &Session) {
        let mut sessions = locked(&self.sessions);
        if sessions.get(session.place()).is_some_and(|current| current.epoch() == session.epoch()) {
            sessions.remove(session.place());
            locked(&self.left).insert(session.place().clone(), self.clock.mono());
        }
    }

    /// Sends every daemon away, politely; they dial again by themselves.
    pub(crate) fn go_away(&self) {
        let sessions = locked(&self.sessions);
        for session in sessions.values() {
            let message = "the control plane stops or restarts".to_owned();
            session.close(Close { code: CloseCode::GoAway, message, retry_after_ms: None });
        }
    }

    /// Runs a task that the server's shutdown waits for.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }
}

/// A place whose session is being opened.
#[derive(Debug)]
struct Entry<'a> {
    hub: &'a Hub,
    place: Place,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        locked(&self.hub.entering).remove(&self.place);
    }
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hub")
    }
}

fn revoked() -> Close {
    let message = "the enrolment token was revoked; `lakeshore clusters rotate` makes a new one".to_owned();
    Close { code: CloseCode::BadToken, message, retry_after_ms: None }
}

/// Ends when the token is cancelled, with `None`, or with the future's output.
async fn unless_cancelled<T>(token: &CancellationToken, future: impl Future<Output = T>) -> Option<T> {
    token.run_until_cancelled(future).await
}
