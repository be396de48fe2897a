//! A file under its first name: beside the one that it becomes when it is whole, locked while it is written, removed when it is not
//! finished.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::failure::Failure;

/// What must not outlive this process when a signal ends it in the middle.
#[derive(Clone, Debug, Default)]
pub(super) struct Leftovers(Arc<Mutex<Vec<PathBuf>>>);

impl Leftovers {
    /// Adds a file.
    pub(super) fn add(&self, path: &Path) {
        self.lock().push(path.to_owned());
    }

    /// Removes them all. Nothing is added any more while the answer lives.
    #[must_use]
    pub(super) fn remove(&self) -> impl Sized + '_ {
        let paths = self.lock();
        for path in paths.iter() {
            let _ = std::fs::remove_file(path); // it may not be there yet, or any more
        }
        paths
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file; removed with this.
#[derive(Debug)]
pub(super) struct Partial {
    path: PathBuf,
    /// Holds the lock, by which another process knows that it is not stale.
    pub(super) file: File,
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path); // it may be gone, and nothing else can be done about one that stays
    }
}

impl Partial {
    /// Makes the file beside `file`, in place of one that an interrupted process left.
    ///
    /// # Errors
    /// [`Failure::Usage`] when another process writes it, or something else has its name.
    pub(super) fn beside(file: &Path, leftovers: &Leftovers) -> Result<Self, Failure> {
        let mut path = file.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        let mut paths = leftovers.lock(); // a signal removes what stands there, or comes before the file
        let file = Self::claim(&path)?;
        paths.push(path.clone());
        Ok(Self { path, file })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn claim(path: &Path) -> Result<File, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), source };
        loop {
            let (file, fresh) = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
                Ok(file) => (file, true),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match Self::open_stale(path) {
                    Ok(file) => (file, false),
                    Err(Failure::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => continue, // its process ended just now
                    Err(failure) => return Err(failure),
                },
                Err(error) => return Err(failed(error)),
            };
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    return Err(refused(path, "is being written by another backup", "wait for that one, or name another file"));
                }
                Err(TryLockError::Error(_)) if fresh => return Ok(file), // a file system without locks: nobody takes it for stale there
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
            // Between opening and locking, another process may have put its own file there.
            let (held, named) = (file.metadata().map_err(failed)?, std::fs::symlink_metadata(path));
            if !named.is_ok_and(|named| (named.dev(), named.ino()) == (held.dev(), held.ino())) {
                continue;
            }
            if fresh {
                return Ok(file);
            }
            std::fs::remove_file(path).map_err(failed)?; // whoever opened it before reads nothing of the new one
        }
    }

    /// Opens what has the name already.
    fn open_stale(path: &Path) -> Result<File, Failure> {
        let failed = |source| Failure::File { path: path.to_owned(), source };
        if !std::fs::symlink_metadata(path).map_err(failed)?.is_file() {
            return Err(refused(path, "exists and is no regular file", "move it away, or name another file"));
        }
        let flags = (nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits();
        OpenOptions::new().write(true).custom_flags(flags).open(path).map_err(failed)
    }
}

fn refused(path: &Path, what: &str, cure: &str) -> Failure {
    Failure::Usage { message: format!("{} {what}", path.display()), cure: Some(cure.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_file_is_replaced_and_one_in_use_or_of_another_kind_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, partial) = (folder.path().join("a.tar"), folder.path().join("a.tar.partial"));
        let claim = || Partial::beside(&file, &Leftovers::default());
        std::fs::write(&partial, "half").expect("it is written");
        let stale = File::open(&partial).expect("it is there");
        let held = claim().expect("nobody holds it");
        let now = held.file.metadata().expect("it is open");
        assert_eq!((now.len(), now.mode() & 0o777), (0, 0o600));
        assert_ne!(now.ino(), stale.metadata().expect("it is open").ino(), "who has the old one open sees nothing of the new one");
        let said = claim().expect_err("it is held").to_string();
        assert!(said.contains("is being written by another backup"), "{said}");
        assert!(partial.exists(), "and stays");
        drop(held);
        assert!(!partial.exists());
        std::os::unix::fs::symlink("/etc/hostname", &partial).expect("it is made");
        let said = claim().expect_err("a link").to_string();
        assert!(said.contains("no regular file"), "{said}");
        std::fs::remove_file(&partial).expect("it is removed");
        nix::unistd::mkfifo(&partial, nix::sys::stat::Mode::S_IRWXU).expect("it is made");
        let said = claim().expect_err("a FIFO").to_string();
        assert!(said.contains("no regular file"), "{said}");
    }
}
