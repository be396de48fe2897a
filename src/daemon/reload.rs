//! Notices a changed policy or token file.
//!
//! A mounted ConfigMap or Secret changes by a swap of the symlink `..data` beside the file, so that the folder is watched, any event in it
//! means "look", and only the content decides.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::effects::Hands;
use super::event::Event;
use crate::audit::Fact;
use crate::error::Chain;
use crate::policy::Policy;
use crate::types::KubeNamespace;

/// A swap is several events within a millisecond or two.
const SETTLE: Duration = Duration::from_millis(100);
/// Looks again without any event: inotify does not see every file system.
const POLL: Duration = Duration::from_secs(60);
/// Longest policy file: a thousand image patterns fit many times.
const MAX_POLICY: u64 = 1 << 20;

/// A policy file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PolicyFileError {
    /// It cannot be read.
    #[error("cannot read the policy file {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It is not valid.
    #[error("the policy file {path} is not valid")]
    Invalid {
        path: PathBuf,
        #[source]
        source: crate::policy::PolicyError,
    },
}

/// Reads and checks the policy. `own` is the daemon's namespace, in which nothing may ever run.
///
/// # Errors
/// [`PolicyFileError`].
pub(super) fn read_policy(path: &Path, own: Option<&KubeNamespace>) -> Result<Policy, PolicyFileError> {
    let read = |source| PolicyFileError::Read { path: path.to_owned(), source };
    if std::fs::metadata(path).map_err(read)?.len() > MAX_POLICY {
        return Err(read(std::io::Error::other(format!("it is over {MAX_POLICY} bytes"))));
    }
    let text = std::fs::read_to_string(path).map_err(read)?;
    let invalid = |source| PolicyFileError::Invalid { path: path.to_owned(), source };
    let policy = Policy::parse(&text).map_err(invalid)?;
    if let Some(own) = own {
        policy.keep_out_of(own).map_err(invalid)?;
    }
    Ok(policy)
}

/// What is watched.
pub(super) struct Reload {
    pub(super) policy_file: PathBuf,
    pub(super) token_files: Vec<PathBuf>,
    pub(super) own_namespace: Option<KubeNamespace>,
    pub(super) hands: Hands,
    /// Counts the changes of the token files.
    pub(super) token_changed: watch::Sender<u64>,
}

impl Reload {
    /// Looks at the files whenever something happens in their folders, until cancelled.
    pub(super) async fn run(self, cancel: CancellationToken) {
        let (poke, mut poked) = mpsc::channel::<()>(1); // one waiting "look" is as good as many
        let files: Vec<&Path> = self.token_files.iter().chain([&self.policy_file]).map(PathBuf::as_path).collect();
        let _watcher = watch_folders(&files, poke);
        let mut polls = interval(POLL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut policy = digest(&self.policy_file);
        let mut tokens = self.token_digests();
        loop {
            tokio::select! {
                () = cancel.cancelled() => return,
                _ = polls.tick() => {}
                Some(()) = poked.recv() => sleep(SETTLE).await,
            }
            let (policy_now, tokens_now) = (digest(&self.policy_file), self.token_digests());
            if tokens_now != tokens {
                tokens = tokens_now;
                self.token_changed.send_modify(|count| *count += 1);
            }
            if policy_now != policy {
                policy = policy_now;
                self.policy_changed().await;
            }
        }
    }

    fn token_digests(&self) -> Vec<Option<[u8; 32]>> {
        self.token_files.iter().map(|file| digest(file)).collect()
    }

    async fn policy_changed(&self) {
        match read_policy(&self.policy_file, self.own_namespace.as_ref()) {
            Ok(policy) => {
                info!(digest = policy.digest(), "The policy changed and is in force");
                let _ = self.hands.events.send(Event::PolicyChanged(Box::new(policy))).await; // the loop is gone only when the process ends
            }
            Err(error) => {
                let message = Chain(&error).to_string();
                warn!(error = message, "The changed policy is not valid; the one before stays in force");
                self.hands.record(Fact::PolicyRejected { message }).await;
            }
        }
    }
}

/// The content's hash; `None` when it cannot be read, which is a state like any other.
fn digest(path: &Path) -> Option<[u8; 32]> {
    std::fs::read(path).ok().map(|bytes| Sha256::digest(&bytes).into())
}

/// The watcher lives as long as the value.
fn watch_folders(files: &[&Path], poke: mpsc::Sender<()>) -> Option<RecommendedWatcher> {
    let notice = move |event: notify::Result<notify::Event>| {
        // Reading a file is an event too, and looking must not cause the next look.
        if event.is_ok_and(|event| !event.kind.is_access()) {
            let _ = poke.try_send(()); // full: a look is due already
        }
    };
    let mut watcher = match notify::recommended_watcher(notice) {
        Ok(watcher) => watcher,
        Err(error) => {
            warn!(error = %error, "Cannot watch files; looking at them once a minute");
            return None;
        }
    };
    for file in files {
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
            warn!(folder = %folder.display(), error = %error, "Cannot watch the folder; looking at it once a minute");
        }
    }
    Some(watcher)
}
