//! Stores the logs of one session's instances.
//!
//! One task owns all streams of a session. It takes what has come, appends it to the segments, syncs them, commits how far they have
//! come in one transaction, and only then gives new credit: what a daemon may drop is on disk.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::outbox::Outgoing;
use super::session::Session;
use super::{Hub, unless_cancelled};
use crate::control_plane::store::{Instance, LogProgress, Phase, StoreError};
use crate::error::Chain;
use crate::types::{DispatchId, InstanceName};
use crate::wire::{Close, CloseCode, LOG_CREDIT, LogChunk, LogEndReason, ResumePoint, ToDaemon, Window};

/// Chunks that may wait: 64 of 64 KiB are 4 MiB a session. When it is full, the daemon is not read.
pub(crate) const INTAKE: usize = 64;
/// How often a stream may begin again within a session because its offsets do not fit, before the daemon counts as broken.
const MAX_RESTARTS: u32 = 3;

/// What comes in.
#[derive(Debug)]
pub(crate) enum Intake {
    /// Ask for the log of this instance, unless it is being followed.
    Follow(Box<Instance>),
    Chunk(LogChunk, Bytes),
    End {
        stream: u64,
        reason: LogEndReason,
        offset: u64,
    },
}

/// A log that is being followed.
#[derive(Debug)]
struct Follow {
    dispatch_id: DispatchId,
    instance: InstanceName,
    /// Bytes of the container's log that came, and how many of them are kept.
    position: u64,
    stored: u64,
    resume: ResumePoint,
    window: Window,
    /// What came and is not yet committed.
    pending: Vec<Bytes>,
    /// Offset of the first pending byte in the segments.
    pending_at: u64,
    restarts: u32,
}

/// Bytes to append to one log.
struct Write {
    dispatch_id: DispatchId,
    instance: InstanceName,
    at: u64,
    pieces: Vec<Bytes>,
}

