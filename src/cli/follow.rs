//! Follows an instance: its log on stdout, how it fares on stderr.
//!
//! Two pumps feed one channel, one reads state, one reads the log; this loop alone decides what is shown and when it is over.

use std::io::IsTerminal;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::failure::Failure;
use super::instance::Instance;
use super::log_pump::LogPump;
use super::state_pump::StatePump;
use super::terminal::{Neutraliser, note};

/// Chunks that wait while stdout is slow; beyond, the server's stream is slowed. A chunk is at most what one read of a socket gives.
const CHANNEL: usize = 16;

/// What the pumps tell.
#[derive(Debug)]
pub(super) enum Event {
    /// The instance changed.
    Seen(Instance),
    /// More of the log.
    Log(Bytes),
    /// The log is complete.
    LogDone,
    /// A connection broke, or could not be made; its pump goes on trying.
    Broken {
        /// Whose.
        source: Source,
        /// Why.
        cause: String,
    },
    /// The connection is back.
    Restored(Source),
    /// Trying on makes no sense.
    Failed(Failure),
}

/// Which pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The one that reads the state.
    State,
    /// The one that reads the log.
    Log,
}

/// How long to wait for what may never come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Without a connection.
    pub(super) outage: Duration,
    /// Without a byte of the log, once the instance has ended. `None`: for ever.
    pub(super) rest_of_log: Option<Duration>,
}

/// How following ended.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// The last that was seen of the instance.
    pub(super) instance: Option<Instance>,
    /// How many bytes were shown.
    pub(super) bytes: u64,
    /// Whether the log is known to be incomplete here.
    pub(super) log_missing: bool,
}

/// Follows until the log is complete. With `state` the instance's progress is told.
///
/// # Errors
///
/// [`Failure`]: refused by the control plane, not reachable for longer than `patience`, stdout closed.
pub(super) async fn follow<W: AsyncWrite + Unpin>(
    state: Option<StatePump>,
    log: LogPump,
    patience: Patience,
    screen: &mut Screen<W>,
) -> Result<Ending, Failure> {
    let (sender, events) = mpsc::channel(CHANNEL);
    let (ended_sender, ended) = watch::channel(false);
    let mut pumps = tokio::task::JoinSet::new(); // stops them when this future is dropped
    if let Some(state) = state.clone() {
        pumps.spawn(state.run(ended_sender, sender.clone()));
    }
    pumps.spawn(log.run(ended, sender));
    let mut ending = attend(events, patience, screen).await?;
    if let (Some(state), Some(_)) = (state, &ending.instance) {
        // The log may have been completed after the state was last read, and what it lacks stands there. Only then: words.
        ending.instance = state.now().await.ok().filter(Instance::ended).or(ending.instance);
    }
    Ok(ending)
}

/// The loop itself: events in, lines out.
async fn attend<W: AsyncWrite + Unpin>(mut events: mpsc::Receiver<Event>, patience: Patience, screen: &mut Screen<W>) -> Result<Ending, Failure> {
    let mut ending = Ending::default();
    let mut broken: Vec<Source> = Vec::new();
    let (mut give_up, mut grace): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let deadline = give_up.into_iter().chain(grace).min();
        let event = tokio::select! {
            event = events.recv() => event,
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                if give_up.is_some_and(|at| at <= Instant::now()) {
                    return Err(outage(ending.instance.as_ref(), patience));
                }
                ending.log_missing = true;
                return Ok(ending);
            }
        };
        match event {
            Some(Event::Seen(instance)) => {
                if instance.ended() {
                    grace = patience.rest_of_log.map(|patience| Instant::now() + patience);
                } else {
                    screen.progress(&instance);
                }
                ending.instance = Some(instance);
            }
            Some(Event::Log(bytes)) => {
                screen.log(&bytes).await?;
                ending.bytes += bytes.len() as u64;
                grace = grace.and(patience.rest_of_log).map(|patience| Instant::now() + patience);
            }
            Some(Event::LogDone) => {
                screen.log_end().await?;
                return Ok(ending);
            }
            Some(Event::Broken { source, cause }) => {
                if broken.is_empty() {
                    screen.note(&format!("{cause}; trying again"));
                    give_up = Some(Instant::now() + patience.outage);
                }
                if !broken.contains(&source) {
                    broken.push(source);
                }
            }
            Some(Event::Restored(source)) => {
                broken.retain(|&other| other != source);
                if broken.is_empty() {
                    screen.note("connected again");
                    give_up = None;
                }
            }
            Some(Event::Failed(failure)) => return Err(failure),
            None => return Err(outage(ending.instance.as_ref(), patience)), // both pumps are gone without a word: they panicked
        }
    }
}

fn outage(instance: Option<&Instance>, patience: Patience) -> Failure {
    let (what, id) = instance.map_or(("the instance", "ID"), |instance| (instance.instance_id.as_str(), instance.instance_id.as_str()));
    Failure::UnknownOutcome {
        message: format!("no connection to the control plane for {} s; {what} may still be running", patience.outage.as_secs()),
        cure: format!("follow it again with `lakeshore logs -f {id}`"),
    }
}

