//! Follows the log of one container and sends it on, within the credit that the control plane gave.
//!
//! The end of a stream is not the end of a log: kubelets and API servers restart, rotation ends or stalls a follow. So a follow is opened
//! again from the resume point while the container runs, and the log is complete only when the container is seen to have ended and a read without
//! follow from there brings nothing more.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kube::Client;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::event::{ContainerState, Event, FollowOrder};
use super::link::{LogMessage, Sender};
use crate::error::Chain;
use crate::observe::{CONTAINER, LogFramer, Piece};
use crate::watch::{LogError, LogStream};
use crate::wire::{LogChunk, LogEndReason, MAX_LOG_CHUNK, ToControlPlane};

/// Follows at a time. Each is a connection of its own; more wait their turn. **Source:** `design.md` section 3.
const MAX_FOLLOWS: usize = 256;
/// A follow that was silent for so long is opened again: rotation can stall one without ending it.
const SILENCE: Duration = Duration::from_secs(300);
/// How long a follow may go on after its container ended. The kubelet ends it by itself within a second.
const AFTER_END: Duration = Duration::from_secs(10);
/// How long a read of a finished log may be silent.
const FINAL_SILENCE: Duration = Duration::from_secs(30);
/// How long bytes wait for more, so that lines travel together. Nobody who reads a log sees it.
const LINGER: Duration = Duration::from_millis(20);
/// First and longest pause between tries.
const RETRY_MIN: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Answers "no such Pod" until the watch is believed to be late and the log to be gone.
const MAX_MISSING: u32 = 5;

struct Handle {
    credit: Arc<Semaphore>,
    state: watch::Sender<ContainerState>,
    stop: CancellationToken,
}

/// All follows of the current link.
pub(super) struct Follows {
    client: Client,
    events: mpsc::Sender<Event>,
    tracker: TaskTracker,
    running: HashMap<u64, Handle>,
    slots: Arc<Semaphore>,
}

impl Follows {
    pub(super) fn new(client: Client, events: mpsc::Sender<Event>, tracker: TaskTracker) -> Self {
        Self { client, events, tracker, running: HashMap::new(), slots: Arc::new(Semaphore::new(MAX_FOLLOWS)) }
    }

    pub(super) fn start(&mut self, order: FollowOrder, sender: Sender) {
        self.running.retain(|_, handle| !handle.state.is_closed());
        let credit = Arc::new(Semaphore::new(usize::try_from(order.credit).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS / 2)));
        let (state, seen) = watch::channel(order.state);
        let stop = CancellationToken::new();
        self.running.insert(order.stream, Handle { credit: Arc::clone(&credit), state, stop: stop.clone() });
        let (client, slots, events, stream) = (self.client.clone(), Arc::clone(&self.slots), self.events.clone(), order.stream);
        let mut follow = Follow { client, offset: order.offset, resume: order.resume.clone(), order, credit, seen, stop, sender };
        self.tracker.spawn(async move {
            follow.run(&slots).await;
            let _ = events.send(Event::FollowEnded { stream }).await; // the loop is gone only when the process ends
        });
    }

    pub(super) fn credit(&self, stream: u64, bytes: u64) {
        if let Some(handle) = self.running.get(&stream) {
            let room = (Semaphore::MAX_PERMITS / 2).saturating_sub(handle.credit.available_permits());
            handle.credit.add_permits(usize::try_from(bytes).unwrap_or(usize::MAX).min(room));
        }
    }

    pub(super) fn container(&self, stream: u64, state: ContainerState) {
        if let Some(handle) = self.running.get(&stream) {
            handle.state.send_replace(state);
        }
    }

    pub(super) fn stop(&mut self, stream: u64) {
        if let Some(handle) = self.running.get(&stream) {
            handle.stop.cancel();
        }
    }

    /// Ends all of them without a word: their link is gone.
    pub(super) fn stop_all(&mut self) {
        for (_, handle) in self.running.drain() {
            handle.stop.cancel();
        }
    }
}

/// Pieces that wait to be sent together: a kubelet sends each line by itself, and a frame and a write on disk for each would be the slowest part.
#[derive(Default)]
struct Batch {
    pieces: Vec<Piece>,
    bytes: usize,
    due: Option<Instant>,
}

