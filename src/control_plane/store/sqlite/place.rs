//! Paths that the database library, and the system, would take for something else than a file on disk.

use std::borrow::Cow;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// `path` such that SQLite takes it for a path: what begins with `file:` would be a URI.
pub(super) fn plain(path: &Path) -> Cow<'_, Path> {
    if path.as_os_str().as_bytes().starts_with(b"file:") { Path::new(".").join(path).into() } else { path.into() }
}

/// `None` for what is not there.
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Refuses what has the name of one of the store's files and is none: opening a FIFO would wait without end.
///
/// # Errors
/// What it is, and what to do.
pub(super) fn regular(path: &Path) -> io::Result<()> {
    let Some(kind) = found(std::fs::metadata(path))?.map(|metadata| metadata.file_type()).filter(|kind| !kind.is_file()) else { return Ok(()) };
    let what = if kind.is_dir() {
        "a folder"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    };
    Err(io::Error::other(format!("it is {what} and not a regular file: move it away, or name another data folder")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_uri_is_made_a_path() {
        for (path, expected) in [("file:x/y", "./file:x/y"), ("file:", "./file:"), ("./file:x", "./file:x"), ("/file:x", "/file:x"), ("x", "x")] {
            assert_eq!(&*plain(Path::new(path)), Path::new(expected));
        }
    }
}
