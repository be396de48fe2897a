//! Log bytes on disk: append-only segment files, `logs/<instance>/<offset of its first byte>.log`.
//!
//! Order: bytes are appended and synced here, and only then the row says that they are stored. Bytes beyond what the row says are
//! therefore left over from a crash: readers never reach them, and the next append cuts them off. There is one writer an
//! instance: the session that holds its place.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use crate::types::InstanceName;

/// Length of a full segment, in bytes: small enough that retention can free a log piece by piece.
const SEGMENT: u64 = 8 << 20;

/// The folder of all logs.
#[derive(Clone, Debug)]
pub(crate) struct LogFiles {
    root: PathBuf,
}

impl LogFiles {
    /// Uses `root`, which is made when it is missing.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn open(root: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&root)?;
        Ok(Self { root })
    }

    /// The logs below `root`, to be read only: nothing is made.
    pub(crate) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The files that hold the first `length` bytes of a log, each with how many of them.
    pub(crate) fn segments(&self, instance: &InstanceName, length: u64) -> Vec<(PathBuf, u64)> {
        let starts = (0..length.div_ceil(SEGMENT)).map(|number| number * SEGMENT);
        starts.map(|start| (self.segment(instance, start).0, (length - start).min(SEGMENT))).collect()
    }

    fn segment(&self, instance: &InstanceName, offset: u64) -> (PathBuf, u64) {
        let start = offset - offset % SEGMENT;
        (self.root.join(instance.as_str()).join(format!("{start:020}.log")), offset - start)
    }

    /// Writes `pieces` at `offset`, which is the length that the row says, and waits until they are on disk.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] when less is on disk than the row says; else what the system said.
    pub(crate) fn append(&self, instance: &InstanceName, mut offset: u64, pieces: &[Bytes]) -> io::Result<()> {
        let mut open: Option<(PathBuf, File)> = None;
        for piece in pieces {
            let mut rest = piece.as_ref();
            while !rest.is_empty() {
                let (path, within) = self.segment(instance, offset);
                if open.as_ref().is_none_or(|(current, _)| *current != path) {
                    if let Some((_, full)) = open.take() {
                        full.sync_data()?;
                    }
                    let file = open_segment(&path, within)?;
                    open = Some((path, file));
                }
                let room = usize::try_from(SEGMENT - within).unwrap_or(usize::MAX);
                let (now, later) = rest.split_at(rest.len().min(room));
                if let Some((_, file)) = &open {
                    file.write_all_at(now, within)?;
                }
                offset += now.len() as u64;
                rest = later;
            }
        }
        open.map_or(Ok(()), |(_, file)| file.sync_data())
    }

    /// Reads at `offset`, at most `limit` bytes; less at the end of a segment. The caller asks only for what the row says is stored.
    ///
    /// # Errors
    /// What the system said; [`io::ErrorKind::UnexpectedEof`] when the bytes are not there.
    pub(crate) fn read(&self, instance: &InstanceName, offset: u64, limit: usize) -> io::Result<Bytes> {
        let (path, within) = self.segment(instance, offset);
        let room = usize::try_from(SEGMENT - within).unwrap_or(usize::MAX);
        let mut bytes = vec![0; limit.min(room)];
        let read = File::open(path)?.read_at(&mut bytes, within)?;
        if read == 0 && limit > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        bytes.truncate(read);
        Ok(bytes.into())
    }
}

/// Opens a segment for writing at `length`, and cuts off what a crash left beyond it.
fn open_segment(path: &Path, length: u64) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = path.parent().ok_or(error)?;
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
            folder.parent().map_or(Ok(()), sync_folder)?;
            open()?
        }
        other => other?,
    };
    let found = file.metadata()?.len();
    if found < length {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("the log segment has {found} bytes where {length} were stored")));
    }
    if found > length {
        file.set_len(length)?;
    }
    if length == 0 {
        path.parent().map_or(Ok(()), sync_folder)?; // the file's own name must survive a crash too
    }
    Ok(file)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, LogFiles, InstanceName) {
        let folder = tempfile::tempdir().expect("a folder");
        let files = LogFiles::open(folder.path().join("logs")).expect("it can be made");
        (folder, files, "lakeshore-00112233".parse().expect("an instance name"))
    }

    fn read_all(files: &LogFiles, name: &InstanceName, length: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while (all.len() as u64) < length {
            let limit = usize::try_from(length).expect("small") - all.len();
            all.extend_from_slice(&files.read(name, all.len() as u64, limit.min(1 << 20)).expect("it is stored"));
        }
        all
    }

    #[test]
    fn bytes_come_back_as_they_were_over_the_borders_of_segments() {
        let (_folder, files, name) = files();
        let bytes: Vec<u8> = (0..SEGMENT * 2 + 12_345).map(|i| (i * 31 % 251) as u8).collect();
        let mut offset = 0;
        for chunk in bytes.chunks(3_000_001) {
            files.append(&name, offset, &[Bytes::copy_from_slice(&chunk[..1]), Bytes::copy_from_slice(&chunk[1..])]).expect("it is written");
            offset += chunk.len() as u64;
        }
        assert!(read_all(&files, &name, offset) == bytes);
        assert_eq!(files.read(&name, SEGMENT - 1, 10).expect("the last byte of a segment").len(), 1);
    }

    #[test]
    fn what_a_crash_left_beyond_the_committed_length_is_not_kept() {
        let (_folder, files, name) = files();
        files.append(&name, 0, &[Bytes::from_static(b"committed-and-torn")]).expect("it is written");
        files.append(&name, 9, &[Bytes::from_static(b"!")]).expect("it is written");
        assert_eq!(read_all(&files, &name, 10), b"committed!");
        assert_eq!(files.read(&name, 0, 100).expect("it is stored").len(), 10, "nothing is left beyond");
    }

    #[test]
    fn a_segment_that_lost_bytes_is_told_and_not_filled_with_zeros() {
        let (_folder, files, name) = files();
        files.append(&name, 0, &[Bytes::from_static(b"abc")]).expect("it is written");
        let error = files.append(&name, 5, &[Bytes::from_static(b"d")]).expect_err("two bytes are missing");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(files.read(&name, 3, 1).expect_err("it is not there").kind(), io::ErrorKind::UnexpectedEof);
    }
}
