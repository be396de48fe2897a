//! Writes the tar archive: folders and files that their owner alone can use.

use std::io::{self, Read, Write};

use tar::{Builder, EntryType, Header};

/// An archive that is being written.
pub(super) struct Archive<'a> {
    tar: Builder<&'a mut dyn Write>,
    owner: (u32, u32),
    /// Seconds since 1970, of every entry.
    time: u64,
}

impl<'a> Archive<'a> {
    /// Entries belong to `owner` (user and group), so that an administrator unpacks them for the same one.
    pub(super) fn new(out: &'a mut dyn Write, owner: (u32, u32), time: u64) -> Self {
        Self { tar: Builder::new(out), owner, time }
    }

    /// A folder, which its owner alone can enter.
    pub(super) fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(&format!("{name}/"), EntryType::Directory, 0o700, 0, io::empty())
    }

    /// A file of exactly `size` bytes, which its owner alone can read.
    pub(super) fn file(&mut self, name: &str, size: u64, content: impl Read) -> io::Result<()> {
        self.entry(name, EntryType::Regular, 0o600, size, content)
    }

    /// Ends the archive.
    pub(super) fn finish(self) -> io::Result<()> {
        self.tar.into_inner()?.flush()
    }

    fn entry(&mut self, name: &str, kind: EntryType, mode: u32, size: u64, content: impl Read) -> io::Result<()> {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(self.owner.0.into());
        header.set_gid(self.owner.1.into());
        header.set_mtime(self.time);
        header.set_size(size);
        let mut content = content.take(size);
        self.tar.append_data(&mut header, name, &mut content)?;
        // The crate writes what comes, whatever the header says.
        let missing = content.limit();
        if missing > 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("{name} became shorter by {missing} bytes while it was read")));
        }
        Ok(())
    }
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
        let mut tar = Archive::new(&mut archive, (65_532, 7), 1_000_000_000);
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

    /// 8 GiB and more do not fit the octal field of ustar.
    #[test]
    fn a_size_too_large_for_octal_is_told_as_tar_reads_it() {
        let (large, mut head) = (20 << 30, Head(Vec::new()));
        let error = Archive::new(&mut head, (0, 0), 0).file("large", large, io::repeat(7)).expect_err("only its head is kept");
        assert_eq!(error.kind(), io::ErrorKind::WriteZero);
        let header = tar::Header::from_byte_slice(&head.0[..512]);
        assert_eq!((header.size().expect("a size"), head.0[124]), (large, 0x80), "base 256, as GNU tar writes it");
    }

    /// Takes a header and no more.
    struct Head(Vec<u8>);

    impl Write for Head {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = (512 - self.0.len()).min(bytes.len());
            self.0.extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_that_shrinks_while_it_is_read_is_no_silent_hole() {
        let mut archive = Vec::new();
        let error = Archive::new(&mut archive, (0, 0), 0).file("x", 10, &b"short"[..]).expect_err("five bytes are missing");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
