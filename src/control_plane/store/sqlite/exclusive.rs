//! The data folder: one process at a time, one database in it, up to date.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::Connection;

use super::engine::{BUSY_TIMEOUT, transact};
use super::restore::{self, Settled, beside};
use super::wal::{self, Loss};
use super::{directory, place, schema};
use crate::control_plane::store::{Put, StoreError, StoredLog, TokenRow};

/// Name of the database in its folder.
pub(crate) const DATABASE: &str = "lakeshore.db";
/// Name of the folder of logs beside it, and in a backup.
pub(crate) const LOGS: &str = "logs";

/// Exclusive hold of a data folder, with its database open and up to date.
#[derive(Debug)]
pub(crate) struct ExclusiveStore {
    pub(super) connection: Connection,
    pub(super) file: PathBuf,
    pub(super) lock: File,
    notices: Vec<String>,
}

impl ExclusiveStore {
    /// Takes the folder, which is made when it is missing, and opens the database in it.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process has the folder; [`StoreError::Folder`] or [`StoreError::Open`] otherwise.
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreError> {
        let at = |path: &Path, source| StoreError::Folder { path: path.to_owned(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| at(folder, error))?;
        let open = |path: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
        let folder = &*place::plain(folder);
        let lock_file = folder.join("lock");
        let lock = open(&lock_file).map_err(|error| at(&lock_file, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: folder.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(at(&lock_file, error)),
        }
        let file = folder.join(DATABASE);
        for path in ["", "-wal", "-shm", "-journal"].map(|suffix| beside(&file, suffix)) {
            place::regular(&path).map_err(|error| at(&path, error))?;
        }
        if let Some(left) = left_of_a_database(folder, &file).map_err(|error| at(folder, error))? {
            return Err(StoreError::DatabaseGone { path: file, left });
        }
        drop(open(&file).map_err(|error| at(&file, error))?); // so that it and the files beside it are readable by their owner only
        let mut notices = Vec::new();
        if restore::is_copy(&file).map_err(|error| at(&file, error))? {
            notices.push(restored(&restore::finish(&file, Timestamp::now())?));
        }
        let log = beside(&file, "-wal");
        let loss = wal::inspect(&log).map_err(|error| at(&log, error))?;
        notices.extend(loss.map(lost));
        let failed = |doing| {
            let path = file.clone();
            move |source| StoreError::Open { doing, path, source }
        };
        let mut connection = Connection::open(&file).map_err(failed("open the database"))?;
        prepare(&connection).map_err(failed("read the database"))?;
        if matches!(loss, Some(Loss::Damaged { .. })) {
            restore::mark_damaged(&connection).map_err(failed("note the damage of the database"))?;
        }
        schema::migrate(&mut connection, &file).map_err(failed("bring up to date the database"))?;
        let settled = restore::settle_damaged(&mut connection, Timestamp::now()).map_err(failed("settle the damaged database"))?;
        notices.extend(settled.as_ref().map(restored));
        if loss.is_some() {
            // What was left out must not stand behind what is written next: a second crash would make it look like a lost commit.
            let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
            connection.query_row(sql, [], |_| Ok(())).map_err(failed("empty the log of the database"))?;
        }
        Ok(Self { connection, file, lock, notices })
    }

    /// What the operator must know of how the database was found.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Writes a copy of the database into `file`, without a server.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub(crate) fn copy(&self, file: &Path) -> Result<Vec<StoredLog>, StoreError> {
        restore::copy(&self.connection, file).map_err(|source| StoreError::Database { doing: "copy everything", source })
    }

    /// Stores a caller token, without a server.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub(crate) fn create_token(&mut self, token: &TokenRow) -> Result<Put, StoreError> {
        transact(&mut self.connection, "create a token", |tx| directory::create_token(tx, token))
    }
}

/// What lies beside a database that is missing or empty: an earlier one was here, and a new one in its place would hide what it held.
fn left_of_a_database(folder: &Path, file: &Path) -> io::Result<Option<PathBuf>> {
    let holds = |path: &Path| place::found(path.metadata()).map(|metadata| metadata.is_some_and(|metadata| metadata.len() > 0));
    if holds(file)? {
        return Ok(None);
    }
    let log = beside(file, "-wal");
    if holds(&log)? {
        return Ok(Some(log));
    }
    let Some(mut logs) = place::found(std::fs::read_dir(folder.join(LOGS)))? else { return Ok(None) };
    Ok(logs.next().transpose()?.map(|entry| entry.path()))
}

fn restored(settled: &Settled) -> String {
    let Settled { open, queued } = settled;
    format!(
        "The data came back from a copy: {open} dispatches had not ended in it, {queued} of them queued; none is offered or created again, \
         their daemons tell how they ended, and what was launched after the copy is taken over from the daemons that hold it"
    )
}

fn lost(loss: Loss) -> String {
    match loss {
        Loss::Torn { frames, bytes } => format!(
            "The last transaction in the database's log was not written whole and is left out ({frames} records, {bytes} bytes); \
             it was never acknowledged to anybody"
        ),
        Loss::Damaged { frames, bytes } => format!(
            "The database's log is damaged: {frames} records, {bytes} bytes, cannot be used, and what was acknowledged in them is lost; \
             the database is treated as one that came back from a copy"
        ),
    }
}

fn prepare(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Chain;

    #[test]
    fn a_file_that_is_no_database_is_named_and_its_fault_is_said_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lakeshore.db");
        std::fs::write(&file, "certainly not a database, and longer than a header of one hundred bytes".repeat(9)).expect("it is written");
        let error = ExclusiveStore::open(folder.path()).expect_err("it is no database");
        let text = Chain(&error).to_string();
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert_eq!(text.matches("not a database").count(), 1, "{text}");
    }
}
