//! The connection to the control plane: dials for ever, and carries frames between the socket and the state loop.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::event::Event;
use super::identity;
use super::lease::Turn;
use crate::dial::{self, Backoff, DialError, LinkError, Reader, Target, Url, Writer};
use crate::error::Chain;
use crate::telemetry::{Condition, Health};
use crate::types::Placement;
use crate::wire::{self, Binary, Close, CloseCode, DaemonSession, Due, FromControlPlane, LogChunk, ToControlPlane, Violation};

/// Text messages under way to the socket. A welcome may ask for a report of each of a thousand open instances at once; a control plane that lets four
/// thousand pile up takes nothing any more: the link is dropped, and what matters is sent again on the next.
const CONTROL_QUEUE: usize = 4096;
/// Log chunks under way to the socket, of at most 64 KiB each: half a megabyte for all streams together. A follow that finds it full waits.
const LOG_QUEUE: usize = 8;
/// A session of this length makes the next failure start from the shortest pause.
const STABLE: Duration = Duration::from_secs(60);
/// After a terminal refusal, dial again this often without a new token. **Source:** `design.md` section 4.
const TERMINAL_PAUSE: Duration = Duration::from_secs(300);
/// A newer session of the same node took over: two daemons would take turns at once.
const DISPLACED_PAUSE: Duration = Duration::from_secs(30);
/// Longest pause that a control plane may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(300);
/// How long the last messages may take on the way out.
const GOODBYE: Duration = Duration::from_secs(5);
/// Longest token file: a token has 55 characters.
const MAX_TOKEN: usize = 4096;

/// What goes to the control plane on the log lane, in order within a stream.
#[derive(Debug)]
pub(super) enum LogMessage {
    Chunk(LogChunk, Bytes),
    End(ToControlPlane),
}

/// Handle to the open link; cheap to clone into tasks.
#[derive(Clone)]
pub(super) struct Sender {
    link: u64,
    control: mpsc::Sender<ToControlPlane>,
    pub(super) logs: mpsc::Sender<LogMessage>,
    close: CancellationToken,
}

/// The open link, if there is one. A std mutex: it is never held over an await.
#[derive(Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Option<Sender>>>);

impl Slot {
    /// The link of that number, when it is still the open one: a message of an old session never gets into a new one.
    pub(super) fn of(&self, link: Option<u64>) -> Option<Sender> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone().filter(|sender| Some(sender.link) == link)
    }

    fn set(&self, sender: Option<Sender>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = sender;
    }
}

impl Sender {
    /// A link whose log lane the test reads.
    #[cfg(test)]
    pub(super) fn with_logs() -> (Self, mpsc::Receiver<LogMessage>) {
        let (logs, queue) = mpsc::channel(LOG_QUEUE);
        (Self { link: 1, control: mpsc::channel(1).0, logs, close: CancellationToken::new() }, queue)
    }

    /// Queues a message without waiting.
    pub(super) fn send(&self, message: ToControlPlane) {
        if self.control.try_send(message).is_err() && !self.close.is_cancelled() {
            warn!(link = self.link, "The control plane takes no more messages; dropping the connection");
            self.close.cancel();
        }
    }

    /// Ends the link after what is queued was sent.
    pub(super) fn close(&self) {
        self.close.cancel();
    }
}

/// What the link needs to know.
pub(super) struct Link {
    pub(super) url: Url,
    pub(super) placement: Placement,
    pub(super) token_file: PathBuf,
    pub(super) identity_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) server_name: Option<String>,
    pub(super) proxy: Option<SecretString>,
    pub(super) slot: Slot,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) health: Health,
    /// Dials only in its turn.
    pub(super) turn: Turn,
    /// Changes when the token file does.
    pub(super) token_changed: watch::Receiver<u64>,
}

/// Why a session is over, and when to dial again.
enum Ended {
    /// By our own wish.
    Closed,
    /// The control plane said so.
    Told(Close),
    /// It broke.
    Broke(String),
}

impl From<Violation> for Ended {
    fn from(violation: Violation) -> Self {
        Self::Broke(format!("the control plane does not keep to the protocol: {}", Chain(&violation)))
    }
}

