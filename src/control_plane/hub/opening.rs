//! From a `hello` to an open session: one transaction, and `welcome` as the first word.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::Hub;
use super::outbox::{OUTBOX, Outgoing};
use super::session::Session;
use crate::control_plane::store::{Adopted, Adoption, Cluster, Fence, Instance, OpenSession, Phase, Place, StoreError};
use crate::wire::{Close, CloseCode, HEARTBEAT_INTERVAL, Hello, OpenItem, OpenPhase, ToDaemon, Welcome};

/// Lines about unknown instances that one session may cause.
const MAX_TOLD: usize = 100;

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

/// Opens a session for a daemon whose identity was proved in the handshake.
pub(crate) async fn open(hub: &Hub, cluster: &Cluster, place: Place, hello: Box<Hello>) -> Result<Opened, StoreError> {
    let facts = hello.node.clone();
    let opened = hub.store.open_session(OpenSession { place: place.clone(), hello, now: hub.clock.wall() }).await?;
    tell_unknown(&place, &opened.unknown);
    let (sender, outbox) = mpsc::channel(OUTBOX);
    let fence = Fence { place, epoch: opened.epoch };
    let session = Arc::new(Session::new(fence, cluster.install.clone(), facts, sender, hub.clock.wall(), hub.stop.child_token()));
    // Before anybody else can reach the session.
    session.say(Outgoing::Message(ToDaemon::Welcome(Box::new(welcome(hub, &session, cluster, &opened.open))))).await;
    let displaced = hub.register(&session);
    if let Some(older) = &displaced {
        let message = "a newer session of the same place took over".to_owned();
        older.close(Close { code: CloseCode::Displaced, message, retry_after_ms: None });
        if !Arc::ptr_eq(older, &session) {
            tracing::warn!(node = %session.place().placement, epoch = session.epoch(), "A daemon displaces an older session of its place");
        }
    }
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

fn welcome(hub: &Hub, session: &Session, cluster: &Cluster, open: &[Instance]) -> Welcome {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let item = |row: &Instance| OpenItem {
        dispatch_id: row.dispatch_id.clone(),
        attempt: row.attempt,
        instance: row.name.clone(),
        namespace: row.kube_namespace.clone().unwrap_or_default(),
        phase: if row.phase == Phase::Created { OpenPhase::Created } else { OpenPhase::Accepted },
        uid: row.seen.uid.clone(),
        seq: row.report_seq,
        cancel: row.delete_requested,
        accepted_ms_ago: milliseconds(hub.accepted_ago(&row.dispatch_id)),
    };
    Welcome {
        cluster: cluster.name.clone(),
        install: cluster.install.clone(),
        session: format!("{}/{}/{}", cluster.name, session.place().placement, session.epoch()),
        epoch: session.epoch(),
        heartbeat_ms: milliseconds(HEARTBEAT_INTERVAL),
        lost_after_ms: milliseconds(hub.settings.lost_after),
        open: open.iter().map(item).collect(),
    }
}
