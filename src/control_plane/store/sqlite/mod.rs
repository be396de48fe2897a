//! The store in one SQLite file: WAL, every commit synced, one thread that writes.
//!
//! Writes go through a bounded channel to the writer's thread, one immediate transaction each; reads run on connections of their
//! own, so that a slow listing holds up no launch. The data folder is locked by the operating system for the life of the writer.

mod convert;
mod directory;
mod dispatches;
mod log_rows;
mod schema;
mod sessions;

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::{
    Acceptance, Accepted, CallerToken, Cluster, DaemonRow, Deletion, Fence, Instance, InstanceFilter, Launched, LogProgress, Mode, NewLaunch, Offer,
    OpenSession, OpenedSession, Place, Provider, Put, Refusal, Refused, Removal, Reply, Reported, Store, StoreError, TokenRow, Write,
};
use crate::control_plane::tokens::TokenHash;
use crate::types::{DispatchId, InstanceName};
use crate::wire::{LogEndReason, Report};

/// Writes that may wait for the writer's thread; each waiting one holds at most one dispatch of 2 MiB, most far less.
const WRITE_QUEUE: usize = 128;
/// Reading connections that are kept open between reads.
const IDLE_READERS: usize = 4;
/// How long a statement waits for a lock of another connection, such as a backup's.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// Exclusive hold of a data folder, with its database open and up to date.
#[derive(Debug)]
pub(crate) struct ExclusiveStore {
    connection: Connection,
    file: PathBuf,
    lock: File,
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
        let lock_file = folder.join("lock");
        let lock = open(&lock_file).map_err(|error| at(&lock_file, error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: folder.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(at(&lock_file, error)),
        }
        let file = folder.join("lakeshore.db");
        drop(open(&file).map_err(|error| at(&file, error))?); // so that it and the files beside it are readable by their owner only
        let failed = |doing| {
            let path = file.clone();
            move |source| StoreError::Open { doing, path, source }
        };
        let mut connection = Connection::open(&file).map_err(failed("open the database"))?;
        prepare(&connection).map_err(failed("read the database"))?;
        schema::migrate(&mut connection, &file).map_err(failed("bring up to date the database"))?;
        Ok(Self { connection, file, lock })
    }

    /// Stores a caller token, without a server.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub(crate) fn create_token(&mut self, token: &TokenRow) -> Result<Put, StoreError> {
        transact(&mut self.connection, "create a token", |tx| directory::create_token(tx, token))
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

fn transact<T>(
    connection: &mut Connection,
    doing: &'static str,
    work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let run = |connection: &mut Connection| {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let answer = work(&transaction)?;
        transaction.commit()?;
        Ok(answer)
    };
    run(connection).map_err(|source| StoreError::Database { doing, source })
}

/// Connections that only read.
#[derive(Debug)]
struct Readers {
    file: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    fn read<T>(&self, doing: &'static str, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let failed = |source| StoreError::Database { doing, source };
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.open().map_err(failed)?,
        };
        let answer = work(&connection).map_err(failed);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_READERS {
            idle.push(connection);
        }
        answer
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        let connection = Connection::open_with_flags(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }
}

/// The store of a running server.
#[derive(Clone, Debug)]
pub(crate) struct SqliteStore {
    writer: mpsc::Sender<Job>,
    readers: Arc<Readers>,
}

impl SqliteStore {
    /// Starts the writer's thread over a folder that is held. The folder is let go when the last clone is dropped and what was
    /// queued is written.
    ///
    /// # Errors
    /// [`StoreError::Folder`] when no thread can be started.
    pub(crate) fn start(exclusive: ExclusiveStore) -> Result<Self, StoreError> {
        let ExclusiveStore { mut connection, file, lock } = exclusive;
        let (writer, mut jobs) = mpsc::channel::<Job>(WRITE_QUEUE);
        let run = move || {
            while let Some(job) = jobs.blocking_recv() {
                job(&mut connection);
            }
            drop(connection);
            drop(lock); // in this order: nobody else may open the file before the last write is in it
        };
        let failed = |source| StoreError::Folder { path: file.clone(), source };
        std::thread::Builder::new().name("store".into()).spawn(run).map_err(failed)?;
        Ok(Self { writer, readers: Arc::new(Readers { file, idle: Mutex::default() }) })
    }

    fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Reply<'_, T> {
        async move {
            let (answer, answered) = oneshot::channel();
            let job: Job = Box::new(move |connection| drop(answer.send(transact(connection, doing, work)))); // the asker may have gone
            self.writer.send(job).await.map_err(|_| StoreError::Closed { doing })?;
            answered.await.map_err(|_| StoreError::Closed { doing })?
        }
        .boxed()
    }

    fn read<T: Send + 'static>(&self, doing: &'static str, work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static) -> Reply<'_, T> {
        let readers = Arc::clone(&self.readers);
        async move {
            let answer = tokio::task::spawn_blocking(move || readers.read(doing, work)).await;
            answer.unwrap_or(Err(StoreError::Closed { doing }))
        }
        .boxed()
    }
}

impl Store for SqliteStore {
    fn create_cluster(&self, cluster: Cluster, enrolment: String, hash: TokenHash) -> Reply<'_, Put> {
        self.write("enrol a cluster", move |tx| directory::create_cluster(tx, &cluster, &enrolment, &hash))
    }

    fn clusters(&self) -> Reply<'_, Vec<(Cluster, u64)>> {
        self.read("list clusters", directory::clusters)
    }

    fn cluster_by_token(&self, hash: TokenHash, now: Timestamp) -> Reply<'_, Option<Cluster>> {
        async move {
            let found = self.read("look up an enrolment token", move |connection| directory::cluster_by_token(connection, &hash)).await?;
            let Some((cluster, enrolment)) = found else { return Ok(None) }; // a stranger must not make the database write
            self.write("note the use of an enrolment token", move |tx| directory::note_enrolment_used(tx, &enrolment, now)).await?;
            Ok(Some(cluster))
        }
        .boxed()
    }

    fn create_token(&self, token: TokenRow) -> Reply<'_, Put> {
        self.write("create a token", move |tx| directory::create_token(tx, &token))
    }

    fn put_bootstrap_token(&self, token: TokenRow) -> Reply<'_, Put> {
        self.write("store the bootstrap token", move |tx| directory::put_bootstrap_token(tx, &token))
    }

    fn tokens(&self) -> Reply<'_, Vec<CallerToken>> {
        self.read("list tokens", directory::tokens)
    }

    fn caller_by_token(&self, hash: TokenHash) -> Reply<'_, Option<CallerToken>> {
        self.read("look up a token", move |connection| directory::caller_by_token(connection, &hash))
    }

    fn revoke_token(&self, id: String, now: Timestamp) -> Reply<'_, bool> {
        self.write("revoke a token", move |tx| directory::revoke_token(tx, &id, now))
    }

    fn create_namespace(&self, name: String, now: Timestamp) -> Reply<'_, Put> {
        self.write("create a namespace", move |tx| directory::create_namespace(tx, &name, now))
    }

    fn namespaces(&self) -> Reply<'_, Vec<(String, Timestamp)>> {
        self.read("list namespaces", directory::namespaces)
    }

    fn put_provider(&self, provider: Provider, write: Write, now: Timestamp) -> Reply<'_, Put> {
        self.write("store a provider", move |tx| directory::put_provider(tx, &provider, write, now))
    }

    fn provider(&self, namespace: String, name: String) -> Reply<'_, Option<Provider>> {
        self.read("read a provider", move |connection| directory::provider(connection, &namespace, &name))
    }

    fn providers(&self, namespace: String) -> Reply<'_, Vec<Provider>> {
        self.read("list providers", move |connection| directory::providers(connection, &namespace))
    }

    fn remove_provider(&self, namespace: String, name: String) -> Reply<'_, Removal> {
        self.write("remove a provider", move |tx| directory::remove_provider(tx, &namespace, &name))
    }

    fn put_mode(&self, mode: Mode, write: Write, now: Timestamp) -> Reply<'_, Put> {
        self.write("store a mode", move |tx| directory::put_mode(tx, &mode, write, now))
    }

    fn mode(&self, namespace: String, name: String) -> Reply<'_, Option<Mode>> {
        self.read("read a mode", move |connection| directory::mode(connection, &namespace, &name))
    }

    fn modes(&self, namespace: String) -> Reply<'_, Vec<Mode>> {
        self.read("list modes", move |connection| directory::modes(connection, &namespace))
    }

    fn remove_mode(&self, namespace: String, name: String) -> Reply<'_, bool> {
        self.write("remove a mode", move |tx| directory::remove_mode(tx, &namespace, &name))
    }

    fn open_session(&self, session: OpenSession) -> Reply<'_, OpenedSession> {
        self.write("open a session", move |tx| sessions::open(tx, &session))
    }

    fn unconfirmed_deletions(&self, place: Place) -> Reply<'_, Vec<InstanceName>> {
        self.read("list deletions", move |connection| sessions::unconfirmed_deletions(connection, &place))
    }

    fn close_session(&self, fence: Fence, last_seen: Timestamp) -> Reply<'_, ()> {
        self.write("close a session", move |tx| sessions::close(tx, &fence, last_seen))
    }

    fn daemons(&self) -> Reply<'_, Vec<DaemonRow>> {
        self.read("list daemons", sessions::daemons)
    }

    fn daemon(&self, cluster: String, node: String) -> Reply<'_, Option<DaemonRow>> {
        self.read("read a daemon", move |connection| sessions::one(connection, &cluster, &node))
    }

    fn launch(&self, launch: NewLaunch) -> Reply<'_, Launched> {
        self.write("store a launch", move |tx| dispatches::launch(tx, &launch))
    }

    fn mark_answered(&self, dispatch_id: DispatchId) -> Reply<'_, Option<Instance>> {
        self.write("mark a launch as answered", move |tx| dispatches::mark_answered(tx, &dispatch_id))
    }

    fn queued(&self, place: Place, after: i64, limit: u32, max_open: u32) -> Reply<'_, Vec<Offer>> {
        self.read("list queued dispatches", move |connection| dispatches::queued(connection, &place, after, limit, max_open))
    }

    fn offer(&self, place: Place, dispatch_id: DispatchId) -> Reply<'_, Option<Offer>> {
        self.read("read a queued dispatch", move |connection| dispatches::offer(connection, &place, &dispatch_id))
    }

    fn accept(&self, fence: Fence, acceptance: Acceptance) -> Reply<'_, Accepted> {
        self.write("accept a dispatch", move |tx| dispatches::accept(tx, &fence, &acceptance))
    }

    fn refuse(&self, fence: Fence, refusal: Refusal) -> Reply<'_, Refused> {
        self.write("refuse a dispatch", move |tx| dispatches::refuse(tx, &fence, &refusal))
    }

    fn report(&self, fence: Fence, report: Box<Report>) -> Reply<'_, Reported> {
        self.write("store a report", move |tx| dispatches::report(tx, &fence, &report))
    }

    fn request_delete(&self, namespace: String, provider: String, instance: InstanceName, now: Timestamp) -> Reply<'_, Deletion> {
        self.write("store a wish to delete", move |tx| dispatches::request_delete(tx, &namespace, &provider, &instance, now))
    }

    fn instance(&self, namespace: String, instance: InstanceName) -> Reply<'_, Option<Instance>> {
        let read = move |connection: &Connection| Ok(dispatches::named(connection, &instance)?.filter(|row| row.namespace == namespace));
        self.read("read an instance", read)
    }

    fn instance_of(&self, dispatch_id: DispatchId) -> Reply<'_, Option<Instance>> {
        self.read("read an instance", move |connection| dispatches::of_dispatch(connection, &dispatch_id))
    }

    fn instances(&self, filter: InstanceFilter) -> Reply<'_, Vec<Instance>> {
        self.read("list instances", move |connection| dispatches::list(connection, &filter))
    }

    fn commit_logs(&self, fence: Fence, progress: Vec<LogProgress>) -> Reply<'_, bool> {
        self.write("commit logs", move |tx| log_rows::commit(tx, &fence, &progress))
    }

    fn end_log(&self, fence: Fence, dispatch_id: DispatchId, reason: LogEndReason) -> Reply<'_, bool> {
        self.write("end a log", move |tx| log_rows::end(tx, &fence, &dispatch_id, reason))
    }

    fn ping(&self) -> Reply<'_, ()> {
        self.write("check the database", |tx| tx.query_row("SELECT 1", [], |_| Ok(())))
    }
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
