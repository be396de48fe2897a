//! The life of a dispatch: queued → accepted → created → ended, each step one transaction that the caller commits.

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::{INSTANCE, instance, json, parsed, to_integer, to_json, to_time, to_word};
use super::gone;
use super::sessions::is_current;
use crate::control_plane::placement::least_loaded;
use crate::control_plane::store::{
    Acceptance, Accepted, Deletion, Fence, Idempotency, Instance, InstanceFilter, Launched, MAX_ATTEMPTS, NewLaunch, Offer, Phase, Place, Refusal,
    Refused, Reported, column,
};
use crate::types::{Attempt, DispatchId, InstanceName, NodeName, Observation, Placement, Reason, State, advance};
use crate::wire::{MAX_SEQUENCE_STEP, Rejection, RejectionCode, Report};

/// Derived names to try before giving up on finding one that no row has; a single collision in 2³² is already rare.
const NAMES_TO_TRY: u32 = 16;

pub(super) fn of_dispatch(connection: &Connection, dispatch_id: &DispatchId) -> rusqlite::Result<Option<Instance>> {
    let sql = format!("SELECT {INSTANCE} FROM dispatches WHERE dispatch_id = ?1");
    connection.prepare_cached(&sql)?.query_row([dispatch_id.as_str()], instance).optional()
}

pub(super) fn named(connection: &Connection, name: &InstanceName) -> rusqlite::Result<Option<Instance>> {
    let sql = format!("SELECT {INSTANCE} FROM dispatches WHERE instance = ?1");
    connection.prepare_cached(&sql)?.query_row([name.as_str()], instance).optional()
}

pub(super) fn list(connection: &Connection, filter: &InstanceFilter) -> rusqlite::Result<Vec<Instance>> {
    let sql = format!("SELECT {INSTANCE} FROM dispatches WHERE namespace = ?1 AND (?2 IS NULL OR provider = ?2) ORDER BY id DESC");
    connection.prepare_cached(&sql)?.query_map(params![filter.namespace, filter.provider], instance)?.collect()
}

/// The row of a dispatch, when it is placed where the session is.
fn placed(connection: &Connection, place: &Place, dispatch_id: &DispatchId) -> rusqlite::Result<Option<Instance>> {
    Ok(of_dispatch(connection, dispatch_id)?.filter(|row| row.place == *place))
}

/// The first attempt from `attempt` on whose name no row has.
fn free_attempt(connection: &Connection, dispatch_id: &DispatchId, attempt: Attempt) -> rusqlite::Result<(Attempt, InstanceName)> {
    let mut statement = connection.prepare_cached("SELECT 1 FROM dispatches WHERE instance = ?1")?;
    for number in attempt.0..attempt.0.saturating_add(NAMES_TO_TRY) {
        let name = dispatch_id.instance_name(Attempt(number));
        if !statement.exists([name.as_str()])? {
            return Ok((Attempt(number), name));
        }
    }
    Ok((attempt, dispatch_id.instance_name(attempt))) // the UNIQUE constraint refuses it
}

