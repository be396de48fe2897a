//! Workdirs: `<root>/<kubernetes namespace>/<instance>`.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

use super::HostError;
use crate::types::{InstanceName, KubeNamespace};

/// Parents: nobody but the daemon may look in, so a leaf is reached only through its own Pod's mount.
const PARENT: Mode = Mode::S_IRWXU;
/// The leaf: the image decides as whom it runs, so everyone may write.
const LEAF: Mode = Mode::S_IRWXU.union(Mode::S_IRWXG).union(Mode::S_IRWXO);
/// Name of the folder that is made and removed to see whether the root can be written. No namespace begins with a dot.
const PROBE: &str = ".nymph-probe";

/// The root below which workdirs are made.
#[derive(Clone, Debug)]
pub struct Workdirs {
    root: PathBuf,
}

impl Workdirs {
    /// Takes `root`, and makes it with its parents where it is missing.
    ///
    /// Folders *above* the root are the node owner's: links among them are followed.
    ///
    /// # Errors
    /// [`HostError`] when the root is no absolute path, a link, not a folder, not ours, or cannot be made.
    pub fn open(root: &Path) -> Result<Self, HostError> {
        if !root.is_absolute() || root.file_name().is_none() {
            return Err(HostError::Root { path: root.to_owned() });
        }
        let parent = root.parent().unwrap_or(root);
        if !root.exists() {
            let errno = |error: std::io::Error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(|error| HostError::refused("failed to make the folders above", root, errno(error)))?;
        }
        let workdirs = Self { root: root.to_owned() };
        workdirs.root()?;
        Ok(workdirs)
    }

    /// Makes the workdir of `instance`, world-writable whatever the umask. One that is there already stays as it is.
    ///
    /// # Errors
    /// [`HostError`]; nothing is followed, replaced or removed.
    pub fn create(&self, namespace: &KubeNamespace, instance: &InstanceName) -> Result<(), HostError> {
        let root = self.root()?;
        let path = self.root.join(namespace.as_str());
        let parent = folder(&root, namespace.as_str(), &path, PARENT)?;
        folder(&parent, instance.as_str(), &path.join(instance.as_str()), LEAF)?;
        Ok(())
    }

    /// Sees whether workdirs can be made, by making and removing a folder.
    ///
    /// # Errors
    /// [`HostError`] with the path and the cure.
    pub fn writable(&self) -> Result<(), HostError> {
        let root = self.root()?;
        let path = self.root.join(PROBE);
        match mkdirat(&root, PROBE, PARENT) {
            // Left behind by a daemon that was killed in between, or another check is doing the same right now.
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(source) => return Err(HostError::refused("failed to make", path, source)),
        }
        match unlinkat(&root, PROBE, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(source) => Err(HostError::refused("failed to remove", path, source)),
        }
    }

    /// Opens the root anew: a descriptor kept for ever would go on naming a folder that was exchanged or unmounted meanwhile.
    fn root(&self) -> Result<OwnedFd, HostError> {
        let (Some(parent), Some(name)) = (self.root.parent(), self.root.file_name()) else {
            return Err(HostError::Root { path: self.root.clone() });
        };
        let above = open(parent, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_PATH, Mode::empty())
            .map_err(|source| HostError::refused("failed to open", parent, source))?;
        folder(&above, Path::new(name), &self.root, PARENT)
    }
}

/// Opens the folder `name` of the open folder `parent`, making it where it is missing, and sets its mode. `path` is for messages.
fn folder<P: ?Sized + nix::NixPath>(parent: &OwnedFd, name: &P, path: &Path, mode: Mode) -> Result<OwnedFd, HostError> {
    let refused = |doing| move |source| HostError::refused(doing, path, source);
    match mkdirat(parent, name, PARENT) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(source) => return Err(refused("failed to make")(source)),
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_RDONLY;
    let folder = match openat(parent, name, flags, Mode::empty()) {
        Ok(folder) => folder,
        Err(source @ (Errno::ELOOP | Errno::ENOTDIR)) => {
            let found = fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).map_or("something that went away meanwhile", |stat| kind(stat.st_mode));
            return Err(if found == "a folder" { refused("failed to open")(source) } else { HostError::InTheWay { path: path.to_owned(), found } });
        }
        Err(source) => return Err(refused("failed to open")(source)),
    };
    let stat = fstat(folder.as_fd()).map_err(refused("failed to look at"))?;
    let own = Uid::effective();
    if stat.st_uid != own.as_raw() {
        return Err(HostError::Owner { path: path.to_owned(), owner: stat.st_uid, expected: own.as_raw() });
    }
    // By descriptor, since mkdirat's mode is cut by the umask; and only where it differs, so that a root mounted
    // read-only is told by the step that needs to write.
    if Mode::from_bits_truncate(stat.st_mode) & (LEAF | Mode::S_ISUID | Mode::S_ISGID) != mode {
        fchmod(folder.as_fd(), mode).map_err(refused("failed to set the mode of"))?;
    }
    Ok(folder)
}

fn kind(mode: nix::libc::mode_t) -> &'static str {
    match SFlag::from_bits_truncate(mode) & SFlag::S_IFMT {
        SFlag::S_IFLNK => "a symbolic link",
        SFlag::S_IFREG => "a file",
        SFlag::S_IFDIR => "a folder",
        _ => "a device, pipe or socket",
    }
}

#[cfg(test)]
#[path = "workdir_tests.rs"]
mod tests;
