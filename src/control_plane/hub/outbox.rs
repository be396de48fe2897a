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
use crate::wire::{self, Binary, DispatchEnvelope, Frame, ToDaemon};

/// Messages that may wait for a daemon to read: each is under 2 KiB, dispatches wait in the store. A daemon that lets so many
/// pile up is disconnected, and told everything again when it is back.
pub(super) const OUTBOX: usize = 1024;
/// How long one write may take. Two missed heartbeats, like silence.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a goodbye may take: it is a courtesy.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Queued dispatches that are read from the store at a time; each may be 2 MiB.
const PAGE: u32 = 8;

/// Dispatches of a place that may be under way or open at once; more wait in the queue. `welcome` lists them all in one frame.
const MAX_OPEN: u32 = 1000;

/// What waits to be written.
#[derive(Debug)]
pub(crate) enum Outgoing {
    Message(ToDaemon),
    /// A dispatch that is queued in the store under another name or in another place than before, unless that has changed when its
    /// turn comes.
    Offer(DispatchId),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error("write to the daemon")]
    Socket(#[source] tungstenite::Error),
    #[error("the daemon did not read for {} s", WRITE_TIMEOUT.as_secs())]
    Slow,
    #[error("encode a message")]
    Encode(#[source] wire::TextError),
    #[error("read the queue")]
    Store(#[source] StoreError),
}

/// Turns what waits into frames.
pub(crate) struct Scribe {
    hub: Arc<Hub>,
    session: Arc<Session>,
    /// Row of the last dispatch that was offered. Rows are numbered as they are committed: what is new is always beyond it.
    offered: i64,
}

impl Scribe {
    pub(crate) fn new(hub: Arc<Hub>, session: Arc<Session>) -> Self {
        Self { hub, session, offered: 0 }
    }

    /// The frames of one thing that waits.
    ///
    /// # Errors
    /// [`WriteError`]: the session cannot go on.
    pub(crate) async fn frames(&mut self, outgoing: Outgoing) -> Result<Vec<Frame>, WriteError> {
        match outgoing {
            Outgoing::Message(message) => Ok(vec![text(&message)?]),
            Outgoing::Offer(id) => {
                // Accepted, ended or renamed meanwhile: there is nothing to offer.
                let offer = self.hub.store.offer(self.session.place().clone(), id).await.map_err(WriteError::Store)?;
                Ok(offer.and_then(|offer| self.dispatch(offer)).into_iter().collect())
            }
        }
    }

    /// The next dispatches of the queue, as far as there is room for more open ones; empty when nothing is left to offer.
    ///
    /// # Errors
    /// [`WriteError`]: the session cannot go on.
    pub(crate) async fn backlog(&mut self) -> Result<Vec<Frame>, WriteError> {
        let mut frames = Vec::new();
        // A page may hold nothing that can be sent, and those behind it must not wait for ever.
        while frames.is_empty() {
            let page = self.hub.store.queued(self.session.place().clone(), self.offered, PAGE, MAX_OPEN).await.map_err(WriteError::Store)?;
            let Some(last) = page.last() else { break };
            self.offered = last.row;
            frames.extend(page.into_iter().filter_map(|offer| self.dispatch(offer)));
        }
        Ok(frames)
    }

    fn dispatch(&self, offer: Offer) -> Option<Frame> {
        let Offer { dispatch_id, attempt, instance, payload, .. } = offer;
        let (install, placement) = (self.session.install().to_owned(), self.session.place().placement.clone());
        let envelope = DispatchEnvelope { dispatch_id, attempt, instance, install, placement, accepted_before: false };
        match Binary::Dispatch(envelope, payload.into()).encode() {
            Ok(frame) => Some(Frame::Binary(frame)),
            Err(error) => {
                // Checked when the launch came in; a row that cannot be sent must not stop those behind it.
                tracing::error!(error = %crate::error::Chain(&error), "A dispatch cannot be sent");
                None
            }
        }
    }
}

fn text(message: &ToDaemon) -> Result<Frame, WriteError> {
    wire::encode_text(message).map(Frame::Text).map_err(WriteError::Encode)
}

/// Runs until the session closes. The last thing written is the reason for closing, when there is one.
pub(super) async fn run<S>(hub: Arc<Hub>, session: Arc<Session>, mut queue: mpsc::Receiver<Outgoing>, mut sink: S)
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    let mut scribe = Scribe::new(hub, Arc::clone(&session));
    loop {
        let outgoing = tokio::select! {
            biased;
            () = session.closing().cancelled() => break,
            outgoing = queue.recv() => outgoing,
            () = session.queue_may_have_grown() => None,
        };
        let written = match outgoing {
            None => backlog(&session, &mut scribe, &mut sink).await,
            Some(outgoing) => match scribe.frames(outgoing).await {
                Ok(frames) => write(&mut sink, frames).await,
                Err(error) => Err(error),
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
            write(&mut sink, vec![text(&ToDaemon::Close(close))?]).await?;
        }
        sink.close().await.map_err(WriteError::Socket)
    };
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, goodbye).await; // the peer may be gone already
}

/// Offers all that is queued and was not offered yet.
async fn backlog<S>(session: &Session, scribe: &mut Scribe, sink: &mut S) -> Result<(), WriteError>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    while !session.closing().is_cancelled() {
        let frames = scribe.backlog().await?;
        if frames.is_empty() {
            break;
        }
        write(sink, frames).await?;
    }
    Ok(())
}

async fn write<S>(sink: &mut S, frames: Vec<Frame>) -> Result<(), WriteError>
where
    S: Sink<Message, Error = tungstenite::Error> + Unpin,
{
    for frame in frames {
        let message = match frame {
            Frame::Text(text) => Message::text(text),
            Frame::Binary(bytes) => Message::Binary(bytes),
            Frame::Alive => continue,
        };
        let sent = tokio::time::timeout(WRITE_TIMEOUT, sink.send(message)).await;
        sent.map_err(|_| WriteError::Slow)?.map_err(WriteError::Socket)?;
    }
    Ok(())
}