fn open_by_node(connection: &Connection, cluster: &str) -> rusqlite::Result<BTreeMap<String, u64>> {
    let sql = "SELECT node, count(*) FROM dispatches WHERE cluster = ?1 AND phase <> 'ended' GROUP BY node";
    connection.prepare_cached(sql)?.query_map([cluster], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?.collect()
}

pub(super) fn launched_before(connection: &Connection, namespace: &str, provider: &str, used: &Idempotency) -> rusqlite::Result<Option<Launched>> {
    let sql =
        "SELECT dispatch_id, body_hash FROM dispatches WHERE namespace = ?1 AND provider = ?2 AND idempotency_token = ?3 AND idempotency_key = ?4";
    let read = |row: &Row<'_>| Ok((parsed::<DispatchId>(row, "dispatch_id")?, row.get::<_, Vec<u8>>("body_hash")?));
    let earlier = connection.prepare_cached(sql)?.query_row([namespace, provider, &used.token, &used.key], read).optional()?;
    let Some((earlier, body_hash)) = earlier else { return Ok(None) };
    let row = of_dispatch(connection, &earlier)?.filter(|_| body_hash == used.body_hash);
    Ok(Some(row.map_or(Launched::KeyReused, |row| Launched::Replayed(Box::new(row)))))
}

pub(super) fn launch(connection: &Connection, launch: &NewLaunch) -> rusqlite::Result<Launched> {
    let NewLaunch { dispatch_id, namespace, provider, cluster, candidates, idempotency, .. } = launch;
    if let Some(used) = idempotency
        && let Some(earlier) = launched_before(connection, namespace, provider, used)?
    {
        return Ok(earlier);
    }
    let sql = "SELECT 1 FROM providers WHERE namespace = ?1 AND name = ?2 AND cluster = ?3";
    if !connection.prepare_cached(sql)?.exists([namespace, provider, cluster])? {
        return Ok(Launched::ProviderGone);
    }
    let open = open_by_node(connection, cluster)?;
    let candidates = without_gone(connection, cluster, candidates.clone())?;
    let Some(placement) = least_loaded(&candidates, &open) else { return Ok(Launched::Nowhere) };
    insert(connection, launch, placement)?;
    Ok(of_dispatch(connection, dispatch_id)?.map_or(Launched::Nowhere, |row| Launched::New(Box::new(row))))
}

/// Leaves out nodes that are gone, whose daemons may still be connected.
fn without_gone(connection: &Connection, cluster: &str, candidates: Vec<Placement>) -> rusqlite::Result<Vec<Placement>> {
    let mut there = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        if candidate.node().is_none() || !gone::is_gone(connection, cluster, column(&candidate))? {
            there.push(candidate);
        }
    }
    Ok(there)
}

fn insert(connection: &Connection, launch: &NewLaunch, placement: &Placement) -> rusqlite::Result<()> {
    let (attempt, name) = free_attempt(connection, &launch.dispatch_id, Attempt(1))?;
    let idempotency = launch.idempotency.as_ref();
    connection.execute(
        "INSERT INTO dispatches (dispatch_id, attempt, instance, namespace, provider, cluster, node, node_named, requested_by, payload, \
            idempotency_token, idempotency_key, body_hash, phase, launched_at, state, reason, observed_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, 'queued', ?14, 'starting', 'queued', ?14)",
        params![
            launch.dispatch_id.as_str(),
            attempt.0,
            name.as_str(),
            launch.namespace,
            launch.provider,
            launch.cluster,
            column(placement),
            launch.node_named,
            launch.requested_by,
            launch.payload,
            idempotency.map(|used| &used.token),
            idempotency.map(|used| &used.key),
            idempotency.map(|used| used.body_hash),
            to_time(launch.now),
        ],
    )?;
    Ok(())
}

pub(super) fn mark_answered(connection: &Connection, dispatch_id: &DispatchId) -> rusqlite::Result<Option<Instance>> {
    connection.execute("UPDATE dispatches SET answered = 1 WHERE dispatch_id = ?1 AND answered = 0", [dispatch_id.as_str()])?;
    of_dispatch(connection, dispatch_id)
}

const OFFER: &str = "SELECT id, dispatch_id, attempt, instance, payload FROM dispatches WHERE cluster = ?1 AND node = ?2 AND phase = 'queued'";

fn offer_row(row: &Row<'_>) -> rusqlite::Result<Offer> {
    Ok(Offer {
        row: row.get("id")?,
        dispatch_id: parsed(row, "dispatch_id")?,
        attempt: Attempt(row.get("attempt")?),
        instance: parsed(row, "instance")?,
        payload: row.get("payload")?,
    })
}

