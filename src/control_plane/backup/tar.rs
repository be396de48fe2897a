//! Writes a tar archive that every `tar` reads.
//!
//! **Source:** "ustar Interchange Format" in POSIX `pax`; a size over eight digits of octal groups is written in base 256, as GNU
//! tar does.

use std::io::{self, Read, Write};

const BLOCK: usize = 512;
/// Longest name that a header holds by itself.
const MAX_NAME: usize = 100;

/// An archive that is being written.
pub(super) struct Tar<'a> {
    out: &'a mut dyn Write,
    owner: (u32, u32),
    /// Seconds since 1970, of every entry.
    time: u64,
}

impl<'a> Tar<'a> {
    /// Entries belong to `owner` (user and group), so that an administrator unpacks them for the same one.
    pub(super) fn new(out: &'a mut dyn Write, owner: (u32, u32), time: u64) -> Self {
        Self { out, owner, time }
    }

    /// A folder, which its owner alone can enter.
    pub(super) fn folder(&mut self, name: &str) -> io::Result<()> {
        self.header(&format!("{name}/"), b'5', 0o700, 0)
    }

    /// A file of exactly `size` bytes, which its owner alone can read.
    pub(super) fn file(&mut self, name: &str, size: u64, content: impl Read) -> io::Result<()> {
        self.header(name, b'0', 0o600, size)?;
        let copied = io::copy(&mut content.take(size), self.out)?;
        if copied < size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{name} became shorter while it was read")));
        }
        let padding = usize::try_from(size.next_multiple_of(BLOCK as u64) - size).unwrap_or_default();
        self.out.write_all([0; BLOCK].get(..padding).unwrap_or_default())
    }

    /// Ends the archive.
    pub(super) fn finish(self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }

    fn header(&mut self, name: &str, kind: u8, mode: u64, size: u64) -> io::Result<()> {
        if name.len() > MAX_NAME {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{name}: the name is too long for the archive")));
        }
        let mut header = Vec::with_capacity(BLOCK);
        push(&mut header, name.as_bytes(), MAX_NAME);
        for (value, width) in [(mode, 8), (self.owner.0.into(), 8), (self.owner.1.into(), 8), (size, 12), (self.time, 12)] {
            push(&mut header, &number(value, width), width);
        }
        push(&mut header, b"        ", 8); // the checksum counts itself as blanks
        push(&mut header, &[kind], 1);
        push(&mut header, b"", 100);
        push(&mut header, b"ustar\x0000", 8);
        header.resize(BLOCK, 0);
        let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
        let field = format!("{sum:06o}\0 ");
        header.splice(148..156, field.bytes());
        self.out.write_all(&header)
    }
}

fn push(header: &mut Vec<u8>, bytes: &[u8], width: usize) {
    let end = header.len() + width;
    header.extend_from_slice(bytes);
    header.resize(end, 0);
}

/// A number in `width` bytes: octal with a NUL behind it, or base 256 where that has no room.
fn number(value: u64, width: usize) -> Vec<u8> {
    let octal = format!("{value:0digits$o}", digits = width - 1);
    if octal.len() < width {
        return octal.into_bytes();
    }
    let mut bytes = vec![0; width.saturating_sub(8)];
    bytes.extend_from_slice(&value.to_be_bytes());
    if let Some(first) = bytes.first_mut() {
        *first |= 0x80;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Debian's `tar` makes of an archive: its listing, and one file's content.
    fn listed(archive: &[u8]) -> (String, Vec<u8>) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.tar");
        std::fs::write(&file, archive).expect("it is written");
        let tar = |arguments: &[&str]| {
            let ended = std::process::Command::new("tar").args(arguments).arg("-f").arg(&file).current_dir(folder.path()).output().expect("tar runs");
            assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
            ended.stdout
        };
        let listing = tar(&["--numeric-owner", "--utc", "-tv"]);
        tar(&["-x"]);
        (String::from_utf8(listing).expect("text"), std::fs::read(folder.path().join("logs/x/1.log")).expect("it is unpacked"))
    }

    #[test]
    fn tar_reads_what_was_written() {
        let mut archive = Vec::new();
        let mut tar = Tar::new(&mut archive, (65_532, 7), 1_000_000_000);
        tar.folder("logs").expect("it is written");
        tar.folder("logs/x").expect("it is written");
        let bytes = b"line\n".repeat(300);
        tar.file("logs/x/1.log", bytes.len() as u64, bytes.as_slice()).expect("it is written");
        tar.file("empty", 0, io::empty()).expect("it is written");
        tar.finish().expect("it ends");
        let (listing, content) = listed(&archive);
        assert_eq!(content, bytes);
        let expected = "drwx------ 65532/7           0 2001-09-09 01:46 logs/\n\
            drwx------ 65532/7           0 2001-09-09 01:46 logs/x/\n\
            -rw------- 65532/7        1500 2001-09-09 01:46 logs/x/1.log\n\
            -rw------- 65532/7           0 2001-09-09 01:46 empty\n";
        assert_eq!(listing, expected);
    }

    #[test]
    fn a_number_too_large_for_octal_is_written_in_base_256() {
        assert_eq!(number(0o644, 8), b"0000644");
        let large = 20 << 30;
        let bytes = number(large, 12);
        assert_eq!((bytes.len(), bytes[0]), (12, 0x80));
        assert_eq!(u64::from_be_bytes(bytes[4..].try_into().expect("eight bytes")), large);
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_no_silent_hole() {
        let mut archive = Vec::new();
        let error = Tar::new(&mut archive, (0, 0), 0).file("x", 10, &b"short"[..]).expect_err("five bytes are missing");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