/// Where log and notes go.
#[derive(Debug)]
pub(super) struct Screen<W> {
    out: W,
    /// Set when a terminal must not be driven by what the script printed.
    neutraliser: Option<Neutraliser>,
    /// Whether log and notes share a terminal, so that a note must begin on a line of its own.
    shared: bool,
    inside_line: bool,
    /// Whether progress is told, and what was told last.
    progress: Option<String>,
}

impl Screen<tokio::io::Stdout> {
    /// The process's own stdout and stderr. `raw`: bytes go to a terminal as they are.
    pub(super) fn new(raw: bool, progress: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        Self {
            out: tokio::io::stdout(),
            neutraliser: (terminal && !raw).then(Neutraliser::default),
            shared: terminal && std::io::stderr().is_terminal(),
            inside_line: false,
            progress: progress.then(String::new),
        }
    }
}

impl<W: AsyncWrite + Unpin> Screen<W> {
    async fn log(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.neutraliser {
            Some(neutraliser) => {
                let text = neutraliser.push(bytes);
                self.write(text.as_bytes()).await
            }
            None => self.write(bytes).await,
        }
    }

    async fn log_end(&mut self) -> Result<(), Failure> {
        let rest = self.neutraliser.as_mut().map(Neutraliser::end).unwrap_or_default();
        self.write(rest.as_bytes()).await
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let Some(last) = bytes.last() else { return Ok(()) };
        self.inside_line = *last != b'\n';
        self.out.write_all(bytes).await.map_err(Failure::Stdout)?;
        self.out.flush().await.map_err(Failure::Stdout)
    }

    fn progress(&mut self, instance: &Instance) {
        let news = instance.news();
        if self.progress.as_ref().is_some_and(|last| *last != news) {
            self.note(&instance.progress());
            self.progress = Some(news);
        }
    }

    /// Writes a line to stderr.
    pub(super) fn note(&mut self, text: &str) {
        if self.shared && std::mem::take(&mut self.inside_line) {
            note(&format!("\n{text}"));
        } else {
            note(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { outage: Duration::from_secs(600), rest_of_log: Some(Duration::from_secs(60)) };

    fn screen(neutral: bool) -> Screen<Vec<u8>> {
        Screen { out: Vec::new(), neutraliser: neutral.then(Neutraliser::default), shared: false, inside_line: false, progress: None }
    }

    fn stopped() -> Event {
        Event::Seen(Instance { instance_id: "lakeshore-0a1b2c3d".into(), state: "stopped".into(), exit_code: Some(3), ..Default::default() })
    }

    /// Plays `events`, then leaves the channel open, as pumps do that go on trying.
    async fn play(events: Vec<Event>, screen: &mut Screen<Vec<u8>>) -> Result<Ending, Failure> {
        let (sender, receiver) = mpsc::channel(events.len().max(1));
        for event in events {
            sender.send(event).await.expect("has room for all");
        }
        let ending = attend(receiver, PATIENCE, screen).await;
        drop(sender);
        ending
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_as_they_are_when_stdout_is_no_terminal() {
        let mut screen = screen(false);
        let events = vec![Event::Log(Bytes::from_static(b"\x1b[1m\xff\0")), Event::Log(Bytes::from_static(b"no newline")), stopped(), Event::LogDone];
        let ending = play(events, &mut screen).await.expect("ends");
        assert_eq!(screen.out, b"\x1b[1m\xff\0no newline");
        assert_eq!((ending.bytes, ending.log_missing), (16, false));
        assert_eq!(ending.instance.and_then(|instance| instance.exit_code), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_character_cut_at_the_end_of_the_log_is_shown() {
        let mut screen = screen(true);
        play(vec![Event::Log(Bytes::from_static(b"ok\xe6\x97")), Event::LogDone], &mut screen).await.expect("ends");
        assert_eq!(screen.out, b"ok\\xe6\\x97");
    }

    #[tokio::test(start_paused = true)]
    async fn the_rest_of_a_log_is_waited_for_and_then_said_to_be_missing() {
        let ending = play(vec![stopped(), Event::Log(Bytes::from_static(b"late"))], &mut screen(false)).await.expect("ends");
        assert!(ending.log_missing);
        assert_eq!(ending.bytes, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_outage_ends_in_an_unknown_outcome() {
        let broken = || Event::Broken { source: Source::State, cause: "refused".into() };
        let failure = play(vec![broken(), broken()], &mut screen(false)).await.expect_err("gives up");
        assert!(matches!(failure, Failure::UnknownOutcome { .. }), "{failure}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_that_passed_is_forgotten() {
        let broken = |source| Event::Broken { source, cause: "refused".into() };
        let events = vec![broken(Source::State), broken(Source::Log), Event::Restored(Source::Log), Event::Restored(Source::State), stopped()];
        let ending = play(events, &mut screen(false)).await.expect("the outage is over, only the log is missing");
        assert!(ending.log_missing);
    }
}
