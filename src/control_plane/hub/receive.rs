//! Turns what a daemon says into transitions of the store, and acknowledges after the commit.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::{self, Message};

use super::conversation::End;
use super::ingest::Intake;
use super::outbox::Outgoing;
use super::session::{Answer, Found, Session};
use super::{Hub, unless_cancelled};
use crate::control_plane::placement;
use crate::control_plane::store::{Acceptance, Accepted, Instance, Phase, Refusal, Refused, Reported};
use crate::error::Chain;
use crate::types::{Attempt, DispatchId, KubeNamespace};
use crate::wire::{self, Ack, Beat, Binary, HEARTBEAT_INTERVAL, Heartbeat, MAX_LOG_CHUNK, MAX_UID, Rejection, Report, ToControlPlane, ToDaemon};

/// Longest stored message of an observation or rejection, in bytes: a person reads it.
const MAX_MESSAGE: usize = 4 << 10;

/// Reads and handles until the peer is gone or wrong.
pub(super) async fn run<S>(hub: &Hub, session: &Session, logs: Vec<Instance>, stream: &mut S, intake: &mpsc::Sender<Intake>) -> End
where
    S: Stream<Item = Result<Message, tungstenite::Error>> + Unpin,
{
    for row in logs {
        if hand_over(session, intake, Intake::Follow(Box::new(row))).await.is_none() {
            return End::Gone;
        }
    }
    let started = Instant::now();
    let mut beat = Heartbeat::new(HEARTBEAT_INTERVAL, Duration::ZERO);
    loop {
        let until = match beat.poll(started.elapsed()) {
            Beat::Send => {
                session.say(Outgoing::Message(ToDaemon::Heartbeat {})).await;
                continue;
            }
            Beat::Dead => {
                tracing::warn!(node = %session.place().placement, "A daemon was silent for too long");
                return End::Gone;
            }
            Beat::Wait(until) => until,
        };
        let message = tokio::select! {
            biased;
            () = session.closing().cancelled() => return End::Gone,
            message = stream.next() => message,
            () = sleep_until(started + until) => continue,
        };
        let handled = match message {
            Some(Ok(Message::Text(text))) => match wire::decode_text(text.as_str()) {
                Ok(message) => handle(hub, session, intake, message).await,
                Err(error) => Err(End::Protocol(Chain(&error).to_string())),
            },
            Some(Ok(Message::Binary(frame))) => log_chunk(session, intake, frame).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => return End::Gone,
            // A process that was killed or a line that was cut says no goodbye: that breaks no rule.
            Some(Err(tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => return End::Gone,
            Some(Err(error @ (tungstenite::Error::Capacity(_) | tungstenite::Error::Protocol(_) | tungstenite::Error::Utf8(_)))) => {
                return End::Protocol(error.to_string());
            }
            Some(Err(_)) => return End::Gone,
        };
        if let Err(end) = handled {
            return end;
        }
        // Read after handling: what waited in our own hands is not the peer's silence.
        beat.heard(started.elapsed());
        session.was_heard();
    }
}

/// Passes something to the ingest; `None` when the session closes meanwhile.
async fn hand_over(session: &Session, intake: &mpsc::Sender<Intake>, item: Intake) -> Option<()> {
    unless_cancelled(session.closing(), intake.send(item)).await?.ok()
}

async fn log_chunk(session: &Session, intake: &mpsc::Sender<Intake>, frame: Bytes) -> Result<(), End> {
    match Binary::decode(frame) {
        Ok(Binary::Log(chunk, bytes)) if bytes.len() <= MAX_LOG_CHUNK => {
            hand_over(session, intake, Intake::Chunk(chunk, bytes)).await.ok_or(End::Gone)
        }
        Ok(Binary::Log(_, bytes)) => Err(End::Protocol(format!("a log chunk of {} bytes is over the limit of {MAX_LOG_CHUNK}", bytes.len()))),
        Ok(Binary::Dispatch(..)) => Err(End::Protocol("a daemon sends no dispatch".into())),
        Err(error) => Err(End::Protocol(Chain(&error).to_string())),
    }
}

async fn handle(hub: &Hub, session: &Session, intake: &mpsc::Sender<Intake>, message: ToControlPlane) -> Result<(), End> {
    match message {
        ToControlPlane::Hello(_) => return Err(End::Protocol("hello comes once".into())),
        ToControlPlane::Heartbeat {} => {}
        ToControlPlane::Accepted { dispatch_id, attempt, namespace } => {
            let Ok(kube_namespace) = namespace.parse::<KubeNamespace>() else {
                return Err(End::Protocol("accepted names no valid namespace".into()));
            };
            let acceptance = Acceptance { dispatch_id, attempt, kube_namespace, now: Timestamp::now() };
            accepted(hub, session, acceptance).await?;
        }
        ToControlPlane::Rejected { dispatch_id, attempt, mut rejection } => {
            shorten(&mut rejection.message);
            shorten(&mut rejection.rule);
            rejected(hub, session, dispatch_id, attempt, rejection).await?;
        }
        ToControlPlane::Report(report) if report.observation.uid.as_ref().is_some_and(|uid| uid.len() > MAX_UID) => {
            return Err(End::Protocol(format!("the UID in a report is over the limit of {MAX_UID} bytes")));
        }
        ToControlPlane::Report(mut report) => {
            shorten(&mut report.observation.message);
            reported(hub, session, intake, report).await?;
        }
        ToControlPlane::LogEnd { stream, reason, offset } => {
            hand_over(session, intake, Intake::End { stream, reason, offset }).await.ok_or(End::Gone)?;
        }
        ToControlPlane::CheckResult { request, items } => session.answer(request, Answer::Check(items)),
        ToControlPlane::LookupResult { request, found, foreign } => {
            let found = match (foreign, found) {
                (true, _) => Found::Foreign,
                (false, true) => Found::Ours,
                (false, false) => Found::Nothing,
            };
            session.answer(request, Answer::Lookup(found));
        }
        ToControlPlane::NodeFacts(facts) if session.place().placement.node() == Some(&facts.name) => session.now_says(facts),
        ToControlPlane::Keys(_) => {}
        ToControlPlane::NodeFacts(_) => return Err(End::Protocol("node facts of another node".into())),
    }
    Ok(())
}

/// Someone else's dispatch, or one that never was: dropped, and told in the log.
fn foreign(session: &Session, dispatch_id: &DispatchId, what: &'static str) {
    tracing::warn!(node = %session.place().placement, dispatch = %dispatch_id, message_type = what, verdict = "foreign", "A daemon spoke of what is not placed there");
}

async fn accepted(hub: &Hub, session: &Session, acceptance: Acceptance) -> Result<(), End> {
    let (dispatch_id, attempt) = (acceptance.dispatch_id.clone(), acceptance.attempt);
    match hub.store.accept(session.fence().clone(), acceptance).await? {
        Accepted::Committed => {
            session.say(Outgoing::Message(ToDaemon::AcceptedAck { dispatch_id: dispatch_id.clone(), attempt })).await;
            hub.changes.touch(&dispatch_id);
        }
        Accepted::Unwanted { instance } => session.say(Outgoing::Message(ToDaemon::Cancel { instance })).await,
        Accepted::Earlier => tracing::warn!(dispatch = %dispatch_id, "Accepted in an earlier session already: not acknowledged again"),
        Accepted::Stale => session.abandon(),
        Accepted::Foreign => foreign(session, &dispatch_id, "accepted"),
    }
    Ok(())
}

async fn rejected(hub: &Hub, session: &Session, dispatch_id: DispatchId, attempt: Attempt, rejection: Rejection) -> Result<(), End> {
    let (code, rule) = (rejection.code, rejection.rule.clone());
    let (elsewhere, _) = placement::eligible(&hub.facts(&session.place().cluster));
    let refusal = Refusal { dispatch_id: dispatch_id.clone(), attempt, rejection, elsewhere, now: Timestamp::now() };
    match hub.store.refuse(session.fence().clone(), refusal).await? {
        Refused::Ended => {
            tracing::info!(node = %session.place().placement, dispatch = %dispatch_id, code = %code, rule, "Dispatch rejected");
            session.look_at_queue(); // there is room for one more
            hub.changes.touch(&dispatch_id);
        }
        Refused::NextAttempt(place) => {
            tracing::info!(node = %session.place().placement, dispatch = %dispatch_id, code = %code, next = %place.placement, "Dispatch not taken; the next attempt is queued");
            match hub.session(&place) {
                Some(other) if other.place() != session.place() => other.offer(dispatch_id),
                _ => session.say(Outgoing::Offer(dispatch_id)).await,
            }
        }
        Refused::Ignored => {}
        Refused::Stale => session.abandon(),
        Refused::Foreign => foreign(session, &dispatch_id, "rejected"),
    }
    Ok(())
}

async fn reported(hub: &Hub, session: &Session, intake: &mpsc::Sender<Intake>, report: Box<Report>) -> Result<(), End> {
    let (dispatch_id, seq) = (report.dispatch_id.clone(), report.seq);
    if report.epoch != session.epoch() {
        tracing::info!(node = %session.place().placement, dispatch = %dispatch_id, seq, epoch = report.epoch, "A report of an older session is ignored");
        return Ok(());
    }
    match hub.store.report(session.fence().clone(), report).await? {
        Reported::Stored(row) => {
            session.say(Outgoing::Message(ToDaemon::Ack(Ack { instance: row.name.clone(), seq: row.report_seq }))).await;
            hub.changes.touch(&dispatch_id);
            tracing::debug!(dispatch = %dispatch_id, instance = %row.name, state = %row.seen.state, reason = %row.seen.reason, seq, "Report stored");
            if row.phase == Phase::Ended {
                session.look_at_queue(); // there is room for one more
            }
            if row.log.started && !row.log_done() {
                hand_over(session, intake, Intake::Follow(row)).await.ok_or(End::Gone)?;
            }
        }
        Reported::Stale => session.abandon(),
        Reported::Foreign => foreign(session, &dispatch_id, "report"),
        Reported::Leap => return Err(End::Protocol(format!("the sequence {seq} of a report leaps: a daemon counts by one"))),
    }
    Ok(())
}

/// Cuts a text that a person will read, at a character's border.
fn shorten(text: &mut String) {
    if text.len() > MAX_MESSAGE {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE));
        text.push('…');
    }
}
