//! Which of several daemons of role `cluster` acts: the holder of a Lease.
//!
//! Two may overlap for a moment after a pause of a process or a cut, so that nothing rests on this alone: the control plane serves the newest
//! session only, names are derived, and deletes carry a UID. Time is monotonic: a Lease is taken over when it was seen unchanged
//! for its whole duration on our own clock, whatever its time stamps say.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::apply::{ApiServer, CallError};
use crate::error::Chain;
use crate::telemetry::{Condition, Health};
use crate::types::{KubeNamespace, ResourceName};

/// How often a Lease is read that another holds, and a renewal that failed is tried again.
const POLL: Duration = Duration::from_secs(2);

/// Whether this daemon may act; one of role `node` always may.
#[derive(Clone)]
pub(super) struct Turn(Option<watch::Receiver<bool>>);

impl Turn {
    pub(super) fn always() -> Self {
        Self(None)
    }

    /// Returns when the daemon may act.
    pub(super) async fn comes(&mut self) {
        self.until(true).await;
    }

    /// Returns when it may no longer.
    pub(super) async fn ends(&mut self) {
        self.until(false).await;
    }

    async fn until(&mut self, wanted: bool) {
        match &mut self.0 {
            None if wanted => {}
            None => std::future::pending().await,
            Some(held) => {
                if held.wait_for(|held| *held == wanted).await.is_err() {
                    std::future::pending::<()>().await; // the process ends
                }
            }
        }
    }
}

/// What to do with the Lease now.
#[derive(Debug, PartialEq)]
enum Step {
    Create(Box<Lease>),
    Replace(Box<Lease>),
    Wait,
}

/// Decides, without I/O.
#[derive(Debug)]
struct Election {
    /// This process.
    me: String,
    duration: Duration,
    /// The record as it was last seen, and since when it is so.
    seen: Option<(String, Duration)>,
}

impl Election {
    /// What to do about the Lease as it was just read. `wall` is for people only.
    fn step(&mut self, lease: Option<Lease>, now: Duration, wall: Timestamp) -> Step {
        let Some(lease) = lease else { return Step::Create(Box::new(self.taken(Lease::default(), wall))) };
        let version = lease.metadata.resource_version.clone().unwrap_or_default();
        let since = match &self.seen {
            Some((seen, since)) if *seen == version => *since,
            _ => now,
        };
        self.seen = Some((version, since));
        let holder = holder(&lease).unwrap_or_default();
        if holder.is_empty() || holder == self.me || now >= since + self.duration {
            return Step::Replace(Box::new(self.taken(lease, wall)));
        }
        Step::Wait
    }

    /// The Lease with us as its holder.
    fn taken(&self, lease: Lease, wall: Timestamp) -> Lease {
        let before = lease.spec.unwrap_or_default();
        let ours = before.holder_identity.as_deref() == Some(&self.me);
        let spec = LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: i32::try_from(self.duration.as_secs()).ok(),
            acquire_time: before.acquire_time.filter(|_| ours).or(Some(MicroTime(wall))),
            renew_time: Some(MicroTime(wall)),
            lease_transitions: Some(before.lease_transitions.unwrap_or(-1) + i32::from(!ours)),
            ..LeaseSpec::default()
        };
        Lease { metadata: lease.metadata, spec: Some(spec) }
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref()
}

/// Stands for the Lease.
pub(super) struct Candidate {
    pub(super) api: ApiServer,
    pub(super) namespace: KubeNamespace,
    pub(super) name: ResourceName,
    pub(super) duration: Duration,
    /// Names this process among the candidates.
    pub(super) me: String,
    pub(super) health: Health,
}

impl Candidate {
    /// Begins to stand, until `cancel`; then the Lease is given back. What comes of it shows in the turn.
    pub(super) fn stand(self, cancel: CancellationToken) -> (Turn, impl Future<Output = ()>) {
        let (held, turn) = watch::channel(false);
        (Turn(Some(turn)), self.run(held, cancel))
    }

