//! The control plane's process: the real hub over the real store in a folder that outlives it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::control_plane::clock::Clock;
use crate::control_plane::hub::{self, Admitted, Away, End, Hub, HubSettings, Ingest, Intake, Outgoing, Receiver, Scribe, Session};
use crate::control_plane::logs::LogFiles;
use crate::control_plane::store::{Account, Cluster, ExclusiveStore, Fate, Place, Proof, SqliteStore, Store};
use crate::types::Placement;
use crate::wire::{Close, CloseCode, ControlPlaneSession, Frame, FromDaemon, HEARTBEAT_INTERVAL, Hello, ToDaemon};

/// How long an absent object must be absent. The real value: the model's API server acts on a create up to a minute late.
pub(super) const LOST_AFTER: Duration = Duration::from_secs(70);

/// The answer of a store that is never waited for.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("an inline store answers at once, and no queue is full")
}

/// When the process dies inside a write, if it does.
#[derive(Clone, Debug, Default)]
pub(super) struct Doom {
    /// Writes left; 0 means never.
    left: Arc<AtomicU64>,
    after: Arc<AtomicBool>,
    pub(super) dead: Arc<AtomicBool>,
}

impl Doom {
    pub(super) fn set(&self, writes: u64, after: bool) {
        self.left.store(writes, Ordering::Relaxed);
        self.after.store(after, Ordering::Relaxed);
    }

    fn fate(&self) -> Fate {
        if self.dead.load(Ordering::Relaxed) {
            return Fate::DiesBefore;
        }
        match self.left.load(Ordering::Relaxed) {
            0 => Fate::Done,
            1 => {
                self.dead.store(true, Ordering::Relaxed);
                if self.after.load(Ordering::Relaxed) { Fate::DiesAfter } else { Fate::DiesBefore }
            }
            left => {
                self.left.store(left - 1, Ordering::Relaxed);
                Fate::Done
            }
        }
    }
}

/// One daemon's connection.
pub(super) struct Talk {
    pub(super) machine: ControlPlaneSession,
    pub(super) started: Duration,
    place: Place,
    open: Option<Open>,
}

struct Open {
    receiver: Receiver,
    outbox: mpsc::Receiver<Outgoing>,
    scribe: Scribe,
    ingest: Ingest,
    chunks: mpsc::Receiver<Intake>,
}

/// The process.
pub(super) struct Plane {
    pub(super) process: u64,
    pub(super) started: Duration,
    pub(super) hub: Arc<Hub>,
    pub(super) store: Arc<dyn Store>,
    pub(super) doom: Doom,
    clock: Arc<Mutex<(Timestamp, Duration)>>,
    cluster: Cluster,
    talks: BTreeMap<u64, Talk>,
}

/// What a turn of the process wants to be sent, and which links it closes.
#[derive(Default)]
pub(super) struct Turn {
    pub(super) frames: Vec<(u64, Frame)>,
    pub(super) closed: Vec<u64>,
}

impl Plane {
    pub(super) fn start(folder: &Path, cluster: Cluster, process: u64, started: Duration, wall: Timestamp) -> Self {
        let doom = Doom::default();
        let fate = doom.clone();
        let exclusive = ExclusiveStore::open(folder).expect("what a crash left can be opened");
        let store: Arc<dyn Store> = Arc::new(SqliteStore::inline_with(exclusive, move || fate.fate()));
        let logs = LogFiles::open(folder.join("logs")).expect("a folder");
        let settings = HubSettings { lost_after: LOST_AFTER, log_limit: 64 << 20, audience: "lakeshore".into() };
        let clock = Arc::new(Mutex::new((wall, Duration::ZERO)));
        let simulated = Clock::Simulated(Arc::clone(&clock));
        let hub = Arc::new(Hub::new(Arc::clone(&store), logs, settings, simulated, TaskTracker::new(), CancellationToken::new()));
        Self { process, started, hub, store, doom, clock, cluster, talks: BTreeMap::new() }
    }