pub(super) fn queued(connection: &Connection, place: &Place, after: i64, limit: u32, max_open: u32) -> rusqlite::Result<Vec<Offer>> {
    let sql =
        "SELECT count(*) FROM dispatches WHERE cluster = ?1 AND node = ?2 AND (phase IN ('accepted', 'created') OR (phase = 'queued' AND id <= ?3))";
    let open: u32 = connection.prepare_cached(sql)?.query_row(params![place.cluster, place.key(), after], |row| row.get(0))?;
    let limit = limit.min(max_open.saturating_sub(open));
    let sql = format!("{OFFER} AND id > ?3 ORDER BY id LIMIT ?4");
    connection.prepare_cached(&sql)?.query_map(params![place.cluster, place.key(), after, limit], offer_row)?.collect()
}

pub(super) fn offer(connection: &Connection, place: &Place, dispatch_id: &DispatchId) -> rusqlite::Result<Option<Offer>> {
    let sql = format!("{OFFER} AND dispatch_id = ?3");
    connection.prepare_cached(&sql)?.query_row([&place.cluster, place.key(), dispatch_id.as_str()], offer_row).optional()
}

pub(super) fn accept(connection: &Connection, fence: &Fence, acceptance: &Acceptance) -> rusqlite::Result<Accepted> {
    if !is_current(connection, fence)? {
        return Ok(Accepted::Stale);
    }
    let id = &acceptance.dispatch_id;
    let Some(row) = placed(connection, &fence.place, id)?.filter(|row| row.attempt == acceptance.attempt) else { return Ok(Accepted::Foreign) };
    match row.phase {
        Phase::Ended => Ok(Accepted::Unwanted { instance: row.name }),
        Phase::Accepted | Phase::Created => Ok(if row.accepted_epoch == fence.epoch { Accepted::Committed } else { Accepted::Earlier }),
        Phase::Queued => {
            connection.execute(
                "UPDATE dispatches SET phase = 'accepted', reason = 'accepted', payload = NULL, kube_namespace = ?2, accepted_at = ?3, accepted_epoch = ?4, \
                    observed_at = ?3, node_uid = ?5 WHERE dispatch_id = ?1",
                params![
                    id.as_str(),
                    acceptance.kube_namespace.as_str(),
                    to_time(acceptance.now),
                    to_integer(fence.epoch),
                    gone::uid_of(connection, &fence.place)?
                ],
            )?;
            Ok(Accepted::Committed)
        }
    }
}

pub(super) fn refuse(connection: &Connection, fence: &Fence, refusal: &Refusal) -> rusqlite::Result<Refused> {
    if !is_current(connection, fence)? {
        return Ok(Refused::Stale);
    }
    let Refusal { dispatch_id, attempt, rejection, elsewhere, now } = refusal;
    let Some(row) = placed(connection, &fence.place, dispatch_id)? else { return Ok(Refused::Foreign) };
    if row.phase == Phase::Ended || row.attempt != *attempt {
        return Ok(Refused::Ignored);
    }
    if let Some(placement) = next_place(connection, &row, rejection.code, elsewhere)? {
        return Ok(Refused::NextAttempt(move_to(connection, &row, placement)?));
    }
    end(connection, dispatch_id, Reason::Rejected, &rejection.message, Some(rejection), *now)?;
    Ok(Refused::Ended)
}

/// Queues the next attempt at another place, or under another name at the same.
pub(super) fn move_to(connection: &Connection, row: &Instance, placement: Placement) -> rusqlite::Result<Place> {
    let (attempt, name) = free_attempt(connection, &row.dispatch_id, Attempt(row.attempt.0 + 1))?;
    let sql = "UPDATE dispatches SET attempt = ?2, instance = ?3, node = ?4, tried = json_insert(tried, '$[#]', node) WHERE dispatch_id = ?1";
    connection.execute(sql, params![row.dispatch_id.as_str(), attempt.0, name.as_str(), column(&placement)])?;
    Ok(Place { placement, cluster: row.place.cluster.clone() })
}

