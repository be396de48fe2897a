//! What can go wrong with the store itself. Expected outcomes are variants of each call's answer, not errors.

use std::path::PathBuf;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data folder cannot be used.
    #[error("prepare the data folder {}", path.display())]
    Folder {
        /// The folder or file at fault.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another process has the data folder.
    #[error("the data folder {} is in use by another process; stop it, or give this one a folder of its own", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The database is missing or empty where there was one.
    #[error(
        "{} is missing or empty, and {} shows that there was a database here; put it back, or unpack a backup into an empty folder, or empty this \
         folder to begin anew",
        path.display(),
        left.display()
    )]
    DatabaseGone {
        /// The database.
        path: PathBuf,
        /// What is left.
        left: PathBuf,
    },
    /// The database cannot be opened: damaged, not a database, or on a file system that is full or read-only.
    #[error("{doing} {}", path.display())]
    Open {
        /// What was being done.
        doing: &'static str,
        /// Its file.
        path: PathBuf,
        /// What the database said.
        #[source]
        source: rusqlite::Error,
    },
    /// The database refused.
    #[error("{doing} in the database")]
    Database {
        /// What was being done.
        doing: &'static str,
        /// What the database said.
        #[source]
        source: rusqlite::Error,
    },
    /// The thread that writes has ended.
    #[error("{doing}: the store is closed")]
    Closed {
        /// What was being done.
        doing: &'static str,
    },
}

impl StoreError {
    /// Whether there is no room on the disk. The transaction left nothing behind; the next one may find room.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Open { source, .. } | Self::Database { source, .. } => source.sqlite_error_code() == Some(rusqlite::ErrorCode::DiskFull),
            Self::Folder { source, .. } => matches!(source.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded),
            Self::InUse { .. } | Self::DatabaseGone { .. } | Self::Closed { .. } => false,
        }
    }
}
