//! A connected daemon, as the rest of the control plane sees it.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::identity::Admitted;
use super::outbox::{OUTBOX, Outgoing};
use super::unless_cancelled;
use crate::control_plane::store::{Fence, Place, Proof};
use crate::types::{DispatchId, InstanceName};
use crate::wire::{CheckItem, Close, CloseCode, NodeFacts, ToDaemon};

/// Requests that may be open with one daemon.
const MAX_REQUESTS: usize = 64;

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Ours,
    Foreign,
}

/// What a daemon answers to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Check(Vec<CheckItem>),
    Lookup(Found),
}

/// A connected daemon, as the rest of the control plane sees it.
#[derive(Debug)]
pub(crate) struct Session {
    fence: Fence,
    install: String,
    enrolment: String,
    proof: Option<Proof>,
    facts: Mutex<Option<NodeFacts>>,
    heard: Mutex<Timestamp>,
    outbox: mpsc::Sender<Outgoing>,
    offers: Notify,
    closing: CancellationToken,
    close: Mutex<Option<Close>>,
    /// Cancelled when nothing of this session writes any more.
    finished: CancellationToken,
    requests: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
    next_request: AtomicU64,
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub(super) fn new(
        fence: Fence,
        admitted: Admitted,
        facts: Option<NodeFacts>,
        outbox: mpsc::Sender<Outgoing>,
        now: Timestamp,
        closing: CancellationToken,
    ) -> Self {
        Self {
            fence,
            install: admitted.cluster.install,
            enrolment: admitted.enrolment,
            proof: admitted.proof,
            facts: Mutex::new(facts),
            heard: Mutex::new(now),
            outbox,
            offers: Notify::new(),
            closing,
            close: Mutex::default(),
            finished: CancellationToken::new(),
            requests: Mutex::default(),
            next_request: AtomicU64::new(1),
        }
    }

    pub(crate) fn place(&self) -> &Place {
        &self.fence.place
    }

    /// The enrolment of its cluster.
    pub(super) fn install(&self) -> &str {
        &self.install
    }

    /// Id of the enrolment token that it was opened with.
    pub(super) fn enrolment(&self) -> &str {
        &self.enrolment
    }

    /// Who the daemon proved to be.
    pub(crate) fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.fence.epoch
    }

    pub(crate) fn fence(&self) -> &Fence {
        &self.fence
    }

    /// What the daemon last said of its node; `None` when it has none.
    pub(crate) fn facts(&self) -> Option<NodeFacts> {
        locked(&self.facts).clone()
    }

    /// When the daemon was last heard.
    pub(crate) fn heard(&self) -> Timestamp {
        *locked(&self.heard)
    }

    pub(super) fn now_says(&self, facts: NodeFacts) {
        *locked(&self.facts) = Some(facts);
    }

    pub(super) fn was_heard(&self, now: Timestamp) {
        *locked(&self.heard) = now;
    }

    /// Queues a message from outside the session. A daemon that does not read is disconnected instead of waited for.
    pub(crate) fn send(&self, message: ToDaemon) {
        self.queue(Outgoing::Message(message));
    }

    /// Queues a dispatch that was placed here after another place could not take it.
    pub(super) fn offer(&self, dispatch_id: DispatchId) {
        self.queue(Outgoing::Offer(dispatch_id));
    }

    fn queue(&self, outgoing: Outgoing) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.outbox.try_send(outgoing) {
            let message = format!("the daemon left {OUTBOX} messages unread");
            self.close(Close { code: CloseCode::GoAway, message, retry_after_ms: None });
        }
    }

    /// Queues what the session's own tasks have to say. They wait for room: a daemon that does not read is not read either.
    pub(crate) async fn say(&self, outgoing: Outgoing) {
        let _ = unless_cancelled(&self.closing, self.outbox.send(outgoing)).await; // a closed session has nothing to say
    }

    /// There may be something new in the queue of this place.
    pub(super) fn look_at_queue(&self) {
        self.offers.notify_one();
    }

    /// Returns when there may be. A call that comes while nobody waits is kept.
    pub(crate) async fn queue_may_have_grown(&self) {
        self.offers.notified().await;
    }

    /// Ends the session with a reason; the first reason stands.
    pub(crate) fn close(&self, close: Close) {
        locked(&self.close).get_or_insert(close);
        self.closing.cancel();
    }

    /// Ends the session without a word.
    pub(crate) fn abandon(&self) {
        self.closing.cancel();
    }

    /// Cancelled when nothing of this session writes to logs any more.
    pub(crate) fn finished(&self) -> &CancellationToken {
        &self.finished
    }

    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    pub(crate) fn close_reason(&self) -> Option<Close> {
        locked(&self.close).clone()
    }

    /// Asks the daemon to check what it needs; `None` when it does not answer in time.
    pub(crate) async fn check(&self, wait: Duration) -> Option<Vec<CheckItem>> {
        match self.request(wait, |request| ToDaemon::Check { request }).await? {
            Answer::Check(items) => Some(items),
            Answer::Lookup(_) => None,
        }
    }

    /// Asks the daemon for an object that the store does not know, and to delete it if it is ours; `None` when it does not answer.
    pub(crate) async fn delete_unknown(&self, wait: Duration, instance: &InstanceName, labels: &BTreeMap<String, String>) -> Option<Found> {
        let (instance, labels) = (instance.clone(), labels.clone());
        match self.request(wait, |request| ToDaemon::Lookup { request, instance, labels, delete: true }).await? {
            Answer::Lookup(found) => Some(found),
            Answer::Check(_) => None,
        }
    }

    async fn request(&self, wait: Duration, message: impl FnOnce(u64) -> ToDaemon) -> Option<Answer> {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut requests = locked(&self.requests);
            if requests.len() >= MAX_REQUESTS || self.closing.is_cancelled() {
                return None;
            }
            requests.insert(request, answer);
        }
        self.send(message(request));
        let answer = unless_cancelled(&self.closing, timeout(wait, answered)).await;
        locked(&self.requests).remove(&request);
        answer?.ok()?.ok()
    }

    pub(super) fn answer(&self, request: u64, answer: Answer) {
        if let Some(waiting) = locked(&self.requests).remove(&request) {
            let _ = waiting.send(answer); // the asker may have gone
        }
    }
}