impl Batch {
    fn add(&mut self, pieces: Vec<Piece>) {
        self.bytes += pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>();
        self.pieces.extend(pieces);
        if !self.pieces.is_empty() {
            self.due.get_or_insert_with(|| Instant::now() + LINGER);
        }
    }
}

/// How one reading of the log went.
enum Read {
    /// To its end; whether it brought anything.
    End { news: bool },
    /// It could not be opened yet.
    NotYet(String),
    /// There is no such Pod.
    Missing,
    /// It broke or fell silent.
    Broke(String),
    /// The control plane asked to stop, or the link is gone.
    Stopped,
}

struct Follow {
    client: Client,
    order: FollowOrder,
    offset: u64,
    resume: crate::wire::ResumePoint,
    credit: Arc<Semaphore>,
    seen: watch::Receiver<ContainerState>,
    stop: CancellationToken,
    sender: Sender,
}

impl Follow {
    async fn run(&mut self, slots: &Semaphore) {
        let (stream, instance) = (self.order.stream, self.order.instance.clone());
        if slots.available_permits() == 0 {
            info!(stream, %instance, "The log waits for a free follow");
        }
        let slot = tokio::select! {
            () = self.ended() => return,
            slot = slots.acquire() => slot,
        };
        debug!(stream, %instance, offset = self.offset, "Following the log");
        let reason = self.follow().await;
        drop(slot);
        if let Some(reason) = reason {
            debug!(stream, %instance, offset = self.offset, ?reason, "The log's stream ended");
            let end = ToControlPlane::LogEnd { stream, reason, offset: self.offset };
            let _ = self.sender.logs.send(LogMessage::End(end)).await; // without a link nobody asks
        }
    }

