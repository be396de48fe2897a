//! `lakeshore backup`: a consistent copy of all that the control plane keeps, as one tar archive that unpacks to a data folder.
//!
//! The database is copied first and the logs after it. A row says how much of its log is on disk, and a log only grows: so what a
//! row of the copy counts is in the segments that are read later, and exactly that much of them goes into the archive.

mod archive;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::admin_socket;
use super::logs::LogFiles;
use super::store::{DATABASE, ExclusiveStore, LOGS, StoreError, StoredLog};
use crate::types::shell_word;
use archive::Archive;

/// A backup that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackedUp {
    /// Length of the database, in bytes.
    pub database_bytes: u64,
    /// How many logs are in it.
    pub logs: u64,
    /// Length of all logs, in bytes.
    pub log_bytes: u64,
    /// Instances of whose logs the disk holds less than was stored: the copy has what is there.
    pub damaged_logs: Vec<String>,
    /// What the operator must know of how the database was found, when no server had opened it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// A backup that was not made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The store cannot be used.
    #[error("copy the store")]
    Store(#[from] StoreError),
    /// The folder cannot be locked, and its database not be brought to one state.
    #[error("{} cannot be written to, which a backup needs: back up a copy of it that can, made by `cp -a {} COPY`", path.display(), shell_word(&path.to_string_lossy()))]
    ReadOnly {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// There is nothing to copy.
    #[error("{} holds no {DATABASE}: it is no data folder of a control plane", path.display())]
    NoData {
        /// The folder.
        path: PathBuf,
    },
    /// A file cannot be read, or the archive cannot be written.
    #[error("write the archive")]
    Archive(#[source] io::Error),
    /// No server runs, and somebody else has the folder.
    #[error("{}", admin_socket::held(path))]
    Held {
        /// The folder.
        path: PathBuf,
    },
    /// A server holds the folder, and its socket did not answer.
    #[error("ask the server that runs on this data folder, by {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server could not make it.
    #[error("the server says: {0}")]
    Refused(String),
}

/// How far a backup is.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// The server has said nothing for so long.
    Waiting {
        /// Since its last word.
        silent: Duration,
    },
    /// This process is about to write a copy of the database. Whoever ends the process before the backup has ended removes it.
    Copying {
        /// The copy.
        copy: &'a Path,
    },
    /// Content has been written.
    Written {
        /// So many bytes.
        bytes: u64,
        /// Of so many.
        of: u64,
    },
}

/// Hears of each [`Step`].
pub type Progress<'a> = dyn FnMut(Step<'_>) + 'a;

/// Writes a backup of the data folder `data` to `out`: by the running server when there is one, else from the files themselves.
///
/// # Errors
/// [`BackupError`]; what was written is no backup then.
pub fn back_up(data: &Path, out: &mut dyn Write, progress: &mut Progress<'_>) -> Result<BackedUp, BackupError> {
    if !data.join(DATABASE).exists() {
        return Err(BackupError::NoData { path: data.to_owned() });
    }
    let exclusive = match ExclusiveStore::open(data) {
        Ok(exclusive) => exclusive,
        Err(StoreError::InUse { .. }) => return admin_socket::back_up(data, out, progress),
        Err(StoreError::Folder { source, .. }) if is_read_only(&source) => return Err(BackupError::ReadOnly { path: data.to_owned(), source }),
        Err(error) => return Err(error.into()),
    };
    let copy = Copied::in_folder(data);
    progress(Step::Copying { copy: copy.path() });
    let logs = exclusive.copy(&copy.0)?;
    let files = LogFiles::at(data.join(LOGS));
    let plan = Plan::new(copy, logs, &files).map_err(BackupError::Archive)?;
    let mut out = Counting { out, written: 0, total: plan.bytes(), progress };
    let done = plan.write(&mut out).map_err(BackupError::Archive)?;
    Ok(BackedUp { notices: exclusive.notices().to_vec(), ..done })
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The database's copy, on its way into the archive. Removed when it is no longer needed.
pub(crate) struct Copied(PathBuf);

impl Copied {
    pub(crate) fn in_folder(data: &Path) -> Self {
        Self(data.join("lakeshore.db.backup"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // the next backup overwrites one that stays, and the next server removes it
    }
}

/// A piece of a log that goes into the archive.
struct Piece {
    name: String,
    path: PathBuf,
    bytes: u64,
}

/// What an archive will hold.
pub(crate) struct Plan {
    copy: Copied,
    /// Each log's folder, and its pieces.
    logs: Vec<(String, Vec<Piece>)>,
    summary: BackedUp,
}

impl Plan {
    /// Looks at what there is. The rows of the copy were read before.
    ///
    /// # Errors
    /// When a file cannot be looked at.
    pub(crate) fn new(copy: Copied, stored: Vec<StoredLog>, files: &LogFiles) -> io::Result<Self> {
        let mut summary = BackedUp { database_bytes: std::fs::metadata(&copy.0)?.len(), ..BackedUp::default() };
        let mut logs = Vec::new();
        for StoredLog { instance, bytes } in stored {
            let folder = format!("{LOGS}/{instance}");
            let mut pieces = Vec::new();
            for (path, wanted) in files.segments(&instance, bytes) {
                let there = match std::fs::metadata(&path) {
                    Ok(metadata) => metadata.len(),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
                    Err(error) => return Err(error),
                };
                let name = path.file_name().map(|name| format!("{folder}/{}", name.to_string_lossy())).unwrap_or_default();
                pieces.push(Piece { name, path, bytes: wanted.min(there) });
                if there < wanted {
                    summary.damaged_logs.push(instance.to_string());
                    break; // what comes after a hole is of no use
                }
            }
            summary.logs += 1;
            summary.log_bytes += pieces.iter().map(|piece| piece.bytes).sum::<u64>();
            logs.push((folder, pieces));
        }
        Ok(Self { copy, logs, summary })
    }

    /// Bytes of content; the archive has some more.
    pub(crate) fn bytes(&self) -> u64 {
        self.summary.database_bytes + self.summary.log_bytes
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When a file cannot be read, or `out` not written.
    pub(crate) fn write(self, out: &mut dyn Write) -> io::Result<BackedUp> {
        let owner = (nix::unistd::geteuid().as_raw(), nix::unistd::getegid().as_raw());
        let mut archive = Archive::new(out, owner, Timestamp::now().as_second().unsigned_abs());
        archive.file(DATABASE, self.summary.database_bytes, File::open(&self.copy.0)?)?;
        archive.folder(LOGS)?;
        for (folder, pieces) in &self.logs {
            archive.folder(folder)?;
            for Piece { name, path, bytes } in pieces.iter().filter(|piece| piece.bytes > 0) {
                archive.file(name, *bytes, File::open(path)?)?;
            }
        }
        archive.finish()?;
        Ok(self.summary)
    }
}

/// Tells how far it is.
pub(crate) struct Counting<'a> {
    pub(crate) out: &'a mut dyn Write,
    pub(crate) written: u64,
    pub(crate) total: u64,
    pub(crate) progress: &'a mut Progress<'a>,
}

impl Write for Counting<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written += written as u64;
        (self.progress)(Step::Written { bytes: self.written.min(self.total), of: self.total });
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
