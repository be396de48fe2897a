//! The thread that owns the chain.

use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::chain::{Chain, Head};
use super::fact::Fact;
use super::sink::{AuditFile, print};
use crate::types::Placement;

/// Facts under way to the thread. A state step makes at most a handful, each act two; one that finds the queue full waits.
const QUEUE: usize = 256;

/// An audit line could not be written: nothing may be created.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("cannot open the audit file {path}: {detail}")]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// The line cannot be written to stdout or the file.
    #[error("cannot write the audit line: {detail}")]
    Write {
        /// What the system said.
        detail: String,
    },
    /// The audit thread is gone.
    #[error("the audit log is closed")]
    Closed,
}

/// Handle to the audit log. Clones share one chain.
#[derive(Clone)]
pub struct Audit {
    queue: mpsc::Sender<(Fact, oneshot::Sender<Result<(), AuditError>>)>,
}

impl Audit {
    /// Opens the chain: that of `file`, or a new one that lives on stdout only. Writing blocks, hence a thread of its own; it
    /// ends when the last handle is dropped.
    ///
    /// # Errors
    /// [`AuditError::Open`] when the file cannot be opened for appending.
    pub fn open(boot_id: String, placement: Placement, file: Option<&Path>) -> Result<Self, AuditError> {
        let (mut file, head) = match file {
            None => (None, Head::default()),
            Some(path) => {
                let (file, head) = AuditFile::open(path).map_err(|error| AuditError::Open { path: path.to_owned(), detail: error.to_string() })?;
                (Some(file), head)
            }
        };
        let (queue, mut facts) = mpsc::channel::<(Fact, oneshot::Sender<_>)>(QUEUE);
        let mut chain = Chain::new(boot_id, placement, head);
        let write = move || {
            while let Some((fact, done)) = facts.blocking_recv() {
                let wrote = write_one(&mut chain, file.as_mut(), &fact).map_err(|error| AuditError::Write { detail: error.to_string() });
                let _ = done.send(wrote); // whoever asked may have gone
            }
        };
        std::thread::Builder::new().name("audit".into()).spawn(write).map_err(|error| AuditError::Write { detail: error.to_string() })?;
        Ok(Self { queue })
    }

    /// Writes a fact and waits until it is out.
    ///
    /// # Errors
    /// [`AuditError::Write`] or [`AuditError::Closed`].
    ///
    /// # Cancel safety
    /// The fact is written or not, whole in either case.
    pub async fn record(&self, fact: Fact) -> Result<(), AuditError> {
        let (done, wrote) = oneshot::channel();
        self.queue.send((fact, done)).await.map_err(|_| AuditError::Closed)?;
        wrote.await.map_err(|_| AuditError::Closed)?
    }
}

/// The file first: it is the one that is kept. What stdout then refuses was still written, so the chain moves on.
fn write_one(chain: &mut Chain, file: Option<&mut AuditFile>, fact: &Fact) -> io::Result<()> {
    let (line, head) = chain.line(fact, Timestamp::now())?;
    match file {
        Some(file) => {
            file.append(&line)?;
            chain.commit(head);
            print(&line)
        }
        None => {
            print(&line)?;
            chain.commit(head);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::verify;

    #[tokio::test]
    async fn what_was_recorded_is_in_the_file_when_record_returns() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        let audit = Audit::open("boot".into(), Placement::Cluster, Some(&path)).expect("the folder is ours");
        for digest in ["one", "two"] {
            audit.record(Fact::PolicyLoaded { digest: digest.into() }).await.expect("the folder is ours");
            let text = std::fs::read_to_string(&path).expect("it was written");
            assert!(text.ends_with('\n') && text.contains(&format!("\"policy\":\"{digest}\"")), "{text}");
            assert_eq!(verify(text.lines()), Ok(()));
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_an_error_that_names_it() {
        let missing = Audit::open("boot".into(), Placement::Cluster, Some(Path::new("/nonexistent/audit.log")));
        let error = missing.err().expect("the folder does not exist");
        assert!(error.to_string().contains("/nonexistent/audit.log"), "{error}");
    }
}