impl Link {
    /// Dials until cancelled; then says goodbye and returns.
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        let mut backoff = Backoff::default();
        let mut link = 0;
        while cancel.run_until_cancelled(self.turn.comes()).await.is_some() {
            self.token_changed.mark_unchanged();
            let pause = match self.dial(&cancel).await {
                None => break,
                Some(Err(failure)) => self.after_failure(failure, &mut backoff),
                Some(Ok((reader, writer))) => {
                    link += 1;
                    let since = Instant::now();
                    let ended = self.turns_session(link, reader, writer, &cancel).await;
                    if since.elapsed() >= STABLE {
                        backoff.reset();
                    }
                    self.after_session(ended, &mut backoff)
                }
            };
            tokio::select! {
                () = cancel.cancelled() => break,
                () = sleep(pause) => {}
                _ = self.token_changed.changed() => info!("A token changed; dialling at once"),
            }
        }
    }

    /// A session that ends with the turn.
    async fn turns_session(&self, link: u64, reader: Reader, writer: Writer, cancel: &CancellationToken) -> Ended {
        let (cancel, mut turn) = (cancel.child_token(), self.turn.clone());
        let over = async {
            turn.ends().await;
            cancel.cancel();
            std::future::pending().await
        };
        tokio::select! {
            ended = self.session(link, reader, writer, &cancel) => ended,
            never = over => never,
        }
    }

    async fn dial(&self, cancel: &CancellationToken) -> Option<Result<(Reader, Writer), Failure>> {
        let attempt = async {
            let token = self.token().await.map_err(Failure::Token)?;
            let target = Target {
                url: self.url.clone(),
                placement: self.placement.clone(),
                token,
                identity: self.identity().await.map_err(Failure::Token)?,
                ca_file: self.ca_file.clone(),
                server_name: self.server_name.clone(),
                proxy: self.proxy.clone(),
            };
            dial::connect(&target).await.map_err(Failure::Dial)
        };
        tokio::select! {
            () = cancel.cancelled() => None,
            outcome = attempt => Some(outcome),
        }
    }

    /// The token, read anew for each dial.
    async fn token(&self) -> Result<SecretString, String> {
        let path = self.token_file.display();
        let text = tokio::fs::read_to_string(&self.token_file).await.map_err(|error| {
            format!("control_plane.token_file {path} cannot be read: {error}; put the token there that `lakeshore clusters enroll` printed")
        })?;
        let token = text.trim();
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(format!("control_plane.token_file {path} holds no token; put the token there that `lakeshore clusters enroll` printed"));
        }
        Ok(SecretString::from(token.to_owned()))
    }

    /// The proof of who this daemon is, where one is configured.
    async fn identity(&self) -> Result<Option<SecretString>, String> {
        match &self.identity_file {
            Some(path) => identity::read(path, Timestamp::now()).await.map(Some),
            None => Ok(None),
        }
    }

    fn after_failure(&self, failure: Failure, backoff: &mut Backoff) -> Duration {
        let (why, terminal, asked) = match &failure {
            Failure::Token(why) => (why.clone(), false, None),
            Failure::Dial(error) => (Chain(error).to_string(), error.is_terminal(), error.retry_after()),
        };
        // On top of what was asked for: many daemons are told the same, and must not all come back at once.
        let pause = if terminal { TERMINAL_PAUSE } else { asked.unwrap_or_default().min(MAX_PAUSE) + backoff.next(random()) };
        self.not_connected(why, pause);
        pause
    }

    fn after_session(&self, ended: Ended, backoff: &mut Backoff) -> Duration {
        let (why, pause) = match ended {
            // In order to open it anew, or for good.
            Ended::Closed => {
                self.health.fail(Condition::ControlPlane, "the daemon closed the session");
                return Duration::ZERO;
            }
            Ended::Broke(why) => (why, backoff.next(random())),
            Ended::Told(close) => {
                let own = match close.code {
                    code if code.is_terminal() => TERMINAL_PAUSE,
                    CloseCode::Displaced => DISPLACED_PAUSE,
                    _ => backoff.next(random()),
                };
                let pause = close.retry_after_ms.map_or(own, |ms| Duration::from_millis(ms).min(MAX_PAUSE));
                let message: String = close.message.chars().take(500).collect();
                (format!("the control plane closed the session: {message}"), pause)
            }
        };
        self.not_connected(why, pause);
        pause
    }

    /// The same reason is loud once: an hour without a network is a handful of lines.
    fn not_connected(&self, why: String, pause: Duration) {
        let retry_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        if self.health.fail(Condition::ControlPlane, why.clone()) {
            warn!(error = why, retry_in_ms, url = %self.url, "Not connected to the control plane");
        } else {
            debug!(error = why, retry_in_ms, "Still not connected to the control plane");
        }
    }

    async fn session(&self, link: u64, reader: Reader, writer: Writer, cancel: &CancellationToken) -> Ended {
        let (control, control_queue) = mpsc::channel(CONTROL_QUEUE);
        let (logs, log_queue) = mpsc::channel(LOG_QUEUE);
        let close = cancel.child_token();
        let sender = Sender { link, control, logs, close: close.clone() };
        info!(link, url = %self.url, "Connected to the control plane");
        self.slot.set(Some(sender.clone()));
        if self.events.send(Event::LinkUp { link }).await.is_err() {
            return Ended::Closed;
        }
        let mut writing = tokio::spawn(write(writer, control_queue, log_queue, close.clone()));
        let ended = tokio::select! {
            ended = self.read(link, reader, &sender) => ended,
            broke = &mut writing => match broke {
                Ok(Some(error)) => Ended::Broke(Chain(&error).to_string()),
                Ok(None) | Err(_) => Ended::Closed,
            },
        };
        self.slot.set(None);
        close.cancel();
        if !writing.is_finished() {
            let _ = timeout(GOODBYE, &mut writing).await;
            writing.abort();
        }
        let _ = self.events.send(Event::LinkDown { link }).await; // the loop is gone only when the process ends
        ended
    }

    async fn read(&self, link: u64, mut reader: Reader, sender: &Sender) -> Ended {
        let start = Instant::now();
        let mut session = DaemonSession::new(Duration::ZERO);
        loop {
            let until = match session.due(start.elapsed()) {
                Err(violation) => return violation.into(),
                Ok(Due::Beat) => {
                    sender.send(ToControlPlane::Heartbeat {});
                    continue;
                }
                Ok(Due::Wait(until)) => until,
            };
            let frame = tokio::select! {
                () = sleep_until(start + until) => continue,
                frame = reader.next() => frame,
            };
            let heard = match frame {
                Err(error) => return Ended::Broke(Chain(&error).to_string()),
                Ok(frame) => session.heard(frame, start.elapsed()),
            };
            let event = match heard {
                Err(violation) => return violation.into(),
                Ok(FromControlPlane::Nothing) => continue,
                Ok(FromControlPlane::Unknown(kind)) => {
                    warn!(link, message_type = kind, "Passed over a message of an unknown type");
                    continue;
                }
                Ok(FromControlPlane::Close(close)) => return Ended::Told(close),
                Ok(FromControlPlane::Message(message)) => Event::Message { link, message },
                Ok(FromControlPlane::Dispatch(envelope, body)) => Event::Offered { link, envelope, body },
            };
            if self.events.send(event).await.is_err() {
                return Ended::Closed;
            }
        }
    }
}

