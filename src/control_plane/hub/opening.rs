//! From a `hello` to an open session: one transaction, and `welcome` as the first word.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use super::identity::{Admitted, Away, occupied};
use super::outbox::{OUTBOX, Outgoing};
use super::session::Session;
use super::{Entry, Hub};
use crate::control_plane::audit;
use crate::control_plane::clock::milliseconds;
use crate::control_plane::store::{Adopted, Adoption, Cluster, Fence, Instance, OpenSession, Phase, Place};
use crate::wire::{Close, CloseCode, HEARTBEAT_INTERVAL, Hello, MAX_OPEN_ITEMS, OPEN_PAGE, OpenItem, OpenPhase, ToDaemon, Welcome};

/// Lines about unknown instances that one session may cause.
const MAX_TOLD: usize = 100;
/// How long a daemon without a proof waits for the session of its place to end.
const LEAVING: Duration = Duration::from_secs(2);

/// A session that the store has opened and nobody serves yet.
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    /// What is to be written to the daemon; `welcome` is in it.
    pub(crate) outbox: mpsc::Receiver<Outgoing>,
    /// Logs to go on with.
    pub(crate) logs: Vec<Instance>,
    /// The older session of the place, told to close. Nothing is served before it has finished: two must never write one log.
    pub(crate) displaced: Option<Arc<Session>>,
}

/// Opens a session for a daemon that gets in. One without a proof never takes the place of another that is connected.
///
/// # Errors
/// [`Away`].
pub(crate) async fn open(hub: &Hub, admitted: Admitted, place: Place, hello: Box<Hello>) -> Result<Opened, Away> {
    let _entry = match enter(hub, &place, admitted.proof.is_some()).await {
        Ok(entry) => entry,
        Err(silent) => {
            audit::occupied(&place, &admitted.enrolment, silent);
            return Err(Away::Told(occupied()));
        }
    };
    let (facts, proof) = (hello.node.clone(), admitted.proof.clone());
    let opening = OpenSession { place: place.clone(), hello, proof, now: hub.clock.wall() };
    let opened = hub.store.open_session(opening).await?;
    tell_unknown(&place, &opened.unknown);
    let cluster = admitted.cluster.clone();
    let (sender, outbox) = mpsc::channel(OUTBOX);
    let fence = Fence { place, epoch: opened.epoch };
    let session = Arc::new(Session::new(fence, admitted, facts, sender, hub.clock.wall(), hub.stop.child_token()));
    // Before anybody else can reach the session.
    for message in greeting(hub, &session, &cluster, &opened.open) {
        session.say(Outgoing::Message(message)).await;
    }
    let displaced = hub.register(&session);
    if let Some(older) = &displaced {
        let message = "a newer session of the same place took over".to_owned();
        older.close(Close { code: CloseCode::Displaced, message, retry_after_ms: None });
        if !Arc::ptr_eq(older, &session) {
            audit::displaced(session.place(), older.proof(), session.proof(), hub.silent(older));
        }
    }
    audit::connected(session.place(), session.enrolment(), session.epoch(), session.proof());
    let displaced = displaced.filter(|older| !Arc::ptr_eq(older, &session));
    Ok(Opened { session, outbox, logs: opened.logs, displaced })
}

/// Says what became of instances that a restored store did not know.
fn tell_unknown(place: &Place, unknown: &[Adoption]) {
    let node = &place.placement;
    for Adoption { instance, outcome } in unknown.iter().take(MAX_TOLD) {
        match outcome {
            Adopted::Taken { namespace, provider, provider_known: true } => {
                tracing::info!(node = %node, instance = %instance, ns = %namespace, provider = %provider, "An instance that was launched after the copy this store came back from is taken over");
            }
            Adopted::Taken { namespace, provider, provider_known: false } => {
                tracing::warn!(node = %node, instance = %instance, ns = %namespace, provider = %provider, "An instance is taken over under its provider's label, since no provider has it; make one of that name to see it there");
            }
            Adopted::Left(why) => {
                tracing::warn!(node = %node, instance = %instance, why, "A daemon holds an instance that is not known, and it is not taken over; nothing is done to it");
            }
        }
    }
    if unknown.len() > MAX_TOLD {
        tracing::info!(node = %node, instances = unknown.len() - MAX_TOLD, "More instances were not known");
    }
}

/// Takes the place, from whoever is there only with a proof. A session whose socket is closed already is waited for.
///
/// # Errors
/// For how long whoever is there was silent.
async fn enter<'a>(hub: &'a Hub, place: &Place, proven: bool) -> Result<Option<Entry<'a>>, Duration> {
    let taken = match hub.enter(place) {
        Ok(entry) => return Ok(Some(entry)),
        Err(_) if proven => return Ok(None),
        Err(taken) => taken,
    };
    if let Some(session) = &taken {
        let _ = timeout(LEAVING, session.finished().cancelled()).await; // whether it has gone is asked next
    }
    hub.enter(place).map(Some).map_err(|taken| taken.map_or(Duration::ZERO, |session| hub.silent(&session)))
}

/// A row as a daemon gets it that is to answer for it.
fn open_item(hub: &Hub, row: &Instance) -> OpenItem {
    OpenItem {
        dispatch_id: row.dispatch_id.clone(),
        attempt: row.attempt,
        instance: row.name.clone(),
        namespace: row.kube_namespace.clone().unwrap_or_default(),
        phase: if row.phase == Phase::Created { OpenPhase::Created } else { OpenPhase::Accepted },
        uid: row.seen.uid.clone(),
        seq: row.report_seq,
        cancel: row.delete_requested,
        accepted_epoch: row.accepted_epoch,
        accepted_ms_ago: milliseconds(hub.accepted_ago(&row.dispatch_id)),
    }
}

/// What is open, a frame at a time, each with whether others follow; at least one.
pub(super) fn pages<'a>(hub: &'a Hub, place: &Place, open: &'a [Instance]) -> impl Iterator<Item = (Vec<OpenItem>, bool)> + use<'a> {
    if open.len() > MAX_OPEN_ITEMS {
        let later = open.len() - MAX_OPEN_ITEMS;
        tracing::warn!(cluster = %place.cluster, node = %place.placement, later, "More dispatches are open than a session lists; the newest wait for a later session");
    }
    let listed = open.get(..MAX_OPEN_ITEMS).unwrap_or(open);
    let last = listed.len().saturating_sub(1) / OPEN_PAGE;
    (0..=last).map(move |number| {
        let page = listed.iter().skip(number * OPEN_PAGE).take(OPEN_PAGE);
        (page.map(|row| open_item(hub, row)).collect(), number < last)
    })
}

/// The first words of a session: `welcome`, and what it has no room for.
fn greeting(hub: &Hub, session: &Session, cluster: &Cluster, open: &[Instance]) -> Vec<ToDaemon> {
    let mut pages = pages(hub, session.place(), open);
    let (open, more) = pages.next().unwrap_or_default();
    let welcome = Welcome {
        cluster: cluster.name.clone(),
        install: cluster.install.clone(),
        session: format!("{}/{}/{}", cluster.name, session.place().placement, session.epoch()),
        epoch: session.epoch(),
        heartbeat_ms: milliseconds(HEARTBEAT_INTERVAL),
        lost_after_ms: milliseconds(hub.settings.lost_after),
        open,
        more,
    };
    std::iter::once(ToDaemon::Welcome(Box::new(welcome))).chain(pages.map(|(open, more)| ToDaemon::Open { open, more })).collect()
}