/// Where the next attempt goes after a no that was about the name or the node, while nobody was told either; `None` when the no stands.
pub(super) fn next_place(
    connection: &Connection,
    row: &Instance,
    code: RejectionCode,
    elsewhere: &[Placement],
) -> rusqlite::Result<Option<Placement>> {
    let sql = "SELECT node_named, tried FROM dispatches WHERE dispatch_id = ?1 AND answered = 0 AND phase = 'queued'";
    let read = |row: &Row<'_>| Ok((row.get::<_, bool>("node_named")?, json::<Vec<String>>(row, "tried")?));
    let open_question = connection.prepare_cached(sql)?.query_row([row.dispatch_id.as_str()], read).optional()?;
    let Some((named, tried)) = open_question.filter(|_| row.attempt.0 < MAX_ATTEMPTS) else { return Ok(None) };
    match code {
        RejectionCode::NameTaken => Ok(Some(row.place.placement.clone())),
        RejectionCode::Unavailable if !named => {
            let untried: Vec<_> =
                elsewhere.iter().filter(|place| **place != row.place.placement && !tried.iter().any(|key| key == column(place))).cloned().collect();
            let untried = without_gone(connection, &row.place.cluster, untried)?;
            Ok(least_loaded(&untried, &open_by_node(connection, &row.place.cluster)?).cloned())
        }
        RejectionCode::Unavailable
        | RejectionCode::PolicyDenied
        | RejectionCode::Invalid
        | RejectionCode::ClusterRefused
        | RejectionCode::Misdirected => Ok(None),
    }
}

/// Ends a dispatch of which no object was made.
pub(super) fn end(
    connection: &Connection,
    dispatch_id: &DispatchId,
    reason: Reason,
    message: &str,
    rejection: Option<&Rejection>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let rejection = rejection.map(to_json).transpose()?;
    connection.execute(
        "UPDATE dispatches SET phase = 'ended', state = 'stopped', reason = ?2, message = ?3, rejection = ?4, payload = NULL, finished_at = ?5, \
            observed_at = ?5 WHERE dispatch_id = ?1",
        params![dispatch_id.as_str(), to_word(&reason)?, message, rejection, to_time(now)],
    )?;
    Ok(())
}

pub(super) fn report(connection: &Connection, fence: &Fence, report: &Report) -> rusqlite::Result<Reported> {
    if report.epoch != fence.epoch || !is_current(connection, fence)? {
        return Ok(Reported::Stale);
    }
    let row = of_dispatch(connection, &report.dispatch_id)?;
    let Some(row) = row.filter(|row| row.attempt == report.attempt && row.name == report.instance) else { return Ok(Reported::Foreign) };
    let orphan = row.place != fence.place;
    if orphan && !speaks_for(connection, &fence.place, &row)? {
        return Ok(Reported::Foreign);
    }
    if report.seq.saturating_sub(row.report_seq) > MAX_SEQUENCE_STEP {
        return Ok(Reported::Leap);
    }
    if report.seq > row.report_seq {
        if row.phase == Phase::Ended {
            let sql = "UPDATE dispatches SET report_seq = ?2 WHERE dispatch_id = ?1";
            connection.execute(sql, params![report.dispatch_id.as_str(), to_integer(report.seq)])?;
        } else {
            let report = attributed(connection, &row, report)?;
            take(connection, &row, &report)?;
        }
        if orphan {
            // Whatever of its log had not come is on a node that is gone.
            let sql = "UPDATE dispatches SET log_end = 'gone' WHERE dispatch_id = ?1 AND phase = 'ended' AND log_started = 1 AND log_end IS NULL";
            connection.execute(sql, [report.dispatch_id.as_str()])?;
        }
    }
    Ok(of_dispatch(connection, &report.dispatch_id)?.map_or(Reported::Foreign, |row| Reported::Stored(Box::new(row))))
}

