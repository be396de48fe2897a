//! Watches an instance's state by long polls, into the follower's channel.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::backoff::Backoff;
use super::client::Client;
use super::failure::Failure;
use super::follow::{Event, Source};
use super::instance::Instance;
use crate::types::State;

/// While it starts, a new reason is shown within this many seconds.
const WHILE_STARTING_SECONDS: u32 = 2;
/// While it runs, so is a state such as `unknown`; the end is told by the poll at once.
const WHILE_RUNNING_SECONDS: u32 = 5;
/// Polls are at least this far apart, should they be answered at once.
const PACE: Duration = Duration::from_millis(250);

/// Which instance.
#[derive(Clone, Debug)]
pub(super) struct StatePump {
    pub(super) client: Client,
    /// Path of the instance.
    pub(super) path: Vec<String>,
}

impl StatePump {
    /// Runs until the instance has ended. `ended` is set only after the last [`Event::Seen`] is in the channel.
    pub(super) async fn run(self, ended: watch::Sender<bool>, events: mpsc::Sender<Event>) {
        let (mut backoff, mut broken, mut last) = (Backoff::default(), false, None);
        loop {
            let asked = Instant::now();
            let sent = match self.poll(last.as_ref()).await {
                Ok(seen) => {
                    backoff.reset();
                    let restored = if std::mem::take(&mut broken) { events.send(Event::Restored(Source::State)).await } else { Ok(()) };
                    let over = seen.ended();
                    let told = if last.as_ref() == Some(&seen) { Ok(()) } else { events.send(Event::Seen(seen.clone())).await };
                    if over {
                        ended.send_replace(true);
                        return;
                    }
                    last = Some(seen);
                    tokio::time::sleep_until(asked + PACE).await;
                    restored.and(told)
                }
                Err(failure) if failure.may_pass() => {
                    broken = true;
                    let sent = events.send(Event::Broken { source: Source::State, cause: failure.to_string() }).await;
                    backoff.wait().await;
                    sent
                }
                Err(failure) => {
                    let _ = events.send(Event::Failed(failure)).await; // if nobody listens, nobody needs to know
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Asks once, and waits for a change when there is something to compare with.
    async fn poll(&self, last: Option<&Instance>) -> Result<Instance, Failure> {
        let (state, seconds) = match last {
            None => return self.now().await,
            Some(last) if last.is(State::Starting) => (State::Running, WHILE_STARTING_SECONDS),
            Some(_) => (State::Stopped, WHILE_RUNNING_SECONDS),
        };
        self.ask(&[("wait", state.to_string()), ("timeoutSeconds", seconds.to_string())]).await
    }

    /// How it stands now.
    pub(super) async fn now(&self) -> Result<Instance, Failure> {
        self.ask(&[]).await
    }

    async fn ask(&self, query: &[(&str, String)]) -> Result<Instance, Failure> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let answer = self.client.get(&path, query).await?;
        Instance::read(&self.client, answer)
    }
}
