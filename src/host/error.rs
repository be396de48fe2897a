//! Why a folder could not be made.

use std::path::PathBuf;

use nix::errno::Errno;

/// A folder that could not be made or is not fit. Each names the path and the cure.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The root is not an absolute path, or is `/` itself.
    #[error("the workdir root {path:?} is not an absolute path below '/'; correct `workdir.root` in the daemon's configuration")]
    Root {
        /// The path.
        path: PathBuf,
    },
    /// A symbolic link, a file or another thing stands where a folder belongs.
    #[error("{path:?} is not a folder but {found}; nothing is followed or replaced there: move it away on the node")]
    InTheWay {
        /// The path.
        path: PathBuf,
        /// What stands there.
        found: &'static str,
    },
    /// The folder belongs to another user, who could exchange what is in it.
    #[error("{path:?} belongs to user {owner} and not to {expected}, as whom the daemon runs; on the node: chown {expected} {path:?}")]
    Owner {
        /// The path.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The daemon's user.
        expected: u32,
    },
    /// The kernel refused.
    #[error("{doing} {path:?}{cure}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// The path.
        path: PathBuf,
        /// What to do about it; begins with punctuation, may be empty.
        cure: &'static str,
        /// What the kernel said.
        #[source]
        source: Errno,
    },
}

impl HostError {
    pub(super) fn refused(doing: &'static str, path: impl Into<PathBuf>, source: Errno) -> Self {
        let cure = match source {
            Errno::EROFS => "; the file system is read-only: mount the workdir root writable into the daemon (chart value `workdir.root`)",
            Errno::EACCES | Errno::EPERM => "; the daemon needs to run as the owner of the workdir root, with write permission",
            Errno::ENOSPC | Errno::EDQUOT => "; the disk or its inodes are used up: free some on the node",
            Errno::ENOENT => "; a folder above it has gone: restart the daemon, or make it again on the node",
            _ => "",
        };
        Self::Refused { doing, path: path.into(), cure, source }
    }
}
