//! How statements reach the database: writes one after another on a thread of their own, reads beside them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::exclusive::ExclusiveStore;
use super::restore::beside;
use crate::control_plane::store::{Reply, StoreError};
use crate::wire::MAX_BINARY;

/// Writes that may wait for the writer's thread; each waiting one holds at most one dispatch of 2 MiB, most far less.
const WRITE_QUEUE: usize = 128;
/// Reading connections that are kept open between reads.
const IDLE_READERS: usize = 4;
/// How long a statement waits for a lock of another connection, such as a backup's.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

pub(super) fn transact<T>(
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
#[derive(Clone)]
pub(crate) struct SqliteStore {
    engine: Engine,
}

/// Where statements run.
#[derive(Clone)]
enum Engine {
    /// A running server's: reads run beside the writer.
    Threads { writer: mpsc::Sender<Job>, readers: Arc<Readers>, failing: Arc<AtomicBool> },
    /// A simulation's: each call has run when it returns, so that one thread decides the order of everything.
    #[cfg(test)]
    Inline(Arc<Mutex<ExclusiveStore>>, Arc<Mutex<dyn FnMut() -> Fate + Send>>),
}

/// What becomes of a write in a simulation.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    /// The process dies before the commit.
    DiesBefore,
    /// The process dies after the commit and before anybody hears of it.
    DiesAfter,
}

impl SqliteStore {
    /// Starts the writer's thread over a folder that is held. The folder is let go when the last clone is dropped and what was
    /// queued is written.
    ///
    /// # Errors
    /// [`StoreError::Folder`] when no thread can be started.
    pub(crate) fn start(exclusive: ExclusiveStore) -> Result<Self, StoreError> {
        let ExclusiveStore { mut connection, file, lock, .. } = exclusive;
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
        let readers = Arc::new(Readers { file, idle: Mutex::default() });
        Ok(Self { engine: Engine::Threads { writer, readers, failing: Arc::default() } })
    }

    /// A store whose every call runs on the caller's thread, and is answered by a future that is ready. The folder is let go when
    /// the last clone is dropped.
    #[cfg(test)]
    pub(crate) fn inline(exclusive: ExclusiveStore) -> Self {
        Self::inline_with(exclusive, || Fate::Done)
    }

    /// Like [`SqliteStore::inline`]; `fate` is asked before each write.
    #[cfg(test)]
    pub(crate) fn inline_with(exclusive: ExclusiveStore, fate: impl FnMut() -> Fate + Send + 'static) -> Self {
        Self { engine: Engine::Inline(Arc::new(Mutex::new(exclusive)), Arc::new(Mutex::new(fate))) }
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Reply<'_, T> {
        let (writer, failing) = match &self.engine {
            Engine::Threads { writer, failing, .. } => (writer, Arc::clone(failing)),
            #[cfg(test)]
            Engine::Inline(exclusive, fate) => {
                let fate = fate.lock().unwrap_or_else(PoisonError::into_inner)();
                let mut exclusive = exclusive.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = match fate {
                    Fate::DiesBefore => Err(StoreError::Closed { doing }),
                    Fate::Done => transact(&mut exclusive.connection, doing, work),
                    Fate::DiesAfter => transact(&mut exclusive.connection, doing, work).and(Err(StoreError::Closed { doing })),
                };
                return std::future::ready(answer).boxed();
            }
        };
        async move {
            let (answer, answered) = oneshot::channel();
            let job: Job = Box::new(move |connection| {
                let done = transact(connection, doing, work);
                failing.store(done.is_err(), Ordering::Relaxed);
                drop(answer.send(done)); // the asker may have gone
            });
            writer.send(job).await.map_err(|_| StoreError::Closed { doing })?;
            answered.await.map_err(|_| StoreError::Closed { doing })?
        }
        .boxed()
    }

    /// Whether a transaction goes through. After one that did not, there must be room for the largest, and the file be writable: an
    /// empty transaction succeeds on a full disk too, and a small one in what the failed one had taken.
    pub(super) fn probe(&self) -> Reply<'_, ()> {
        let suspect = match &self.engine {
            Engine::Threads { readers, failing, .. } => failing.load(Ordering::Relaxed).then(|| readers.file.clone()),
            #[cfg(test)]
            Engine::Inline(..) => None,
        };
        async move {
            let failing = suspect.is_some();
            if let Some(file) = suspect {
                let room = tokio::task::spawn_blocking(move || find_room(&beside(&file, ".probe")));
                room.await.unwrap_or(Err(StoreError::Closed { doing: "look for room" }))?;
            }
            let check = move |tx: &Transaction<'_>| {
                let version: u32 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
                if failing { tx.pragma_update(None, "user_version", version) } else { Ok(()) }
            };
            self.write("check the database", check).await
        }
        .boxed()
    }

    pub(super) fn read<T: Send + 'static>(
        &self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Reply<'_, T> {
        let readers = match &self.engine {
            Engine::Threads { readers, .. } => Arc::clone(readers),
            #[cfg(test)]
            Engine::Inline(exclusive, _) => {
                let exclusive = exclusive.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = work(&exclusive.connection).map_err(|source| StoreError::Database { doing, source });
                return std::future::ready(answer).boxed();
            }
        };
        async move {
            let answer = tokio::task::spawn_blocking(move || readers.read(doing, work)).await;
            answer.unwrap_or(Err(StoreError::Closed { doing }))
        }
        .boxed()
    }
}

/// Finds out whether as much as the largest dispatch takes can be written, by writing it.
fn find_room(file: &Path) -> Result<(), StoreError> {
    let written = File::create(file).and_then(|mut probe| {
        probe.write_all(&vec![0; MAX_BINARY])?;
        probe.sync_data()
    });
    let removed = std::fs::remove_file(file);
    written.and(removed).map_err(|source| StoreError::Folder { path: file.to_owned(), source })
}
