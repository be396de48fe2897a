//! Where audit lines go.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::chain::{Head, head_of};

/// Size at which the file is renamed to `<name>.1` (over an older one) and begun anew: two of them are what a node gives.
const ROTATE_AT: u64 = 64 << 20;
/// How much of the file's end is read to find its last line: many times the longest line, whose texts are all bounded.
const TAIL: u64 = 256 << 10;

/// An append-only file, fsynced after each line.
pub(super) struct AuditFile {
    path: PathBuf,
    file: File,
    length: u64,
    limit: u64,
}

impl AuditFile {
    /// Opens or makes the file (mode 0600, never through a symlink) and finds the chain's head in it.
    ///
    /// A last line that a crash cut off is closed with a newline and left for the reader; the chain goes on from the line before.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Head)> {
        Self::open_with_limit(path, ROTATE_AT)
    }

    fn open_with_limit(path: &Path, limit: u64) -> io::Result<(Self, Head)> {
        let mut file = Self::append_to(path)?;
        let mut length = file.metadata()?.len();
        let mut tail = Vec::new();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        (&mut file).take(TAIL).read_to_end(&mut tail)?;
        if tail.last().is_some_and(|&last| last != b'\n') {
            file.write_all(b"\n")?;
            length += 1;
        }
        let head = String::from_utf8_lossy(&tail).lines().rev().find_map(head_of).unwrap_or_default();
        Ok((Self { path: path.to_owned(), file, length, limit }, head))
    }

    fn append_to(path: &Path) -> io::Result<File> {
        let no_follow = nix::fcntl::OFlag::O_NOFOLLOW.bits();
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).custom_flags(no_follow).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
        }
        // The mode above is only for a file that is made now, and passes through the umask.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        Ok(file)
    }

    /// Appends a line and waits until it is on disk.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        if self.length + line.len() as u64 > self.limit && self.length > 0 {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, &old)?;
            self.file = Self::append_to(&self.path)?;
            self.length = 0;
        }
        let wrote = self.file.write_all(line.as_bytes()).and_then(|()| self.file.sync_data());
        if wrote.is_err() {
            // Half a line may be there: cut it off, so that the next line does not begin in its middle.
            let _ = self.file.set_len(self.length);
        } else {
            self.length += line.len() as u64;
        }
        wrote
    }
}

/// One whole line to stdout under its lock, so that no log line gets into its middle.
pub(super) fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::chain::Chain;
    use crate::audit::{Fact, verify};
    use jiff::Timestamp;
    use std::os::unix::fs::PermissionsExt;

    fn write(path: &Path, limit: u64, facts: usize) {
        let (mut file, head) = AuditFile::open_with_limit(path, limit).expect("the folder is ours");
        let mut chain = Chain::new("boot".into(), crate::types::Placement::Cluster, head);
        for _ in 0..facts {
            let (line, head) = chain.line(&Fact::DaemonStarted { version: "1" }, Timestamp::UNIX_EPOCH).expect("plain values");
            file.append(&line).expect("the folder is ours");
            chain.commit(head);
        }
    }

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).expect("it was written")
    }

    #[test]
    fn the_chain_goes_on_over_restarts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        write(&path, ROTATE_AT, 2);
        write(&path, ROTATE_AT, 2);
        assert_eq!(read(&path).lines().count(), 4);
        assert_eq!(verify(read(&path).lines()), Ok(()));
        assert_eq!(std::fs::metadata(&path).expect("it was written").permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_cut_off_by_a_crash_does_not_swallow_the_next() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        write(&path, ROTATE_AT, 2);
        let text = read(&path);
        std::fs::write(&path, &text[..text.len() - 30]).expect("the folder is ours");
        write(&path, ROTATE_AT, 1);
        let text = read(&path);
        let whole: Vec<&str> = text.lines().filter(|line| head_of(line).is_some()).collect();
        assert_eq!(whole.len(), 2);
        assert_eq!(verify(whole), Ok(()));
    }

    #[test]
    fn the_chain_goes_on_over_a_rotation() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        write(&path, 1500, 5);
        let (old, new) = (read(&folder.path().join("audit.log.1")), read(&path));
        assert!(old.len() <= 1500 && !new.is_empty());
        assert_eq!(verify(old.lines().chain(new.lines())), Ok(()));
    }

    #[test]
    fn a_line_that_could_not_be_written_is_an_error_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.log");
        write(&path, ROTATE_AT, 1);
        let before = read(&path);
        let read_only = File::open(&path).expect("it was written");
        let mut file = AuditFile { path: path.clone(), file: read_only, length: before.len() as u64, limit: ROTATE_AT };
        assert!(file.append("{}\n").is_err());
        assert_eq!(read(&path), before);
    }

    #[test]
    fn a_device_is_not_taken_for_a_file() {
        assert!(AuditFile::open(Path::new("/dev/null")).is_err());
    }

    #[test]
    fn a_symlink_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let link = folder.path().join("audit.log");
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).expect("the folder is ours");
        assert!(AuditFile::open(&link).is_err());
    }
}
