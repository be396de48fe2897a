//! Moves an instance's log from the control plane into the follower's channel, and survives every break on the way.
//!
//! The position is a byte offset. After a break (the server restarts, a proxy cuts the stream) the log is opened again at the first
//! byte that did not arrive, so nothing is lost and nothing comes twice.

use reqwest::Response;
use tokio::sync::{mpsc, watch};

use super::backoff::Backoff;
use super::client::Client;
use super::failure::Failure;
use super::follow::{Event, Source};

/// Says where the body of a log begins.
const OFFSET_HEADER: &str = "x-nymph-log-offset";

/// The follower has gone; there is nobody to move bytes for.
struct Gone;

/// Which log, and from where.
#[derive(Clone, Debug)]
pub(super) struct LogPump {
    pub(super) client: Client,
    /// Path of the log.
    pub(super) path: Vec<String>,
    /// The first byte that is wanted.
    pub(super) offset: u64,
    /// Whether to stay until the log is complete, or to take what is there now.
    pub(super) follow: bool,
}

impl LogPump {
    /// Runs until the log is complete, or trying on makes no sense. `ended` says whether the instance is known to have ended.
    ///
    /// A stream that ends in good order is not proof of a complete log: a server that shuts down ends its streams so, too. The log
    /// is complete when a stream that was opened after the instance's end brings nothing new.
    pub(super) async fn run(mut self, mut ended: watch::Receiver<bool>, events: mpsc::Sender<Event>) {
        let (mut backoff, mut broken) = (Backoff::default(), false);
        loop {
            let (from, was_over) = (self.offset, *ended.borrow());
            let pass = self.pass(&mut broken, &events).await;
            let Ok(pass) = pass else { return };
            if self.offset > from {
                backoff.reset();
            }
            let sent = match pass {
                Ok(()) if !self.follow || (was_over && self.offset == from) => {
                    let _ = events.send(Event::LogDone).await; // if nobody listens, nobody waits for it
                    return;
                }
                Ok(()) if was_over => continue,
                Ok(()) => Ok(()),
                Err(failure) if failure.may_pass() => {
                    broken = true;
                    events.send(Event::Broken { source: Source::Log, cause: failure.to_string() }).await
                }
                Err(failure) => {
                    let _ = events.send(Event::Failed(failure)).await;
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
            tokio::select! {
                () = backoff.wait() => {}
                // The end of the instance is the moment to look again; a closed channel is no news.
                Ok(()) = ended.changed() => {}
            }
        }
    }

    /// Opens the log and moves what comes. The inner result is how the stream ended.
    async fn pass(&mut self, broken: &mut bool, events: &mpsc::Sender<Event>) -> Result<Result<(), Failure>, Gone> {
        let mut response = match self.open().await {
            Ok(response) => response,
            Err(failure) => return Ok(Err(failure)),
        };
        if std::mem::take(broken) {
            events.send(Event::Restored(Source::Log)).await.map_err(|_| Gone)?;
        }
        loop {
            match response.chunk().await {
                Ok(None) => return Ok(Ok(())),
                Ok(Some(bytes)) => {
                    self.offset += bytes.len() as u64;
                    events.send(Event::Log(bytes)).await.map_err(|_| Gone)?;
                }
                Err(error) => return Ok(Err(self.client.cut_off(&error))),
            }
        }
    }

    async fn open(&self) -> Result<Response, Failure> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let query = [("follow", self.follow.to_string()), ("offset", self.offset.to_string())];
        let response = self.client.open(&path, &query).await?;
        let begins = response.headers().get(OFFSET_HEADER).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        match begins {
            Some(begins) if begins != self.offset => {
                Err(self.client.confused(format!("the log was asked for from byte {} and came from byte {begins}", self.offset)))
            }
            _ => Ok(response),
        }
    }
}
