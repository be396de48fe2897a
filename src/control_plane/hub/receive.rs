//! Turns what a daemon says into transitions of the store, and acknowledges after the commit.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::conversation::End;
use super::ingest::Intake;
use super::outbox::Outgoing;
use super::session::{Answer, Found, Session};
use super::{Hub, unless_cancelled};
use crate::control_plane::placement;
use crate::control_plane::store::{Acceptance, Accepted, Instance, Phase, Refusal, Refused, Reported};
use crate::types::{Attempt, DispatchId, KubeNamespace, Reason, State};
use crate::wire::{Ack, FromDaemon, NodeFacts, Rejection, Report, ToControlPlane, ToDaemon};

/// Longest stored message of an observation or rejection, in bytes: a person reads it.
const MAX_MESSAGE: usize = 4 << 10;

/// What handles a session's messages.
pub(crate) struct Receiver {
    pub(crate) hub: Arc<Hub>,
    pub(crate) session: Arc<Session>,
    pub(crate) intake: mpsc::Sender<Intake>,
}

impl Receiver {
    /// What is due at once: what is queued, deletions, and logs to go on with.
    ///
    /// # Errors
    /// [`End`] when the session is over.
    pub(crate) async fn begin(&self, logs: Vec<Instance>) -> Result<(), End> {
        self.session.look_at_queue();
        // A deletion that was asked for while the session opened is in neither `welcome` nor the hub's hands.
        for instance in self.hub.store.unconfirmed_deletions(self.session.place().clone()).await? {
            self.say(ToDaemon::Cancel { instance }).await;
        }
        for row in logs {
            self.hand_over(Intake::Follow(Box::new(row))).await?;
        }
        Ok(())
    }

    pub(super) async fn say(&self, message: ToDaemon) {
        self.session.say(Outgoing::Message(message)).await;
    }

    /// Passes something to the ingest, which may be busy with the disk.
    async fn hand_over(&self, item: Intake) -> Result<(), End> {
        unless_cancelled(self.session.closing(), self.intake.send(item)).await.and_then(Result::ok).ok_or(End::Gone)
    }

    /// Turns what a daemon says into a transition of the store, and acknowledges it after the commit.
    ///
    /// # Errors
    /// [`End`] when the session is over.
    pub(crate) async fn handle(&self, said: FromDaemon) -> Result<(), End> {
        self.session.was_heard(self.hub.clock.wall());
        match said {
            FromDaemon::Nothing => Ok(()),
            FromDaemon::Hello(_) => Err(End::Protocol("hello comes once".into())),
            FromDaemon::Unknown(kind) => {
                tracing::warn!(node = %self.session.place().placement, message_type = kind, "Passed over a message of an unknown type");
                Ok(())
            }
            FromDaemon::Log(chunk, bytes) => self.hand_over(Intake::Chunk(chunk, bytes)).await,
            FromDaemon::Message(message) => self.message(*message).await,
        }
    }

    async fn message(&self, message: ToControlPlane) -> Result<(), End> {
        match message {
            ToControlPlane::Hello(_) | ToControlPlane::Heartbeat {} => {}
            ToControlPlane::Keys(keys) => self.hub.session_told_keys(&self.session, &keys).await?,
            ToControlPlane::Accepted { dispatch_id, attempt, namespace } => {
                let Ok(kube_namespace) = namespace.parse::<KubeNamespace>() else {
                    return Err(End::Protocol("accepted names no valid namespace".into()));
                };
                self.accepted(Acceptance { dispatch_id, attempt, kube_namespace, now: self.hub.clock.wall() }).await?;
            }
            ToControlPlane::Rejected { dispatch_id, attempt, mut rejection } => {
                shorten(&mut rejection.message);
                shorten(&mut rejection.rule);
                self.rejected(dispatch_id, attempt, rejection).await?;
            }
            ToControlPlane::Report(mut report) => {
                shorten(&mut report.observation.message);
                self.reported(report).await?;
            }
            ToControlPlane::LogEnd { stream, reason, offset } => self.hand_over(Intake::End { stream, reason, offset }).await?,
            ToControlPlane::CheckResult { request, items } => self.session.answer(request, Answer::Check(items)),
            ToControlPlane::LookupResult { request, found, foreign } => {
                let found = match (foreign, found) {
                    (true, _) => Found::Foreign,
                    (false, true) => Found::Ours,
                    (false, false) => Found::Nothing,
                };
                self.session.answer(request, Answer::Lookup(found));
            }
            ToControlPlane::NodeFacts(facts) => self.node_facts(facts).await?,
            ToControlPlane::NodeGone { node, uid, why } => self.node_gone(node, uid, why).await?,
            ToControlPlane::NodeBack { node, uid } => self.node_back(node, uid).await?,
        }
        Ok(())
    }

