//! Writes to a daemon: one message at a time, in order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{Sink, SinkExt};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{self, Message};

use super::Hub;
use super::session::Session;
use crate::control_plane::store::{Offer, StoreError};
use crate::types::DispatchId;
use crate::wire::{self, Binary, DispatchEnvelope, ToDaemon};

/// Messages that may wait for a daemon to read: each is under 2 KiB, dispatches wait in the store. A daemon that lets so many
/// pile up is disconnected, and told everything again when it is back.
pub(super) const OUTBOX: usize = 1024;
/// How long one write may take. Two missed heartbeats, like silence.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a goodbye may take: it is a courtesy.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Queued dispatches that are read from the store at a time; each may be 2 MiB.
const PAGE: u32 = 8;

/// Dispatches of a place that may be under way or open at once; more wait in the queue. `welcome` lists them all in one frame of
/// 1 MiB, and an item of it is under 600 bytes.
const MAX_OPEN: u32 = 1000;

/// What waits to be written.
#[derive(Debug)]
pub(super) enum Outgoing {
    Message(ToDaemon),
    /// A dispatch that is queued in the store under another name or in another place than before, unless that has changed when its
    /// turn comes.
    Offer(DispatchId),
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("write to the daemon")]
    Socket(#[source] tungstenite::Error),
    #[error("the daemon did not read for {} s", WRITE_TIMEOUT.as_secs())]
    Slow,
    #[error("encode a message")]
    Encode(#[source] wire::TextError),
    #[error("read the queue")]
    Store(#[source] StoreError),
}

/// Runs until the session closes. The last thing written is the reason for closing, when there is one.
pub(super) async fn run<S>(hub: Arc<Hub>, session: Arc<Session>, mut queue: mpsc::Receiver<Outgoing>, mut sink: S)
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    // Row of the last dispatch that was offered. Rows are numbered as they are committed: what is new is always beyond it.
    let mut offered = 0;
    loop {
        let outgoing = tokio::select! {
            biased;
            () = session.closing().cancelled() => break,
            outgoing = queue.recv() => outgoing,
            () = session.queue_may_have_grown() => None,
        };
        let written = match outgoing {
            None => backlog(&hub, &session, &mut sink, &mut offered).await,
            Some(Outgoing::Message(message)) => text(&mut sink, &message).await,
            Some(Outgoing::Offer(id)) => match hub.store.offer(session.place().clone(), id).await {
                Ok(Some(offer)) => dispatch(&session, &mut sink, offer).await,
                Ok(None) => Ok(()), // accepted, ended or renamed meanwhile
                Err(source) => Err(WriteError::Store(source)),
            },
        };
        if let Err(error) = written {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(node = %session.place().placement, error = %crate::error::Chain(error), "Writing to a daemon failed");
            session.abandon();
            return;
        }
    }
    let goodbye = async {
        if let Some(close) = session.close_reason() {
            text(&mut sink, &ToDaemon::Close(close)).await?;
        }
        sink.close().await.map_err(WriteError::Socket)
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await; // the peer may be gone already
}

/// Offers what is queued and was not offered yet, as far as there is room for more open dispatches.
async fn backlog<S>(hub: &Hub, session: &Session, sink: &mut S, offered: &mut i64) -> Result<(), WriteError>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    while !session.closing().is_cancelled() {
        let page = hub.store.queued(session.place().clone(), *offered, PAGE, MAX_OPEN).await.map_err(WriteError::Store)?;
        if page.is_empty() {
            break;
        }
        for offer in page {
            *offered = offer.row;
            dispatch(session, sink, offer).await?;
        }
    }
    Ok(())
}

async fn dispatch<S>(session: &Session, sink: &mut S, offer: Offer) -> Result<(), WriteError>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    let Offer { dispatch_id, attempt, instance, payload, .. } = offer;
    let (install, placement) = (session.install().to_owned(), session.place().placement.clone());
    let envelope = DispatchEnvelope { dispatch_id, attempt, instance, install, placement, accepted_before: false };
    match Binary::Dispatch(envelope, payload.into()).encode() {
        Ok(frame) => write(sink, Message::Binary(frame)).await,
        Err(error) => {
            // Checked when the launch came in; a row that cannot be sent must not stop those behind it.
            tracing::error!(error = %crate::error::Chain(&error), "A dispatch cannot be sent");
            Ok(())
        }
    }
}

async fn text<S>(sink: &mut S, message: &ToDaemon) -> Result<(), WriteError>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    let text = wire::encode_text(message).map_err(WriteError::Encode)?;
    write(sink, Message::text(text)).await
}

async fn write<S>(sink: &mut S, message: Message) -> Result<(), WriteError>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    let sent = tokio::time::timeout(WRITE_TIMEOUT, sink.send(message)).await;
    sent.map_err(|_| WriteError::Slow)?.map_err(WriteError::Socket)
}