/// Why the session must end.
#[derive(Debug, thiserror::Error)]
enum IngestError {
    #[error("commit a log")]
    Store(#[from] StoreError),
    #[error("write a log segment of {instance}")]
    Segment {
        instance: InstanceName,
        #[source]
        source: io::Error,
    },
    #[error("another session took over")]
    Stale,
    #[error("{0}")]
    Protocol(&'static str),
}

pub(crate) struct Ingest {
    hub: Arc<Hub>,
    session: Arc<Session>,
    streams: BTreeMap<u64, Follow>,
    next_stream: u64,
}

/// Runs until the session closes.
pub(super) async fn run(hub: Arc<Hub>, session: Arc<Session>, mut intake: mpsc::Receiver<Intake>) {
    let mut ingest = Ingest::new(hub, Arc::clone(&session));
    let mut batch = Vec::with_capacity(INTAKE);
    while unless_cancelled(session.closing(), intake.recv_many(&mut batch, INTAKE)).await.is_some_and(|count| count > 0) {
        let Err(error) = ingest.take(&mut batch).await else { continue };
        return session.close(goodbye(&session, error));
    }
}

/// What a daemon is told when its logs cannot be taken.
fn goodbye(session: &Session, error: IngestError) -> Close {
    let node = &session.place().placement;
    match &error {
        // How a session ends when its node's daemon dials anew before the end of the old one was seen.
        IngestError::Stale => tracing::info!(node = %node, "The logs of a session end with it: a newer one took over"),
        error => tracing::error!(node = %node, error = %Chain(error), "The logs of a session cannot be stored"),
    }
    let (code, message) = match error {
        IngestError::Protocol(what) => (CloseCode::Protocol, what.to_owned()),
        IngestError::Store(_) | IngestError::Segment { .. } => (CloseCode::GoAway, "the control plane cannot store logs now".to_owned()),
        IngestError::Stale => (CloseCode::Displaced, "a newer session of the same node took over".to_owned()),
    };
    let retry_after_ms = (code == CloseCode::GoAway).then_some(5_000);
    Close { code, message, retry_after_ms }
}

impl Ingest {
    pub(crate) fn new(hub: Arc<Hub>, session: Arc<Session>) -> Self {
        Self { hub, session, streams: BTreeMap::new(), next_stream: 1 }
    }

    /// Like [`run`], for what has come so far: a simulation's turn.
    #[cfg(test)]
    pub(crate) async fn turn(&mut self, batch: &mut Vec<Intake>) {
        if let Err(error) = self.take(batch).await {
            self.session.close(goodbye(&self.session, error));
        }
    }

    async fn say(&self, message: ToDaemon) {
        self.session.say(Outgoing::Message(message)).await;
    }

    async fn take(&mut self, batch: &mut Vec<Intake>) -> Result<(), IngestError> {
        for item in batch.drain(..) {
            match item {
                Intake::Follow(row) => self.follow(&row, 0).await,
                Intake::Chunk(chunk, bytes) => self.chunk(chunk, bytes).await?,
                Intake::End { stream, reason, offset } => self.end(stream, reason, offset).await?,
            }
        }
        self.commit().await
    }

    async fn follow(&mut self, row: &Instance, restarts: u32) {
        if row.log_done() || self.streams.values().any(|follow| follow.instance == row.name) {
            return;
        }
        let stream = self.next_stream;
        self.next_stream += 1;
        let follow = Follow {
            dispatch_id: row.dispatch_id.clone(),
            instance: row.name.clone(),
            position: row.log.position,
            stored: row.log.stored,
            resume: row.log.resume.clone(),
            window: Window::new(LOG_CREDIT),
            pending: Vec::new(),
            pending_at: row.log.stored,
            restarts,
        };
        let (instance, offset, resume) = (follow.instance.clone(), follow.position, follow.resume.clone());
        self.say(ToDaemon::LogsFollow { stream, instance, offset, resume, credit: LOG_CREDIT }).await;
        self.streams.insert(stream, follow);
    }

    async fn chunk(&mut self, chunk: LogChunk, bytes: Bytes) -> Result<(), IngestError> {
        let Some(follow) = self.streams.get_mut(&chunk.stream) else { return Ok(()) }; // sent before our stop arrived
        let length = bytes.len() as u64;
        follow.window.arrived(length).ok_or(IngestError::Protocol("more log bytes than there was credit for"))?;
        let Some(known) = follow.position.checked_sub(chunk.offset) else { return self.restart(chunk.stream).await };
        if known >= length && length > 0 {
            return Ok(()); // all of it is known
        }
        let fresh = bytes.slice(usize::try_from(known).unwrap_or(bytes.len()).min(bytes.len())..);
        let kept = fresh.slice(..usize::try_from(self.hub.settings.log_limit.saturating_sub(follow.stored)).unwrap_or(usize::MAX).min(fresh.len()));
        follow.position += fresh.len() as u64;
        follow.stored += kept.len() as u64;
        follow.resume = chunk.resume;
        if !kept.is_empty() {
            follow.pending.push(kept);
        }
        Ok(())
    }

    /// Writes, syncs and commits all that is pending, then gives credit and wakes readers.
    async fn commit(&mut self) -> Result<(), IngestError> {
        let mut writes = Vec::new();
        let mut progress = Vec::new();
        for follow in self.streams.values_mut().filter(|follow| follow.window.is_spent()) {
            if !follow.pending.is_empty() {
                let (dispatch_id, instance, at) = (follow.dispatch_id.clone(), follow.instance.clone(), follow.pending_at);
                writes.push(Write { dispatch_id, instance, at, pieces: std::mem::take(&mut follow.pending) });
            }
            let Follow { dispatch_id, position, stored, resume, .. } = &*follow;
            progress.push(LogProgress { dispatch_id: dispatch_id.clone(), position: *position, stored: *stored, resume: resume.clone() });
        }
        if progress.is_empty() {
            return Ok(());
        }
        for damaged in self.write(writes).await? {
            progress.retain(|progress| progress.dispatch_id != damaged);
            self.give_up(damaged).await?;
        }
        if !self.hub.store.commit_logs(self.session.fence().clone(), progress).await? {
            return Err(IngestError::Stale);
        }
        let mut credits = Vec::new();
        for (stream, follow) in self.streams.iter_mut().filter(|(_, follow)| follow.window.is_spent()) {
            let credit = follow.window.refill();
            follow.pending_at = follow.stored;
            credits.push(ToDaemon::LogsCredit { stream: *stream, credit, acked: follow.position });
            self.hub.changes.touch(&follow.dispatch_id);
        }
        for credit in credits {
            self.say(credit).await;
        }
        Ok(())
    }

    /// Appends and syncs; answers with the logs of which the disk holds less than the rows say.
    async fn write(&self, writes: Vec<Write>) -> Result<Vec<DispatchId>, IngestError> {
        let logs = self.hub.logs.clone();
        let work = move || {
            let mut damaged = Vec::new();
            for Write { dispatch_id, instance, at, pieces } in writes {
                match logs.append(&instance, at, &pieces) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        tracing::error!(instance = %instance, error = %error, "A stored log is damaged; nothing more is added to it");
                        damaged.push(dispatch_id);
                    }
                    Err(source) => return Err(IngestError::Segment { instance, source }),
                }
            }
            Ok(damaged)
        };
        // A simulation has no threads: there, one thread decides the order of everything.
        #[cfg(test)]
        if matches!(self.hub.clock, crate::control_plane::clock::Clock::Simulated(_)) {
            return work();
        }
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(IngestError::Stale))
    }

    /// Ends a log whose file lost bytes, so that the others of its node go on.
    async fn give_up(&mut self, damaged: DispatchId) -> Result<(), IngestError> {
        let stream = self.streams.iter().find(|(_, follow)| follow.dispatch_id == damaged).map(|(stream, _)| *stream);
        if let Some(stream) = stream {
            self.streams.remove(&stream);
            self.say(ToDaemon::LogsStop { stream }).await;
        }
        self.hub.store.end_log(self.session.fence().clone(), damaged.clone(), LogEndReason::Gone).await?;
        self.hub.changes.touch(&damaged);
        Ok(())
    }

    async fn end(&mut self, stream: u64, reason: LogEndReason, offset: u64) -> Result<(), IngestError> {
        self.commit().await?;
        let Some(follow) = self.streams.get(&stream) else { return Ok(()) };
        if reason == LogEndReason::Complete && offset != follow.position {
            return self.restart(stream).await;
        }
        let (dispatch_id, position) = (follow.dispatch_id.clone(), follow.position);
        self.streams.remove(&stream);
        let ends = match reason {
            LogEndReason::Complete | LogEndReason::Gone => true,
            LogEndReason::Stopped => false,
            // It may come to hold it later, unless there is nothing left to hold.
            LogEndReason::NotHeld => self.hub.store.instance_of(dispatch_id.clone()).await?.is_some_and(|row| row.phase == Phase::Ended),
        };
        if ends {
            tracing::info!(dispatch = %dispatch_id, bytes = position, reason = ?reason, "Log ended");
            self.hub.store.end_log(self.session.fence().clone(), dispatch_id.clone(), reason).await?;
            self.hub.changes.touch(&dispatch_id);
        }
        Ok(())
    }

    /// Begins a stream again from what is stored: its offsets left a hole.
    async fn restart(&mut self, stream: u64) -> Result<(), IngestError> {
        self.commit().await?;
        let Some(follow) = self.streams.remove(&stream) else { return Ok(()) };
        tracing::warn!(node = %self.session.place().placement, instance = %follow.instance, "A log stream left a hole and begins again");
        if follow.restarts >= MAX_RESTARTS {
            return Err(IngestError::Protocol("log offsets that do not follow each other"));
        }
        self.say(ToDaemon::LogsStop { stream }).await;
        if let Some(row) = self.hub.store.instance_of(follow.dispatch_id).await? {
            self.follow(&row, follow.restarts + 1).await;
        }
        Ok(())
    }
}