    async fn run(self, held: watch::Sender<bool>, cancel: CancellationToken) {
        let start = Instant::now();
        let mut election = Election { me: self.me.clone(), duration: self.duration, seen: None };
        // Until when the last renewal counts, from the moment before it was sent: nobody takes over before.
        let mut until: Option<Duration> = None;
        let mut told = String::new();
        loop {
            let asked = start.elapsed();
            // A call that hangs must not outlast what it is for.
            let outcome = tokio::select! {
                () = cancel.cancelled() => break,
                outcome = timeout(self.duration / 3, self.round(&mut election, asked)) => outcome,
            };
            let pause = match outcome {
                Ok(Ok(None)) => {
                    until = Some(asked + self.duration - self.duration / 6);
                    if held.send_if_modified(|held| !std::mem::replace(held, true)) {
                        info!(lease = %self.name, holder = self.me, "This daemon holds the Lease: it dials");
                    }
                    told.clear();
                    self.duration / 3
                }
                Ok(Ok(Some(other))) => {
                    until = None;
                    // A stand-by does its work by waiting.
                    self.health.hold(Condition::ControlPlane);
                    if told != other {
                        info!(lease = %self.name, holder = other, "Another daemon holds the Lease: standing by");
                        told = other;
                    }
                    POLL.min(self.duration / 3)
                }
                Ok(Err(error)) => self.failed(&Chain(&error).to_string(), &mut told),
                Err(_) => self.failed("the API server did not answer in time", &mut told),
            };
            if until.is_none_or(|until| start.elapsed() >= until) && held.send_if_modified(|held| std::mem::replace(held, false)) {
                warn!(lease = %self.name, "This daemon no longer holds the Lease: it closes its session");
            }
            tokio::select! {
                () = cancel.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        if held.send_replace(false) {
            self.release().await;
        }
    }

    fn failed(&self, why: &str, told: &mut String) -> Duration {
        if told == why {
            debug!(lease = %self.name, error = why, "Still cannot read or renew the Lease");
        } else {
            warn!(lease = %self.name, error = why, "Cannot read or renew the Lease");
            self.health.fail(Condition::ControlPlane, format!("the Lease {}: {why}", self.name));
            why.clone_into(told);
        }
        POLL.min(self.duration / 6)
    }

    /// Reads, and creates, takes or renews. Who holds it otherwise.
    async fn round(&self, election: &mut Election, now: Duration) -> Result<Option<String>, CallError> {
        let read = self.api.read_lease(&self.namespace, &self.name).await?;
        let other = read.as_ref().and_then(holder).unwrap_or("another daemon").to_owned();
        let written = match election.step(read, now, Timestamp::now()) {
            Step::Wait => return Ok(Some(other)),
            Step::Create(mut lease) => {
                let name = Some(self.name.to_string());
                lease.metadata = ObjectMeta { name, namespace: Some(self.namespace.to_string()), ..ObjectMeta::default() };
                self.api.create_lease(&self.namespace, &self.name, &lease).await?
            }
            Step::Replace(lease) => self.api.replace_lease(&self.namespace, &self.name, &lease).await?,
        };
        Ok(if written.is_some() { None } else { Some(other) })
    }

    /// Gives it back, so that the next one need not wait.
    async fn release(&self) {
        let give_back = async {
            let Some(mut lease) = self.api.read_lease(&self.namespace, &self.name).await?.filter(|lease| holder(lease) == Some(&self.me)) else {
                return Ok(());
            };
            if let Some(spec) = &mut lease.spec {
                spec.holder_identity = Some(String::new());
            }
            self.api.replace_lease(&self.namespace, &self.name, &lease).await.map(drop)
        };
        match timeout(POLL, give_back).await {
            Ok(Ok(())) => info!(lease = %self.name, "The Lease is given back"),
            Ok(Err(error)) => warn!(lease = %self.name, error = %Chain(&error), "The Lease could not be given back; it runs out by itself"),
            Err(_) => warn!(lease = %self.name, "The Lease could not be given back in time; it runs out by itself"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn election(me: &str) -> Election {
        Election { me: me.into(), duration: s(30), seen: None }
    }

    fn lease(version: &str, holder: &str) -> Lease {
        let spec = LeaseSpec { holder_identity: Some(holder.into()), lease_transitions: Some(4), ..LeaseSpec::default() };
        Lease { metadata: ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() }, spec: Some(spec) }
    }

    fn step(election: &mut Election, lease: Option<Lease>, now: u64) -> Step {
        election.step(lease, s(now), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn one_that_is_not_there_is_created_and_one_that_is_free_or_ours_is_written() {
        let mut a = election("a");
        let Step::Create(made) = step(&mut a, None, 0) else { panic!("it is not there") };
        let spec = made.spec.expect("a spec");
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_duration_seconds, spec.lease_transitions), (Some("a"), Some(30), Some(0)));
        for holder in ["", "a"] {
            let Step::Replace(taken) = step(&mut a, Some(lease("7", holder)), 0) else { panic!("it is free or ours") };
            assert_eq!(taken.metadata.resource_version.as_deref(), Some("7"), "another's write in between is a conflict");
            assert_eq!(taken.spec.expect("a spec").lease_transitions, Some(if holder.is_empty() { 5 } else { 4 }));
        }
    }

    #[test]
    fn anothers_is_taken_only_after_it_was_unchanged_for_its_whole_duration_on_our_clock() {
        let mut a = election("a");
        for (version, now, taken) in [("1", 0, false), ("1", 29, false), ("2", 30, false), ("2", 59, false), ("2", 60, true)] {
            let next = step(&mut a, Some(lease(version, "b")), now);
            assert_eq!(matches!(next, Step::Replace(_)), taken, "version {version} at {now}: {next:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_has_its_turn_always_and_a_candidate_with_the_lease() {
        let mut always = Turn::always();
        always.comes().await;
        assert!(timeout(s(100), always.ends()).await.is_err());
        let (held, turn) = watch::channel(false);
        let mut turn = Turn(Some(turn));
        assert!(timeout(s(100), turn.comes()).await.is_err());
        held.send_replace(true);
        turn.comes().await;
        held.send_replace(false);
        turn.ends().await;
    }
}
