//! Daemons and their sessions.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::{INSTANCE, count, instance, json, parsed, place, to_integer, to_json, to_time, to_word, word};
use super::{adopt, gone, identity, restore};
use crate::control_plane::store::{DaemonRow, Fence, Instance, OpenSession, OpenedSession, Place};
use crate::types::InstanceName;

/// Whether the session is still the newest of its place. Read inside the transaction that depends on it.
pub(super) fn is_current(connection: &Connection, fence: &Fence) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM daemons WHERE cluster = ?1 AND node = ?2 AND epoch = ?3";
    connection.prepare_cached(sql)?.exists(params![fence.place.cluster, fence.place.key(), to_integer(fence.epoch)])
}

pub(super) fn open(connection: &Connection, session: &OpenSession) -> rusqlite::Result<OpenedSession> {
    let OpenSession { place, hello, proof, now } = session;
    let epoch = connection.query_row(
        "INSERT INTO daemons (cluster, node, epoch, role, version, policy_digest, facts, last_seen) VALUES (?1, ?2, ?8, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT (cluster, node) DO UPDATE SET epoch = epoch + 1, role = ?3, version = ?4, policy_digest = ?5, facts = ?6, last_seen = ?7 \
         RETURNING epoch",
        params![
            place.cluster,
            place.key(),
            to_word(&hello.role)?,
            hello.version,
            hello.policy_digest,
            to_json(&hello.node)?,
            to_time(*now),
            to_integer(restore::first_epoch(connection)?)
        ],
        |row| count(row, "epoch"),
    )?;
    let unknown = adopt::adopt(connection, place, &hello.held, *now)?;
    identity::note_proof(connection, place, proof.as_ref())?;
    gone::told_uid(connection, place)?;
    let open = open_items(connection, place)?;
    let logs = of_place(connection, place, None, "log_started = 1 AND log_end IS NULL")?;
    Ok(OpenedSession { epoch, open, logs, unknown })
}

/// What the place's daemon goes on with. What was accepted on an earlier node of the same name is the cluster's daemon's to end, where there is one.
fn open_items(connection: &Connection, place: &Place) -> rusqlite::Result<Vec<Instance>> {
    let sql = "SELECT 1 FROM daemons WHERE cluster = ?1 AND node = ''";
    let has_cluster_daemon = connection.prepare_cached(sql)?.exists([&place.cluster])?;
    let uid = if has_cluster_daemon { gone::uid_of(connection, place)? } else { None };
    of_place(connection, place, uid.as_deref(), OPEN)
}

/// Dispatches that were accepted and have not ended.
pub(super) const OPEN: &str = "phase IN ('accepted', 'created')";

/// Rows of a place, oldest first; with a UID of its node only those that were accepted on that one or on an unknown one.
pub(super) fn of_place(connection: &Connection, place: &Place, uid: Option<&str>, condition: &str) -> rusqlite::Result<Vec<Instance>> {
    let sql = format!(
        "SELECT {INSTANCE} FROM dispatches WHERE cluster = ?1 AND node = ?2 AND (?3 IS NULL OR node_uid IS NULL OR node_uid = ?3) AND {condition} ORDER BY id"
    );
    connection.prepare_cached(&sql)?.query_map(params![place.cluster, place.key(), uid], instance)?.collect()
}

pub(super) fn unconfirmed_deletions(connection: &Connection, place: &Place) -> rusqlite::Result<Vec<InstanceName>> {
    let sql = "SELECT instance FROM dispatches WHERE cluster = ?1 AND node = ?2 AND phase <> 'ended' AND delete_requested_at IS NOT NULL ORDER BY id";
    connection.prepare_cached(sql)?.query_map([&place.cluster, place.key()], |row| parsed(row, "instance"))?.collect()
}

pub(super) fn close(connection: &Connection, fence: &Fence, last_seen: Timestamp) -> rusqlite::Result<()> {
    let sql = "UPDATE daemons SET last_seen = ?4 WHERE cluster = ?1 AND node = ?2 AND epoch = ?3";
    let Fence { place, epoch } = fence;
    connection.execute(sql, params![place.cluster, place.key(), to_integer(*epoch), to_time(last_seen)]).map(drop)
}

fn daemon(row: &Row<'_>) -> rusqlite::Result<DaemonRow> {
    Ok(DaemonRow {
        place: place(row)?,
        epoch: count(row, "epoch")?,
        role: word(row.get("role")?)?,
        version: row.get("version")?,
        policy_digest: row.get("policy_digest")?,
        facts: json(row, "facts")?,
        identity: row.get("identity")?,
        node_uid: row.get("node_uid")?,
        pod_uid: row.get("pod_uid")?,
        last_seen: parsed(row, "last_seen")?,
    })
}

pub(super) fn daemons(connection: &Connection) -> rusqlite::Result<Vec<DaemonRow>> {
    connection.prepare_cached("SELECT * FROM daemons ORDER BY cluster, node")?.query_map([], daemon)?.collect()
}

pub(super) fn one(connection: &Connection, cluster: &str, node: &str) -> rusqlite::Result<Option<DaemonRow>> {
    connection.prepare_cached("SELECT * FROM daemons WHERE cluster = ?1 AND node = ?2")?.query_row([cluster, node], daemon).optional()
}