/// A daemon that says "somebody else" may not have heard who: while it was away, its successor was told of a caller's request, or the
/// cluster's daemon removed what a gone node held.
fn attributed<'r>(connection: &Connection, row: &Instance, report: &'r Report) -> rusqlite::Result<Cow<'r, Report>> {
    if report.observation.reason != Reason::DeletedByOther {
        return Ok(Cow::Borrowed(report));
    }
    let (reason, message) = match report.observation.state {
        State::Stopped if row.delete_requested => (Reason::DeletedByRequest, "deleted as asked"),
        _ if row.delete_requested => (Reason::DeletedByRequest, "it is being deleted as asked"),
        _ if gone::is_orphan(connection, row)? => (Reason::NodeLost, "its node is gone"),
        _ => return Ok(Cow::Borrowed(report)),
    };
    let observation = Observation { reason, message: message.into(), ..report.observation.clone() };
    Ok(Cow::Owned(Report { observation, ..report.clone() }))
}

/// Whether a session of `place` may report on another place's dispatch: the cluster's on one whose node is gone.
fn speaks_for(connection: &Connection, place: &Place, row: &Instance) -> rusqlite::Result<bool> {
    Ok(place.placement == Placement::Cluster && place.cluster == row.place.cluster && gone::is_orphan(connection, row)?)
}

/// Writes what a report says over what is known; what is known stays where the report says nothing or would go back.
fn take(connection: &Connection, row: &Instance, report: &Report) -> rusqlite::Result<()> {
    let (known, seen) = (&row.seen, &report.observation);
    let state = advance(known.state, seen.state);
    let source: &Observation = if state == seen.state { seen } else { known };
    let phase = if state == State::Stopped { "ended" } else { "created" };
    let time = |newer: Option<Timestamp>, older: Option<Timestamp>| newer.or(older).map(to_time);
    let created_at = time(seen.created_at, known.created_at);
    connection.execute(
        "UPDATE dispatches SET phase = ?2, state = ?3, reason = ?4, message = ?5, exit_code = ?6, uid = ?7, created_at = ?8, started_at = ?9, \
            finished_at = ?10, observed_at = ?11, report_seq = ?12, log_started = max(log_started, ?13), payload = NULL, seen_node = coalesce(?14, seen_node), \
            launched_at = CASE WHEN answered = 0 AND ?8 IS NOT NULL THEN ?8 ELSE launched_at END \
         WHERE dispatch_id = ?1",
        params![
            report.dispatch_id.as_str(),
            phase,
            to_word(&state)?,
            to_word(&source.reason)?,
            source.message,
            source.exit_code.or(known.exit_code),
            seen.uid.as_ref().or(known.uid.as_ref()),
            created_at,
            time(seen.started_at, known.started_at),
            time(source.finished_at, known.finished_at),
            to_time(seen.observed_at),
            to_integer(report.seq),
            seen.has_log,
            seen.node.as_ref().map(NodeName::as_str),
        ],
    )?;
    Ok(())
}

pub(super) fn request_delete(
    connection: &Connection,
    namespace: &str,
    provider: &str,
    name: &InstanceName,
    now: Timestamp,
) -> rusqlite::Result<Deletion> {
    let Some(row) = named(connection, name)? else { return Ok(Deletion::Unknown) };
    if row.namespace != namespace || row.provider != provider {
        return Ok(Deletion::Elsewhere);
    }
    match row.phase {
        Phase::Ended => return Ok(Deletion::AlreadyEnded),
        Phase::Queued => end(connection, &row.dispatch_id, Reason::DeletedByRequest, "deleted before any daemon had taken it", None, now)?,
        Phase::Accepted | Phase::Created => {
            let sql = "UPDATE dispatches SET delete_requested_at = coalesce(delete_requested_at, ?2) WHERE dispatch_id = ?1";
            connection.execute(sql, [row.dispatch_id.as_str(), &to_time(now)])?;
        }
    }
    let queued = row.phase == Phase::Queued;
    let Some(row) = of_dispatch(connection, &row.dispatch_id)?.map(Box::new) else { return Ok(Deletion::Unknown) };
    Ok(if queued { Deletion::EndedUnstarted(row) } else { Deletion::Requested(row) })
}
