//! Reads the write-ahead log before the database does, which is silent about what it leaves out.
//!
//! **Source:** "The WAL File Format" in SQLite's documentation of its file format: a header, then frames, each a page with a
//! running checksum. Recovery takes frames up to the first whose salts or checksum are wrong, and of these those up to the last
//! that ends a transaction. The log is written from its beginning again after a checkpoint, with new salts: frames with older
//! ones are no loss.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::place::found;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
const MAGIC: u32 = 0x377f_0682;

/// What recovery leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// A transaction that was not written whole, and is the last. It was never acknowledged: the log is synced before that.
    Torn { frames: u64, bytes: u64 },
    /// A bad record with whole transactions behind it, or a bad header: what was acknowledged is lost.
    Damaged { frames: u64, bytes: u64 },
}

/// Says what recovery of this log will leave out; `None` when nothing, or when there is no log.
///
/// # Errors
/// When it cannot be read.
pub(super) fn inspect(log: &Path) -> io::Result<Option<Loss>> {
    let Some(file) = found(File::open(log))? else { return Ok(None) };
    let length = file.metadata()?.len();
    scan(BufReader::new(file), length)
}

fn scan(mut log: impl Read, length: u64) -> io::Result<Option<Loss>> {
    let mut header = [0; HEADER];
    let read = fill(&mut log, &mut header)?;
    let Some(generation) = (read == HEADER).then(|| Generation::read(&header)).flatten() else {
        // A header is synced before any frame is written, and after what the log held before is in the database.
        let nothing = read < HEADER || (header.iter().all(|&byte| byte == 0) && is_zero(&mut log)?);
        let frames = 0;
        return Ok(match (length, nothing) {
            (0, _) => None,
            (bytes, true) => Some(Loss::Torn { frames, bytes }),
            (bytes, false) => Some(Loss::Damaged { frames, bytes }),
        });
    };
    let mut walk = Walk::new(&generation);
    let mut frame = vec![0; FRAME_HEADER + generation.page];
    loop {
        let read = fill(&mut log, &mut frame)?;
        if read == frame.len() {
            walk.take(&generation, &frame);
        } else {
            walk.torn |= read > 0;
            break;
        }
    }
    Ok(walk.loss(length, frame.len() as u64))
}

/// Whether nothing but zeros is left.
fn is_zero(log: &mut impl Read) -> io::Result<bool> {
    let mut block = [0; 4096];
    loop {
        match fill(log, &mut block)? {
            0 => return Ok(true),
            read if block.iter().take(read).any(|&byte| byte != 0) => return Ok(false),
            _ => {}
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(log: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match log.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

type Checksum = (u32, u32);

/// What all frames since the last beginning of the log share.
struct Generation {
    big_endian: bool,
    page: usize,
    salts: (u32, u32),
    checksum: Checksum,
}

impl Generation {
    /// `None` when recovery ignores the whole log for its header.
    fn read(header: &[u8; HEADER]) -> Option<Self> {
        let magic = word(header, 0);
        let page = word(header, 8);
        let big_endian = magic & 1 == 1;
        let checksum = sum(big_endian, (0, 0), header.get(..24)?);
        let sound = magic & !1 == MAGIC && page.is_power_of_two() && (512..=65_536).contains(&page);
        (sound && checksum == (word(header, 24), word(header, 28))).then(|| Self {
            big_endian,
            page: page as usize,
            salts: (word(header, 16), word(header, 20)),
            checksum,
        })
    }
}

/// How far the log was followed.
struct Walk {
    /// The checksum that the next frame goes on from: the right one up to the first bad frame, the stored one behind it.
    checksum: Checksum,
    frames: u64,
    /// Frames that recovery takes: up to the end of the last transaction before any bad one.
    kept: u64,
    bad: bool,
    /// Frames up to the last that was written since the log's last beginning.
    written: u64,
    /// A transaction ended behind the first bad frame.
    ended: bool,
    /// Something stands behind such a transaction: it was synced, and acknowledged.
    acknowledged: bool,
    /// The file ends within a frame, or with frames that hold nothing.
    torn: bool,
}

impl Walk {
    fn new(generation: &Generation) -> Self {
        Self { checksum: generation.checksum, frames: 0, kept: 0, bad: false, written: 0, ended: false, acknowledged: false, torn: false }
    }

    fn take(&mut self, generation: &Generation, frame: &[u8]) {
        self.frames += 1;
        let (head, page) = frame.split_at(FRAME_HEADER);
        let salts = (word(head, 8), word(head, 12));
        let stored = (word(head, 16), word(head, 20));
        let computed = sum(generation.big_endian, sum(generation.big_endian, self.checksum, head.get(..8).unwrap_or_default()), page);
        let valid = salts == generation.salts && computed == stored && word(head, 0) != 0;
        let commits = word(head, 4) != 0;
        self.bad |= !valid;
        if valid && self.bad && self.ended {
            self.acknowledged = true;
        }
        // One of an older generation has two other salts; a written one that was damaged has at least one of its own.
        let own = salts.0 == generation.salts.0 || salts.1 == generation.salts.1;
        let empty = head.iter().all(|&byte| byte == 0);
        if own {
            self.written = self.frames;
            self.ended |= self.bad && commits;
        }
        self.torn |= self.bad && empty;
        if valid && !self.bad && commits {
            self.kept = self.frames;
        }
        self.checksum = stored;
    }

    fn loss(&self, length: u64, frame: u64) -> Option<Loss> {
        let frames = self.written.saturating_sub(self.kept);
        let bytes = if self.torn { length.saturating_sub(HEADER as u64 + self.kept * frame) } else { frames * frame };
        match (bytes, self.acknowledged) {
            (0, _) => None,
            (_, true) => Some(Loss::Damaged { frames, bytes }),
            (_, false) => Some(Loss::Torn { frames, bytes }),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// The checksum of `bytes`, whose length is a multiple of eight, going on from `from`.
fn sum(big_endian: bool, from: Checksum, bytes: &[u8]) -> Checksum {
    let read = |four: &[u8]| {
        let four = four.try_into().unwrap_or_default();
        if big_endian { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
    };
    bytes.chunks_exact(8).fold(from, |(a, b), eight| {
        let (first, second) = eight.split_at(4);
        let a = a.wrapping_add(read(first)).wrapping_add(b);
        (a, b.wrapping_add(read(second)).wrapping_add(a))
    })
}

#[cfg(test)]
#[path = "wal_tests.rs"]
mod tests;
