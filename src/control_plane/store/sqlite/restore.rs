//! Copies of the database, and what opening one in the place of its original must change.
//!
//! A copy carries a mark in its header from the moment it is made, so that whichever way it comes back (unpacked, moved, copied
//! over the old file), the first open knows it. What happened after it was taken is not known: see [`settle`].

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::convert::{parsed, to_time};
use super::{place, schema};
use crate::control_plane::store::{StoreError, StoredLog};

/// `application_id` of a copy: "lkcp". **Source:** SQLite leaves this field of the file's header to applications.
const COPY: i32 = 0x6c6b_6370;
/// `application_id` of a database whose log lost what was acknowledged: "lkdm".
const DAMAGED: i32 = 0x6c6b_646d;
/// Where the header holds it. **Source:** "The Database Header" in SQLite's documentation of its file format.
const APPLICATION_ID_AT: u64 = 68;
/// How far epochs rise at least: more sessions than one daemon opens between a copy and its restore.
const EPOCHS: i64 = 1 << 20;

/// What opening a copy, or a damaged database, came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// Dispatches that had not ended.
    pub(super) open: usize,
    /// Those of them that no daemon had taken: they are not offered again.
    pub(super) queued: usize,
}

/// Writes a consistent copy of the database into `file`, with its mark. Answers with the logs that it names.
pub(super) fn copy(connection: &Connection, file: &Path) -> rusqlite::Result<Vec<StoredLog>> {
    let unusable = |error: io::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    remove(file).and_then(|()| OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)).map_err(unusable)?;
    let file = &*place::plain(file);
    connection.execute("VACUUM INTO CAST(?1 AS TEXT)", [file.as_os_str().as_bytes()])?; // a path need not be UTF-8, as a bound text must
    let copy = Connection::open(file)?;
    copy.pragma_update(None, "application_id", COPY)?;
    let stored =
        |row: &rusqlite::Row<'_>| Ok(StoredLog { instance: parsed(row, "instance")?, bytes: row.get::<_, i64>("log_stored")?.unsigned_abs() });
    copy.prepare("SELECT instance, log_stored FROM dispatches WHERE log_stored > 0 ORDER BY id")?.query_map([], stored)?.collect()
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// `file` with `suffix` behind its name.
pub(super) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Whether the file is a copy that was never opened in its original's place.
pub(super) fn is_copy(file: &Path) -> io::Result<bool> {
    let mut id = [0; 4];
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(APPLICATION_ID_AT))?;
    match file.read_exact(&mut id) {
        Ok(()) => Ok(i32::from_be_bytes(id) == COPY),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false), // new and empty
        Err(error) => Err(error),
    }
}

/// Makes a copy fit to be opened: a log of another database beside it is put aside, and it is settled.
///
/// The work is done on a file of its own that takes the copy's place at the end, so that a crash on the way leaves the copy.
pub(super) fn finish(file: &Path, now: Timestamp) -> Result<Settled, StoreError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::Folder { path, source }
    };
    for suffix in ["-wal", "-shm", "-journal"] {
        let foreign = beside(file, suffix);
        match std::fs::rename(&foreign, beside(&foreign, ".before-restore")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&foreign)(error)),
            _ => {}
        }
    }
    let fresh = beside(file, ".restoring");
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let old = beside(&fresh, suffix);
        remove(&old).map_err(failed(&old))?;
    }
    std::fs::copy(file, &fresh).map_err(failed(&fresh))?;
    let settled = settle_file(&fresh, file, now).map_err(|source| StoreError::Open { doing: "restore the copy", path: file.to_owned(), source })?;
    File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed(&fresh))?;
    std::fs::rename(&fresh, file).map_err(failed(file))?;
    file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all()).map_err(failed(file))?;
    Ok(settled)
}

fn settle_file(fresh: &Path, file: &Path, now: Timestamp) -> rusqlite::Result<Settled> {
    let mut connection = Connection::open(fresh)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    schema::migrate(&mut connection, file)?;
    let settled = settle(&mut connection, "backup", now)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(settled)
}

/// Notes, before anything else is written, that the database lost what was acknowledged.
pub(super) fn mark_damaged(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "application_id", DAMAGED)
}

/// Settles a database that was noted as damaged, by this start or by one that a crash ended.
pub(super) fn settle_damaged(connection: &mut Connection, now: Timestamp) -> rusqlite::Result<Option<Settled>> {
    let id: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    if id == DAMAGED { settle(connection, "damage", now).map(Some) } else { Ok(None) }
}

/// Takes what the file says as old: in one transaction, epochs rise above those of every session that may have existed since, and
/// what had not ended may have been created since, by any daemon. So it counts as accepted: nothing offers or creates it again, and
/// its daemon tells how it is, or that it is lost.
fn settle(connection: &mut Connection, cause: &str, now: Timestamp) -> rusqlite::Result<Settled> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let floor = epoch_floor(&transaction, now)?;
    transaction.execute("INSERT INTO restores (at, cause, epoch_floor) VALUES (?1, ?2, ?3)", params![to_time(now), cause, floor])?;
    transaction.execute("UPDATE daemons SET epoch = ?1", [floor])?;
    let sql = "UPDATE dispatches SET restored = 1, phase = 'accepted', payload = NULL, accepted_at = ?1 WHERE phase = 'queued'";
    let queued = transaction.execute(sql, [to_time(now)])?;
    let message = "the control plane's data came back from a copy; the daemon has not told since how this instance is";
    let sql = "UPDATE dispatches SET state = 'unknown', reason = 'daemon_unreachable', message = ?1 WHERE phase <> 'ended'";
    let open = transaction.execute(sql, [message])?;
    transaction.pragma_update(None, "application_id", 0)?;
    transaction.commit()?;
    Ok(Settled { open, queued })
}

/// An epoch that no session has had. The clock's milliseconds grow faster than any daemon opens sessions, and unlike a step from
/// what the file holds they differ when the same copy is restored twice; the step is for a clock that went back.
fn epoch_floor(transaction: &Transaction<'_>, now: Timestamp) -> rusqlite::Result<i64> {
    let sql = "SELECT max(coalesce((SELECT max(epoch) FROM daemons), 0), coalesce((SELECT max(epoch_floor) FROM restores), 0))";
    let known: i64 = transaction.query_row(sql, [], |row| row.get(0))?;
    Ok(now.as_millisecond().max(known.saturating_add(EPOCHS)))
}

/// What the epoch of a daemon that the file does not know begins above.
pub(super) fn first_epoch(connection: &Connection) -> rusqlite::Result<u64> {
    let floor: i64 = connection.prepare_cached("SELECT coalesce(max(epoch_floor), 0) FROM restores")?.query_row([], |row| row.get(0))?;
    Ok(floor.unsigned_abs() + 1)
}

/// When the file last stood in for what was lost, so that a daemon may hold what it does not know.
pub(super) fn last(connection: &Connection) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached("SELECT at FROM restores ORDER BY id DESC LIMIT 1")?.query_row([], |row| row.get(0)).optional()
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
