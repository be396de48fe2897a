//! The log framer over any bytes, and over logs as the kubelet answers them, cut anywhere and resumed anywhere.
//!
//! The first byte says which; four more say how the bytes are cut and where a reading begins.

use std::iter;

use jiff::Timestamp;
use nymph::observe::LogFramer;
use nymph::wire::{MAX_LOG_CHUNK, ResumePoint};

const CONTAINER: &str = "c1";
const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_796_000_000 * SECOND;
/// Over this the framer may give lines twice rather than hold so many back.
const ALL_HELD: usize = 60_000;

pub(crate) fn run(data: &[u8]) {
    let Some((&[kind, cut, other_cut, lines, partial], rest)) = data.split_first_chunk() else { return };
    let cuts = [usize::from(cut) + 1, usize::from(other_cut) + 1];
    if kind % 2 == 0 { any_bytes(rest, cuts, u64::from(lines), u64::from(partial)) } else { a_log(rest, cuts) }
}

/// What one answer gave.
#[derive(Debug, PartialEq)]
struct Given {
    bytes: Vec<u8>,
    /// Where one may go on, and how many of the bytes stand before it.
    places: Vec<(ResumePoint, usize)>,
    last: ResumePoint,
}

/// Reads a whole answer in pieces of the sizes in `cuts`, by turns.
fn read(raw: &[u8], cuts: [usize; 2], resume: &ResumePoint, offset: u64) -> Given {
    let mut framer = LogFramer::new(CONTAINER.into(), resume, offset);
    let (mut bytes, mut places, mut rest) = (Vec::new(), Vec::new(), raw);
    // A short answer is cut at every byte, a long one into some hundred parts: it is read a dozen times a run.
    let mut sizes = cuts.into_iter().map(|cut| cut.saturating_add(raw.len() / 400)).cycle();
    loop {
        let ended = rest.is_empty();
        let (part, after) = rest.split_at(rest.len().min(sizes.next().unwrap_or(1)));
        rest = after;
        for piece in if ended { framer.end() } else { framer.push(part) } {
            assert_eq!(piece.offset, offset + bytes.len() as u64, "pieces follow each other");
            assert!((1..=MAX_LOG_CHUNK).contains(&piece.bytes.len()));
            bytes.extend_from_slice(&piece.bytes);
            places.push((piece.resume, bytes.len()));
        }
        assert_eq!(framer.offset(), offset + bytes.len() as u64);
        if ended {
            return Given { bytes, places, last: framer.resume().clone() };
        }
    }
}

/// A few of the places, evenly over all.
fn some(places: &[(ResumePoint, usize)]) -> impl Iterator<Item = &(ResumePoint, usize)> {
    places.iter().step_by(places.len() / 5 + 1).chain(places.last())
}

fn any_bytes(raw: &[u8], cuts: [usize; 2], lines: u64, partial: u64) {
    // A place with the time stamp of some line, if there is one.
    let line = raw.split(|byte| *byte == b'\n').nth(usize::try_from(lines).unwrap_or_default()).unwrap_or_default();
    let stamp = line.split(|byte| *byte == b' ').next().unwrap_or_default();
    let place = ResumePoint { container: CONTAINER.into(), timestamp: String::from_utf8_lossy(stamp).into_owned(), lines, partial };
    for start in [&ResumePoint::default(), &place] {
        let given = read(raw, cuts, start, u64::from(u32::MAX));
        let mut from = raw.iter();
        assert!(given.bytes.iter().all(|byte| from.any(|raw| raw == byte)), "bytes that are not in the answer, or not in its order");
        let whole = read(raw, [usize::MAX; 2], start, u64::from(u32::MAX));
        assert_eq!((&whole.bytes, &whole.last), (&given.bytes, &given.last), "where the answer is cut makes no difference");
    }
    // A clock that goes back may make lines come twice; none goes missing.
    let given = read(raw, cuts, &ResumePoint::default(), 0);
    for (place, taken) in some(&given.places) {
        let rest = read(raw, cuts, place, *taken as u64);
        assert!(rest.bytes.ends_with(&given.bytes[*taken..]), "bytes went missing after {place:?}");
    }
}

/// One line of the runtime's file, or a part of one.
struct Entry {
    at: i64,
    partial: bool,
    content: Vec<u8>,
}

/// A log as a runtime writes it: time stands still, goes on, and is a little late where the other writer's line comes in.
fn entries(mut recipe: &[u8]) -> Vec<Entry> {
    let (mut clock, mut long) = (START, 0);
    iter::from_fn(|| {
        let (operation, rest) = recipe.split_first()?;
        clock += [0, 0, 1, 1_000, 40_000_000, SECOND, 3 * SECOND, 0][usize::from(operation & 7)];
        let late = if operation & 7 == 7 { 30_000_000 } else { 0 };
        let (content, after) = rest.split_at(rest.len().min(usize::from(operation >> 4)));
        recipe = after;
        // Some lines are longer than a chunk's part of the log; not all, or a run would take a second.
        let repeat = if content.len() == 15 && long < 4 { 1_500 } else { 1 };
        long += usize::from(repeat > 1);
        let content: Vec<u8> = content.repeat(repeat).into_iter().map(|byte| if byte == b'\n' { b' ' } else { byte }).collect();
        Some(Entry { at: clock - late, partial: operation & 8 != 0 && !content.is_empty(), content })
    })
    .collect()
}

fn end(partial: bool) -> &'static [u8] {
    if partial { b"" } else { b"\n" }
}

/// What the kubelet answers from `since` on. **Source:** `ReadLogs` in `k8s.io/cri-client/pkg/logs/logs.go`.
fn answer(log: &[Entry], since: Option<Timestamp>) -> Vec<u8> {
    let (mut raw, mut new_line) = (Vec::new(), true);
    for Entry { at, partial, content } in log {
        let stamp = Timestamp::from_nanosecond(i128::from(*at)).expect("in range");
        if since.is_none_or(|since| stamp >= since) {
            if new_line {
                raw.extend_from_slice(format!("{stamp:.9} ").as_bytes());
            }
            raw.extend_from_slice(content);
            raw.extend_from_slice(end(*partial));
        }
        new_line = !partial;
    }
    raw
}

fn a_log(recipe: &[u8], cuts: [usize; 2]) {
    let log = entries(recipe);
    let raw = answer(&log, None);
    let written: Vec<u8> = log.iter().flat_map(|entry| [&entry.content, end(entry.partial)].concat()).collect();
    let given = read(&raw, cuts, &ResumePoint::default(), 0);
    assert_eq!(given.bytes, written, "the container's own bytes");
    for (place, taken) in some(&given.places) {
        let since = LogFramer::new(CONTAINER.into(), place, *taken as u64).since_time();
        for raw in [&raw, &answer(&log, since)] {
            let rest = read(raw, cuts, place, *taken as u64);
            let expected = &written[*taken..];
            let right = if raw.len() > ALL_HELD { rest.bytes.ends_with(expected) } else { rest.bytes == expected };
            assert!(right, "{place:?} does not go on where it stands: {:?}", rest.bytes.escape_ascii().to_string());
        }
    }
}