    pub(super) fn set_time(&self, wall: Timestamp, now: Duration) {
        *hub::locked(&self.clock) = (wall, now.saturating_sub(self.started));
    }

    pub(super) fn is_dead(&self) -> bool {
        self.doom.dead.load(Ordering::Relaxed)
    }

    pub(super) fn talk(&mut self, link: u64) -> Option<&mut Talk> {
        self.talks.get_mut(&link)
    }

    /// A daemon whose identity the handshake has proved.
    pub(super) fn connected(&mut self, link: u64, placement: Placement, now: Duration) {
        let place = Place { cluster: self.cluster.name.clone(), placement: placement.clone() };
        let machine = ControlPlaneSession::new(placement, HEARTBEAT_INTERVAL, Duration::ZERO);
        self.talks.insert(link, Talk { machine, started: now, place, open: None });
    }

    /// Takes a frame, and says what is to be sent.
    pub(super) fn heard(&mut self, link: u64, frame: Frame, now_is: Duration) {
        let Some(talk) = self.talks.get_mut(&link) else { return };
        let at = now_is.saturating_sub(talk.started);
        let said = match talk.machine.heard(frame, at) {
            Ok(FromDaemon::Hello(hello)) => self.greet(link, hello),
            Ok(said) => match &talk.open {
                Some(open) => now(open.receiver.handle(said)),
                None => Ok(()),
            },
            Err(violation) => Err(violation.into()),
        };
        if let Some(talk) = self.talks.get_mut(&link) {
            talk.machine.handled(at);
        }
        if let Err(end) = said {
            self.conclude(link, end);
        }
    }

    /// What a daemon of the place proves; the proofs themselves are `tests/control_plane/identity.rs`'s.
    fn admitted(&self, place: &Place) -> Admitted {
        let account = Account { namespace: "nymph-system".into(), name: "nymph".into() };
        let pod = format!("nymph-{}", place.placement);
        let proof = Proof { account, node_uid: None, pod_uid: pod.clone(), pod };
        Admitted { cluster: self.cluster.clone(), enrolment: "e1".into(), proof: Some(proof) }
    }

    fn greet(&mut self, link: u64, hello: Box<Hello>) -> Result<(), End> {
        let Some(place) = self.talks.get(&link).map(|talk| talk.place.clone()) else { return Ok(()) };
        let opened = now(hub::open(&self.hub, self.admitted(&place), place, hello)).map_err(|away| match away {
            Away::Store(error) => End::Store(error),
            Away::Told(close) => unreachable!("a daemon that proves who it is gets in: {}", close.message),
        })?;
        if let Some(older) = opened.displaced {
            let of = |talk: &Talk| talk.open.as_ref().is_some_and(|open| Arc::ptr_eq(&open.receiver.session, &older));
            if let Some(older) = self.talks.iter().find(|(_, talk)| of(talk)).map(|(link, _)| *link) {
                self.finish(older);
            }
        }
        let (intake, chunks) = mpsc::channel(hub::INTAKE * 16);
        let session = Arc::clone(&opened.session);
        let receiver = Receiver { hub: Arc::clone(&self.hub), session: Arc::clone(&session), intake };
        now(receiver.begin(opened.logs))?;
        let scribe = Scribe::new(Arc::clone(&self.hub), Arc::clone(&session));
        let ingest = Ingest::new(Arc::clone(&self.hub), session);
        if let Some(talk) = self.talks.get_mut(&link) {
            talk.open = Some(Open { receiver, outbox: opened.outbox, scribe, ingest, chunks });
        }
        Ok(())
    }

    /// As the conversation does it.
    fn conclude(&mut self, link: u64, end: End) {
        let Some(Talk { open, .. }) = self.talks.get(&link) else { return };
        let Some(open) = open else {
            self.talks.remove(&link);
            return;
        };
        match end {
            End::Gone => open.receiver.session.abandon(),
            End::Protocol(message) => open.receiver.session.close(Close { code: CloseCode::Protocol, message, retry_after_ms: None }),
            End::Store(_) => {
                let message = "the control plane cannot use its store".to_owned();
                open.receiver.session.close(Close { code: CloseCode::GoAway, message, retry_after_ms: Some(5_000) });
            }
        }
    }