/// Why there is no link.
enum Failure {
    Token(String),
    Dial(DialError),
}

/// Writes until closed; control messages go first, so that logs never delay a report. Returns what broke.
async fn write(
    mut writer: Writer,
    mut control: mpsc::Receiver<ToControlPlane>,
    mut logs: mpsc::Receiver<LogMessage>,
    close: CancellationToken,
) -> Option<LinkError> {
    loop {
        let outcome = tokio::select! {
            biased;
            Some(message) = control.recv() => write_text(&mut writer, &message).await,
            () = close.cancelled() => break,
            Some(message) = logs.recv() => match message {
                LogMessage::End(message) => write_text(&mut writer, &message).await,
                LogMessage::Chunk(chunk, bytes) => write_chunk(&mut writer, chunk, bytes).await,
            },
        };
        if let Err(error) = outcome {
            return Some(error);
        }
    }
    let goodbye = async {
        while let Ok(message) = control.try_recv() {
            write_text(&mut writer, &message).await?;
        }
        writer.close("the daemon goes away").await
    };
    let _ = timeout(GOODBYE, goodbye).await; // out of politeness: whether it arrives changes nothing
    None
}

async fn write_text(writer: &mut Writer, message: &ToControlPlane) -> Result<(), LinkError> {
    match wire::encode_text(message) {
        Ok(text) => writer.text(text).await,
        Err(error) => {
            warn!(error = %Chain(&error), "A message is too long to be sent");
            Ok(())
        }
    }
}

async fn write_chunk(writer: &mut Writer, chunk: LogChunk, bytes: Bytes) -> Result<(), LinkError> {
    match Binary::Log(chunk, bytes).encode() {
        Ok(frame) => writer.binary(frame).await,
        Err(error) => {
            warn!(error = %Chain(&error), "A log chunk is too long to be sent");
            Ok(())
        }
    }
}

/// A uniform draw for the backoff's jitter. Without randomness the pauses are merely not spread out.
fn random() -> u64 {
    getrandom::u64().unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