    async fn node_facts(&self, facts: NodeFacts) -> Result<(), End> {
        if !self.hub.store.note_facts(self.session.fence().clone(), facts.clone()).await? {
            self.session.abandon();
        }
        self.session.now_says(facts);
        Ok(())
    }

    /// Someone else's dispatch, or one that never was: dropped, and told in the log.
    fn foreign(&self, dispatch_id: &DispatchId, what: &'static str) {
        let node = &self.session.place().placement;
        tracing::warn!(node = %node, dispatch = %dispatch_id, message_type = what, verdict = "foreign", "A daemon spoke of what is not placed there");
    }

    async fn accepted(&self, acceptance: Acceptance) -> Result<(), End> {
        let (dispatch_id, attempt) = (acceptance.dispatch_id.clone(), acceptance.attempt);
        match self.hub.store.accept(self.session.fence().clone(), acceptance).await? {
            Accepted::Committed => {
                self.hub.note_accepted(&dispatch_id);
                self.say(ToDaemon::AcceptedAck { dispatch_id: dispatch_id.clone(), attempt }).await;
                self.hub.changes.touch(&dispatch_id);
            }
            Accepted::Unwanted { instance } => self.say(ToDaemon::Cancel { instance }).await,
            Accepted::Earlier => tracing::warn!(dispatch = %dispatch_id, "Accepted in an earlier session already: not acknowledged again"),
            Accepted::Stale => self.session.abandon(),
            Accepted::Foreign => self.foreign(&dispatch_id, "accepted"),
        }
        Ok(())
    }

    async fn rejected(&self, dispatch_id: DispatchId, attempt: Attempt, rejection: Rejection) -> Result<(), End> {
        let (hub, session) = (&self.hub, &self.session);
        let (code, rule) = (rejection.code, rejection.rule.clone());
        let (elsewhere, _) = placement::eligible(&hub.facts(&session.place().cluster));
        let refusal = Refusal { dispatch_id: dispatch_id.clone(), attempt, rejection, elsewhere, now: hub.clock.wall() };
        match hub.store.refuse(session.fence().clone(), refusal).await? {
            Refused::Ended => {
                tracing::info!(node = %session.place().placement, dispatch = %dispatch_id, code = %code, rule, "Dispatch rejected");
                hub.forget_accepted(&dispatch_id);
                session.look_at_queue(); // there is room for one more
                hub.changes.touch(&dispatch_id);
            }
            Refused::NextAttempt(place) => {
                let (node, next) = (&session.place().placement, &place.placement);
                tracing::info!(node = %node, dispatch = %dispatch_id, code = %code, next = %next, "Dispatch not taken; the next attempt is queued");
                match hub.session(&place) {
                    Some(other) if other.place() != session.place() => other.offer(dispatch_id),
                    _ => session.say(Outgoing::Offer(dispatch_id)).await,
                }
            }
            Refused::Ignored => {}
            Refused::Stale => session.abandon(),
            Refused::Foreign => self.foreign(&dispatch_id, "rejected"),
        }
        Ok(())
    }

    async fn reported(&self, report: Box<Report>) -> Result<(), End> {
        let (hub, session) = (&self.hub, &self.session);
        let (dispatch_id, seq, runs) = (report.dispatch_id.clone(), report.seq, report.observation.state != State::Stopped);
        if report.epoch != session.epoch() {
            let node = &session.place().placement;
            tracing::info!(node = %node, dispatch = %dispatch_id, seq, epoch = report.epoch, "A report of an older session is ignored");
            return Ok(());
        }
        match hub.store.report(session.fence().clone(), report).await? {
            Reported::Stored(row) => {
                hub.forget_accepted(&dispatch_id);
                self.say(ToDaemon::Ack(Ack { instance: row.name.clone(), seq: row.report_seq })).await;
                hub.changes.touch(&dispatch_id);
                tracing::debug!(dispatch = %dispatch_id, instance = %row.name, state = %row.seen.state, reason = %row.seen.reason, seq, "Report stored");
                if row.phase == Phase::Ended {
                    session.look_at_queue(); // there is room for one more
                }
                if runs && row.phase == Phase::Ended && row.seen.reason == Reason::NodeLost {
                    // Its node was gone, and came back: what was told to have ended must not run on.
                    self.say(ToDaemon::Cancel { instance: row.name.clone() }).await;
                }
                if row.place == *session.place() && row.log.started && !row.log_done() {
                    self.hand_over(Intake::Follow(row)).await?;
                }
            }
            Reported::Stale => session.abandon(),
            Reported::Foreign => self.foreign(&dispatch_id, "report"),
            Reported::Leap => return Err(End::Protocol(format!("the sequence {seq} of a report leaps: a daemon counts by one"))),
        }
        Ok(())
    }
}

/// Cuts a text that a person will read, at a character's border.
fn shorten(text: &mut String) {
    if text.len() > MAX_MESSAGE {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE));
        text.push('…');
    }
}