    /// The link is gone.
    pub(super) fn broken(&mut self, link: u64) {
        self.conclude(link, End::Gone);
    }

    pub(super) fn beat(&mut self, link: u64) {
        if let Some(Talk { open: Some(open), .. }) = self.talks.get(&link) {
            now(open.receiver.session.say(Outgoing::Message(ToDaemon::Heartbeat {})));
        }
    }

    fn finish(&mut self, link: u64) {
        let Some(Talk { open: Some(open), .. }) = self.talks.remove(&link) else { return };
        let session: &Arc<Session> = &open.receiver.session;
        session.abandon();
        self.hub.remove(session);
        session.finished().cancel();
        let _ = now(self.hub.store.close_session(session.fence().clone(), session.heard())); // a store that died says so elsewhere
    }

    /// Lets every session do what it can without waiting.
    pub(super) fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        loop {
            let mut moved = false;
            for (link, talk) in &mut self.talks {
                let Some(open) = &mut talk.open else { continue };
                moved |= write(*link, open, &mut turn.frames);
                moved |= store_logs(open);
            }
            if !moved {
                break;
            }
        }
        let closing = |talk: &Talk| talk.open.as_ref().is_some_and(|open| open.receiver.session.closing().is_cancelled());
        let over: Vec<u64> = self.talks.iter().filter(|(_, talk)| closing(talk)).map(|(link, _)| *link).collect();
        for link in over {
            if let Some(Talk { open: Some(open), .. }) = self.talks.get(&link)
                && let Some(close) = open.receiver.session.close_reason()
                && let Ok(text) = crate::wire::encode_text(&ToDaemon::Close(close))
            {
                turn.frames.push((link, Frame::Text(text)));
            }
            self.finish(link);
            turn.closed.push(link);
        }
        turn
    }

    /// Messages that were queued when the process died: its writer may have been faster.
    pub(super) fn last_words(&mut self) -> Vec<(u64, Frame)> {
        let mut frames = Vec::new();
        for (link, talk) in &mut self.talks {
            let Some(open) = &mut talk.open else { continue };
            while let Ok(outgoing) = open.outbox.try_recv() {
                if let Outgoing::Message(message) = outgoing
                    && let Ok(text) = crate::wire::encode_text(&message)
                {
                    frames.push((*link, Frame::Text(text)));
                }
            }
        }
        frames
    }

    pub(super) fn has_session(&self, link: u64) -> bool {
        self.talks.get(&link).is_some_and(|talk| talk.open.is_some())
    }
}

/// Writes what waits; whether there was anything.
fn write(link: u64, open: &mut Open, frames: &mut Vec<(u64, Frame)>) -> bool {
    let before = frames.len();
    let session = Arc::clone(&open.receiver.session);
    if session.closing().is_cancelled() {
        return false;
    }
    while let Ok(outgoing) = open.outbox.try_recv() {
        match now(open.scribe.frames(outgoing)) {
            Ok(written) => frames.extend(written.into_iter().map(|frame| (link, frame))),
            Err(_) => session.abandon(),
        }
    }
    if session.queue_may_have_grown().now_or_never().is_some() {
        loop {
            match now(open.scribe.backlog()) {
                Ok(page) if page.is_empty() => break,
                Ok(page) => frames.extend(page.into_iter().map(|frame| (link, frame))),
                Err(_) => {
                    session.abandon();
                    break;
                }
            }
        }
    }
    frames.len() > before
}

fn store_logs(open: &mut Open) -> bool {
    let mut batch = Vec::new();
    while let Ok(item) = open.chunks.try_recv() {
        batch.push(item);
    }
    let moved = !batch.is_empty();
    if moved && !open.receiver.session.closing().is_cancelled() {
        now(open.ingest.turn(&mut batch));
    }
    moved
}
