//! Between columns and the domain's words. A value that cannot be read is an error of the row, never a default.

use std::error::Error;
use std::str::FromStr;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::Type;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::control_plane::store::{Instance, LogRow, Phase, Place};
use crate::types::{Attempt, Observation, Placement};

/// Columns of [`instance`], in no order that matters: they are read by name.
pub(super) const INSTANCE: &str = "dispatch_id, attempt, instance, namespace, provider, cluster, node, requested_by, kube_namespace, phase, launched_at, \
    accepted_epoch, delete_requested_at, report_seq, state, reason, message, exit_code, uid, created_at, started_at, finished_at, observed_at, \
    rejection, seen_node, log_started, log_position, log_stored, log_resume, log_end";

fn unreadable(error: impl Into<Box<dyn Error + Send + Sync>>) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, error.into())
}

/// A column whose text a type can parse.
pub(super) fn parsed<T>(row: &Row<'_>, column: &str) -> rusqlite::Result<T>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    row.get::<_, String>(column)?.parse().map_err(unreadable)
}

/// Like [`parsed`], for a column that may be NULL.
pub(super) fn parsed_option<T>(row: &Row<'_>, column: &str) -> rusqlite::Result<Option<T>>
where
    T: FromStr<Err: Error + Send + Sync + 'static>,
{
    row.get::<_, Option<String>>(column)?.map(|text| text.parse().map_err(unreadable)).transpose()
}

/// A column that holds JSON.
pub(super) fn json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    serde_json::from_str(&row.get::<_, String>(column)?).map_err(unreadable)
}

/// A column that holds one word of the wire, without quotes.
pub(super) fn word<T: DeserializeOwned>(text: String) -> rusqlite::Result<T> {
    serde_json::from_value(serde_json::Value::String(text)).map_err(unreadable)
}

/// A value as JSON text, for a column.
pub(super) fn to_json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// A place: an empty node stands for the cluster as a whole, which no node's name can be.
pub(super) fn place(row: &Row<'_>) -> rusqlite::Result<Place> {
    let node: String = row.get("node")?;
    let placement = if node.is_empty() { Placement::Cluster } else { Placement::Node(node.parse().map_err(unreadable)?) };
    Ok(Place { cluster: row.get("cluster")?, placement })
}

/// A word of the wire, for a column.
pub(super) fn to_word(value: &impl Serialize) -> rusqlite::Result<String> {
    Ok(to_json(value)?.trim_matches('"').to_owned())
}

/// A count, for a column. SQLite's integers are signed; a count beyond them cannot come from bytes that were really sent.
pub(super) fn to_integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count from a column.
pub(super) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column)?.try_into().map_err(unreadable)
}

/// A time, for a column.
pub(super) fn to_time(time: Timestamp) -> String {
    time.to_string()
}

/// Reads the columns [`INSTANCE`].
pub(super) fn instance(row: &Row<'_>) -> rusqlite::Result<Instance> {
    let phase = match row.get::<_, String>("phase")?.as_str() {
        "queued" => Phase::Queued,
        "accepted" => Phase::Accepted,
        "created" => Phase::Created,
        "ended" => Phase::Ended,
        other => return Err(unreadable(format!("unknown phase {other}"))),
    };
    let log = LogRow {
        started: row.get("log_started")?,
        position: count(row, "log_position")?,
        stored: count(row, "log_stored")?,
        resume: json(row, "log_resume")?,
        end: row.get::<_, Option<String>>("log_end")?.map(word).transpose()?,
    };
    let seen = Observation {
        state: word(row.get("state")?)?,
        reason: word(row.get("reason")?)?,
        message: row.get("message")?,
        exit_code: row.get("exit_code")?,
        uid: row.get("uid")?,
        node: parsed_option(row, "seen_node")?,
        created_at: parsed_option(row, "created_at")?,
        started_at: parsed_option(row, "started_at")?,
        finished_at: parsed_option(row, "finished_at")?,
        observed_at: parsed(row, "observed_at")?,
        has_log: log.started,
    };
    Ok(Instance {
        dispatch_id: parsed(row, "dispatch_id")?,
        attempt: Attempt(row.get("attempt")?),
        name: parsed(row, "instance")?,
        namespace: row.get("namespace")?,
        provider: row.get("provider")?,
        place: place(row)?,
        requested_by: row.get("requested_by")?,
        kube_namespace: row.get("kube_namespace")?,
        phase,
        accepted_epoch: row.get::<_, Option<i64>>("accepted_epoch")?.map_or(Ok(0), |epoch| epoch.try_into().map_err(unreadable))?,
        launched_at: parsed(row, "launched_at")?,
        delete_requested: row.get::<_, Option<String>>("delete_requested_at")?.is_some(),
        report_seq: count(row, "report_seq")?,
        seen,
        rejection: row.get::<_, Option<String>>("rejection")?.map(|text| serde_json::from_str(&text).map_err(unreadable)).transpose()?,
        log,
    })
}
