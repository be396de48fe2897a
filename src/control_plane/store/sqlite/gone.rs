//! Nodes that are gone, and what becomes of the dispatches that were placed there.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::{parsed, parsed_option, to_json, to_time, to_word};
use super::dispatches::{end, move_to, next_place};
use super::sessions::{OPEN, is_current, of_place};
use crate::control_plane::store::{Declared, Fence, GoneNode, Instance, Place};
use crate::types::{Placement, Reason};
use crate::wire::{NodeFacts, NodeItem, RejectionCode};

/// How long a gone node is looked after on which nothing is open: until then an object may still appear that was under way to the API server.
/// **Source:** it gives a request up after 60 s; an hour is far beyond any clock or queue.
const LOOKED_AFTER: SignedDuration = SignedDuration::from_hours(1);

/// The UID of a node that its daemon last proved or told, as an expression over its row.
const KNOWN_UID: &str = "coalesce(node_uid, json_extract(facts, '$.uid'))";

/// The nodes to look after: those with daemons, and those with open dispatches under the UID that these were accepted on.
pub(super) fn nodes(connection: &Connection, cluster: &str, now: Timestamp) -> rusqlite::Result<Vec<NodeItem>> {
    let sql = format!(
        "WITH known (node, uid, open) AS ( \
            SELECT node, {KNOWN_UID}, 0 FROM daemons WHERE cluster = ?1 AND node <> '' \
            UNION SELECT d.node, coalesce(d.node_uid, (SELECT {KNOWN_UID} FROM daemons WHERE cluster = ?1 AND node = d.node)), 1 \
                FROM dispatches d WHERE d.cluster = ?1 AND d.node <> '' AND d.phase <> 'ended') \
         SELECT k.node, k.uid, g.gone_at FROM (SELECT node, uid, max(open) AS open FROM known GROUP BY node, uid) k \
            LEFT JOIN gone_nodes g ON g.cluster = ?1 AND g.node = k.node AND g.uid = coalesce(k.uid, '') \
         WHERE k.open = 1 OR g.gone_at IS NULL OR g.gone_at > ?2 ORDER BY k.open DESC, k.node, k.uid"
    );
    let read = |row: &Row<'_>| {
        Ok(NodeItem { node: parsed(row, "node")?, uid: row.get("uid")?, gone: parsed_option::<Timestamp>(row, "gone_at")?.is_some() })
    };
    let since = now.checked_sub(LOOKED_AFTER).unwrap_or(now);
    connection.prepare_cached(&sql)?.query_map([cluster, &to_time(since)], read)?.collect()
}

/// Whether a new dispatch must not go to the node: it is gone, as far as is known of the node that has the name now.
pub(super) fn is_gone(connection: &Connection, cluster: &str, node: &str) -> rusqlite::Result<bool> {
    let sql = format!(
        "SELECT 1 FROM gone_nodes g JOIN daemons d ON d.cluster = g.cluster AND d.node = g.node \
         WHERE g.cluster = ?1 AND g.node = ?2 AND g.uid IN ('', coalesce({KNOWN_UID}, g.uid))"
    );
    connection.prepare_cached(&sql)?.exists([cluster, node])
}

/// Whether the dispatch was accepted on a node that is gone, so that the cluster's daemon speaks for it.
pub(super) fn is_orphan(connection: &Connection, row: &Instance) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM dispatches d JOIN gone_nodes g ON g.cluster = d.cluster AND g.node = d.node \
         WHERE d.dispatch_id = ?1 AND (d.node_uid IS NULL OR g.uid IN ('', d.node_uid))";
    connection.prepare_cached(sql)?.exists([row.dispatch_id.as_str()])
}

pub(super) fn declare(connection: &Connection, gone: &GoneNode) -> rusqlite::Result<Declared> {
    let GoneNode { fence, node, uid, why, now, .. } = gone;
    if fence.place.placement != Placement::Cluster || !is_current(connection, fence)? {
        return Ok(Declared::Stale);
    }
    let cluster = &fence.place.cluster;
    connection.execute(
        "INSERT INTO gone_nodes (cluster, node, uid, why, gone_at) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
        params![cluster, node.as_str(), uid.as_deref().unwrap_or_default(), to_word(why)?, to_time(*now)],
    )?;
    let place = Place { cluster: cluster.clone(), placement: Placement::Node(node.clone()) };
    let (mut moved, mut ended) = (Vec::new(), Vec::new());
    if is_gone(connection, cluster, node.as_str())? {
        for row in of_place(connection, &place, None, "phase = 'queued'")? {
            // As if its daemon had said that it can take nothing: it was not accepted, so nothing was made.
            match next_place(connection, &row, RejectionCode::Unavailable, &gone.elsewhere)? {
                Some(placement) => moved.push((row.dispatch_id.clone(), move_to(connection, &row, placement)?)),
                None => {
                    let message = format!("node {node} is gone, and no daemon there had taken it: {}", why.words());
                    end(connection, &row.dispatch_id, Reason::NodeLost, &message, None, *now)?;
                    ended.push(row.dispatch_id);
                }
            }
        }
    }
    let open = of_place(connection, &place, uid.as_deref(), OPEN)?;
    Ok(Declared::Gone { open, moved, ended })
}

/// A node that was said to be gone is there; `false` when the session is stale.
pub(super) fn back(connection: &Connection, fence: &Fence, node: &str, uid: Option<&str>) -> rusqlite::Result<bool> {
    if fence.place.placement != Placement::Cluster || !is_current(connection, fence)? {
        return Ok(false);
    }
    let sql = "DELETE FROM gone_nodes WHERE cluster = ?1 AND node = ?2 AND uid = ?3";
    connection.execute(sql, [&fence.place.cluster, node, uid.unwrap_or_default()])?;
    Ok(true)
}

/// A daemon that can tell its node's UID says that a loss of unknown UID was not this node's.
pub(super) fn told_uid(connection: &Connection, place: &Place) -> rusqlite::Result<()> {
    let sql = format!(
        "DELETE FROM gone_nodes WHERE cluster = ?1 AND node = ?2 AND uid = '' AND EXISTS \
            (SELECT 1 FROM daemons WHERE cluster = ?1 AND node = ?2 AND {KNOWN_UID} IS NOT NULL)"
    );
    connection.execute(&sql, [&place.cluster, place.key()]).map(drop)
}

/// Keeps what a daemon says of its node now; `false` when its session is stale.
pub(super) fn note_facts(connection: &Connection, fence: &Fence, facts: &NodeFacts) -> rusqlite::Result<bool> {
    if !is_current(connection, fence)? {
        return Ok(false);
    }
    let Fence { place, .. } = fence;
    connection.execute("UPDATE daemons SET facts = ?3 WHERE cluster = ?1 AND node = ?2", params![place.cluster, place.key(), to_json(facts)?])?;
    told_uid(connection, place)?;
    Ok(true)
}

/// The UID of the node that a session's daemon last told.
pub(super) fn uid_of(connection: &Connection, place: &Place) -> rusqlite::Result<Option<String>> {
    let sql = format!("SELECT {KNOWN_UID} FROM daemons WHERE cluster = ?1 AND node = ?2");
    Ok(connection.prepare_cached(&sql)?.query_row([&place.cluster, place.key()], |row| row.get(0)).optional()?.flatten())
}