    /// Until the stream is stopped or its link is gone.
    async fn ended(&self) {
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = self.sender.logs.closed() => {}
        }
    }

    /// `None` when the link is gone.
    async fn follow(&mut self) -> Option<LogEndReason> {
        let mut pause = RETRY_MIN;
        let mut missing = 0;
        loop {
            let state = *self.seen.borrow_and_update();
            if state == ContainerState::Gone {
                return Some(LogEndReason::Gone);
            }
            let ended = state == ContainerState::Ended;
            let why = match self.read(!ended).await {
                Read::Stopped => return (!self.sender.logs.is_closed()).then_some(LogEndReason::Stopped),
                Read::End { news: false } if ended => return Some(LogEndReason::Complete),
                // A finished log is read until a reading brings nothing more.
                Read::End { news: true } if ended => continue,
                Read::End { news } => {
                    if news {
                        pause = RETRY_MIN;
                    }
                    missing = 0;
                    None
                }
                Read::Missing if missing >= MAX_MISSING => return Some(LogEndReason::Gone),
                Read::Missing => {
                    missing += 1;
                    None
                }
                Read::NotYet(why) | Read::Broke(why) => Some(why),
            };
            if let Some(why) = why {
                debug!(stream = self.order.stream, instance = %self.order.instance, error = why, "The log is read again");
            }
            // The container's end ends the pause: the rest of its log is wanted at once.
            let mut seen = self.seen.clone();
            tokio::select! {
                () = self.ended() => {}
                () = sleep(pause) => {}
                _ = seen.changed() => {}
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Reads the log once from the resume point.
    async fn read(&mut self, follow: bool) -> Read {
        let mut framer = LogFramer::new(self.order.container.clone(), &self.resume, self.offset);
        let opening = LogStream::open(&self.client, &self.order.namespace, &self.order.instance, CONTAINER, framer.since_time(), follow);
        let silence = if follow { SILENCE } else { FINAL_SILENCE };
        let mut seen = self.seen.clone();
        let opened = tokio::select! {
            () = self.stop.cancelled() => return Read::Stopped,
            () = self.sender.logs.closed() => return Read::Stopped,
            opened = timeout(silence, opening) => opened,
            () = after_end(&mut seen), if follow => return Read::Broke("the container ended before its log could be opened".into()),
        };
        let mut stream = match opened {
            Err(_) => return Read::Broke("it was silent for too long".into()),
            Ok(Err(LogError::NotYet { message })) => return Read::NotYet(message),
            Ok(Err(LogError::Gone)) => return Read::Missing,
            Ok(Err(error @ LogError::Refused { .. })) => {
                warn!(instance = %self.order.instance, ns = %self.order.namespace, error = %Chain(&error), "The log cannot be read");
                return Read::Broke(error.to_string());
            }
            Ok(Err(error @ LogError::Broken { .. })) => return Read::Broke(error.to_string()),
            Ok(Ok(stream)) => stream,
        };
        let before = self.offset;
        let mut batch = Batch::default();
        loop {
            let wait = batch.due.map_or(silence, |due| due.saturating_duration_since(Instant::now()));
            let filled = tokio::select! {
                () = self.stop.cancelled() => return Read::Stopped,
                () = self.sender.logs.closed() => return Read::Stopped,
                filled = timeout(wait, stream.fill()) => filled,
                () = after_end(&mut seen), if follow => return Read::Broke("the follow went on after the container had ended".into()),
            };
            let over = match filled {
                Err(_) if batch.due.is_some() => None,
                Err(_) => return Read::Broke("it was silent for too long".into()),
                Ok(Err(error)) => Some(Read::Broke(error.to_string())),
                Ok(Ok([])) => {
                    batch.add(framer.end());
                    Some(Read::End { news: false })
                }
                Ok(Ok(bytes)) => {
                    // In small bites: each piece is a copy, and credit may stop us in between.
                    let bite = bytes.get(..MAX_LOG_CHUNK / 2).unwrap_or(bytes);
                    let length = bite.len();
                    batch.add(framer.push(bite));
                    stream.consume(length);
                    if batch.bytes < MAX_LOG_CHUNK / 2 {
                        continue;
                    }
                    None
                }
            };
            if !self.pass_on(std::mem::take(&mut batch).pieces).await {
                return Read::Stopped;
            }
            match over {
                None => {}
                Some(Read::End { .. }) => return Read::End { news: self.offset > before },
                Some(broke) => return broke,
            }
        }
    }

    /// Sends pieces as few chunks, each within the credit. False when the stream is over.
    async fn pass_on(&mut self, pieces: Vec<Piece>) -> bool {
        let mut pieces = pieces.into_iter().peekable();
        while let Some(first) = pieces.next() {
            let (offset, mut resume, mut bytes) = (first.offset, first.resume, Vec::from(first.bytes));
            while let Some(next) = pieces.next_if(|next| bytes.len() + next.bytes.len() <= MAX_LOG_CHUNK) {
                bytes.extend_from_slice(&next.bytes);
                resume = next.resume;
            }
            if !self.send(offset, resume, bytes.into()).await {
                return false;
            }
        }
        true
    }

    async fn send(&mut self, offset: u64, resume: crate::wire::ResumePoint, bytes: Bytes) -> bool {
        let length = bytes.len();
        let permits = u32::try_from(length).unwrap_or(u32::MAX);
        let granted = tokio::select! {
            () = self.ended() => return false,
            granted = self.credit.acquire_many(permits) => granted,
        };
        let Ok(granted) = granted else { return false };
        granted.forget();
        let chunk = LogChunk { stream: self.order.stream, offset, resume: resume.clone() };
        let sent = tokio::select! {
            () = self.stop.cancelled() => return false,
            sent = self.sender.logs.send(LogMessage::Chunk(chunk, bytes)) => sent.is_ok(),
        };
        if sent {
            self.offset = offset + length as u64;
            self.resume = resume;
        }
        sent
    }
}

/// Resolves some time after the container ended, or at once when the object is gone.
async fn after_end(seen: &mut watch::Receiver<ContainerState>) {
    loop {
        let state = *seen.borrow_and_update();
        match state {
            ContainerState::Gone => return sleep(Duration::from_secs(1)).await,
            ContainerState::Ended => return sleep(AFTER_END).await,
            ContainerState::Waiting | ContainerState::Running => {}
        }
        if seen.changed().await.is_err() {
            std::future::pending::<()>().await; // nobody is left to say so; the stream is stopped by other means
        }
    }
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
