//! How far each log has come. The bytes are in segment files.

use rusqlite::{Connection, params};

use super::convert::{to_integer, to_json, to_word};
use super::sessions::is_current;
use crate::control_plane::store::{Fence, LogProgress};
use crate::types::DispatchId;
use crate::wire::LogEndReason;

pub(super) fn commit(connection: &Connection, fence: &Fence, progress: &[LogProgress]) -> rusqlite::Result<bool> {
    if !is_current(connection, fence)? {
        return Ok(false);
    }
    let mut statement = connection.prepare_cached(
        "UPDATE dispatches SET log_position = ?4, log_stored = ?5, log_resume = ?6 WHERE dispatch_id = ?1 AND cluster = ?2 AND node = ?3",
    )?;
    for LogProgress { dispatch_id, position, stored, resume } in progress {
        let Fence { place, .. } = fence;
        let values = params![dispatch_id.as_str(), place.cluster, place.key(), to_integer(*position), to_integer(*stored), to_json(resume)?,];
        statement.execute(values)?;
    }
    Ok(true)
}

pub(super) fn end(connection: &Connection, fence: &Fence, dispatch_id: &DispatchId, reason: LogEndReason) -> rusqlite::Result<bool> {
    if !is_current(connection, fence)? {
        return Ok(false);
    }
    let sql = "UPDATE dispatches SET log_end = ?4 WHERE dispatch_id = ?1 AND cluster = ?2 AND node = ?3";
    let changed = connection.execute(sql, params![dispatch_id.as_str(), fence.place.cluster, fence.place.key(), to_word(&reason)?])?;
    Ok(changed == 1)
}
