//! The log API's bytes become the container's own.
//!
//! With `timestamps=true` the kubelet writes each line's time stamp and a space before it. A line that the runtime split (16 KiB at
//! containerd, other sizes elsewhere) carries one stamp, before its first part; an empty line is a stamp, a space and a newline; what has no
//! final newline has none here either. `sinceTime` is a filter over the runtime's *parts*, so a resumed answer may begin with the rest of
//! a line without any stamp. The API resumes by whole seconds, so a place is told by a stamp and by how much of what carries
//! it was taken ([`ResumePoint`]).
//!
//! **Source:** `ReadLogs` and `logWriter.write` in `k8s.io/cri-client/pkg/logs/logs.go`, the same since Kubernetes 1.25.

use std::cmp::Ordering;

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};

use super::stamp::{MAX_STAMP, Recent, Stamp};
use crate::wire::{MAX_LOG_CHUNK, ResumePoint};

/// By how much one line may be stamped before the line in front of it: stdout and stderr are stamped by two writers.
const SKEW: SignedDuration = SignedDuration::from_millis(100);
/// How much is held back while it is not clear whether it was taken before, in bytes.
const MAX_HELD: usize = 64 << 10;

/// Bytes of a container's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Offset of its first byte in the log.
    pub offset: u64,
    /// At least one byte and at most [`MAX_LOG_CHUNK`].
    pub bytes: Bytes,
    /// Where to go on after its last byte.
    pub resume: ResumePoint,
}

/// Strips the kubelet's time stamps from one answer of the log API, and leaves out what was taken from earlier ones.
///
/// Make one for each answer, from the last [`ResumePoint`]; ask the API for [`LogFramer::since_time`]. Memory is bounded whatever the
/// container writes: the start of a line and 64 KiB. A line whose place is gone, because the file was rotated meanwhile, is followed by the
/// first line that is there: nothing is lost that the API still has. A clock that was set back between two answers may make lines come
/// twice; they never go missing.
pub struct LogFramer {
    container: String,
    offset: u64,
    /// After the last byte that was handed out.
    resume: ResumePoint,
    seek: Option<Seek>,
    line: Line,
    /// The start of a line, while it is not clear what it is.
    head: Vec<u8>,
    recent: Recent,
    ready: Vec<Piece>,
    /// Bytes for the next piece; all taken since the last one.
    taken: Vec<u8>,
    /// After the last byte taken.
    place: Option<Place>,
    /// After the last byte of the current line that was taken; before its first one it is no place to resume from.
    current: Option<Place>,
}

/// Where the next byte of the answer belongs.
#[derive(Clone, Copy, PartialEq)]
enum Line {
    /// To a line's start.
    Head,
    /// To a new line of the log.
    Take,
    /// To a line that was taken before.
    Skip { stamp: Stamp },
    /// To the part of a line that was taken before; then come new bytes.
    SkipPart { left: u64 },
    /// To a line of which it is not known yet whether it was taken before.
    Hold,
    /// To the rest of a line whose start was filtered out: it was taken before; or to the kubelet's own text, which is no log.
    Stray,
}

/// A place in the log, after the last byte taken.
#[derive(Clone, Copy)]
struct Place {
    stamp: Stamp,
    lines: u64,
    partial: u64,
}

/// The search for the place to go on.
struct Seek {
    target: Place,
    moment: Timestamp,
    /// The target's stamp as it stands before its line.
    sought: Vec<u8>,
    /// Complete lines with the target's stamp passed so far.
    passed: u64,
    held: Vec<u8>,
    /// The end of what was passed over of the current line, shorter than a stamp.
    passed_over: Vec<u8>,
    /// Stamps of the lines held back; each has at least as many bytes in `held`.
    held_stamps: Vec<Stamp>,
}

impl LogFramer {
    /// Begins at `resume`, where the log is `offset` bytes long. The log of another container than `resume`'s is taken from its start.
    pub fn new(container: String, resume: &ResumePoint, offset: u64) -> Self {
        let seek = place_of(&container, resume).map(|(target, moment)| Seek {
            target,
            moment,
            sought: format!("{} ", target.stamp.as_str()).into_bytes(),
            passed: 0,
            held: Vec::new(),
            passed_over: Vec::new(),
            held_stamps: Vec::new(),
        });
        Self {
            container,
            offset,
            resume: resume.clone(),
            seek,
            line: Line::Head,
            head: Vec::with_capacity(MAX_STAMP),
            recent: Recent::default(),
            ready: Vec::new(),
            taken: Vec::new(),
            place: None,
            current: None,
        }
    }

    /// Takes bytes of the answer, cut anywhere, and gives the log's bytes that they bring.
    pub fn push(&mut self, raw: &[u8]) -> Vec<Piece> {
        self.feed(raw);
        self.hand_out()
    }

    /// Ends the answer, and gives what was held back.
    pub fn end(&mut self) -> Vec<Piece> {
        self.not_found();
        self.head.clear(); // a stamp without a byte of its line: it comes again
        self.hand_out()
    }

    /// Where to go on after the last byte that was handed out.
    pub fn resume(&self) -> &ResumePoint {
        &self.resume
    }

    /// Length of the log so far, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What to ask the API for as `sinceTime`; `None` is the whole log.
    ///
    /// The place's stamp, floored to the second as the API has it, and a second less: a line may be stamped a little before the one in front
    /// of it, and must not be filtered out because a second began in between.
    pub fn since_time(&self) -> Option<Timestamp> {
        let (_, moment) = place_of(&self.container, &self.resume)?;
        Timestamp::from_second(moment.as_second() - 1).ok()
    }

    fn feed(&mut self, mut raw: &[u8]) {
        while !raw.is_empty() {
            raw = match self.line {
                Line::Head => self.head(raw),
                Line::Take => {
                    let (bytes, rest, _) = to_newline(raw, usize::MAX);
                    self.take(bytes);
                    rest
                }
                Line::Skip { stamp } => self.pass_over(raw, Some(stamp)),
                Line::SkipPart { left } => {
                    let (bytes, rest, ended) = to_newline(raw, usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - bytes.len() as u64; // to_newline gives no more than was asked for
                    if ended {
                        // The line is shorter than what was taken of it; its newline is new in any case.
                        self.found();
                        self.take(b"\n");
                    } else if left == 0 {
                        self.found();
                    } else {
                        self.line = Line::SkipPart { left };
                    }
                    rest
                }
                Line::Hold => {
                    let (bytes, rest, ended) = to_newline(raw, MAX_HELD);
                    self.hold(bytes, ended);
                    rest
                }
                Line::Stray => self.pass_over(raw, None),
            }
        }
    }

    /// Collects the start of a line until it is known to be a stamp or not.
    fn head<'a>(&mut self, raw: &'a [u8]) -> &'a [u8] {
        let room = MAX_STAMP + 1 - self.head.len();
        let window = raw.get(..room).unwrap_or(raw);
        match window.iter().position(|byte| matches!(byte, b' ' | b'\n')) {
            Some(at) => {
                let (start, rest) = raw.split_at(at);
                self.head.extend_from_slice(start);
                let stamp = Stamp::parse(&self.head);
                self.head.clear();
                match (stamp, rest.split_first()) {
                    (Some(stamp), Some((b' ', rest))) => {
                        self.begin(stamp);
                        rest
                    }
                    // Whole and without a stamp, or its newline is still to come.
                    _ => {
                        self.line = Line::Stray;
                        rest
                    }
                }
            }
            None if window.len() == room => {
                self.head.clear();
                self.line = Line::Stray;
                raw
            }
            None => {
                self.head.extend_from_slice(window);
                &[]
            }
        }
    }

    /// A line with `stamp` begins.
    fn begin(&mut self, stamp: Stamp) {
        if let Some(seek) = &mut self.seek {
            if stamp == seek.target.stamp {
                let whole = seek.passed < seek.target.lines;
                self.line = if whole { Line::Skip { stamp } } else { Line::SkipPart { left: seek.target.partial } };
                return;
            }
            match stamp.moment().map(|moment| (moment.cmp(&seek.moment), moment.duration_since(seek.moment) <= SKEW)) {
                Some((Ordering::Greater, true)) => {
                    self.line = Line::Hold;
                    seek.held.extend_from_slice(stamp.as_str().as_bytes());
                    seek.held.push(b' ');
                    seek.held_stamps.push(stamp);
                    return;
                }
                Some((Ordering::Greater, false)) => self.not_found(),
                _ => {
                    self.line = Line::Skip { stamp };
                    return;
                }
            }
        }
        self.line = Line::Take;
        self.current = Some(Place { stamp, lines: self.recent.lines(&stamp), partial: 0 });
    }

    /// Leaves out bytes of a line that was taken before, which has its stamp, or that is none of the log's.
    fn pass_over<'a>(&mut self, raw: &'a [u8], stamp: Option<Stamp>) -> &'a [u8] {
        let (line, rest, ended) = to_newline(raw, usize::MAX);
        if let Some((target, at)) = self.glued(line) {
            stamp.into_iter().for_each(|stamp| self.recent.add(stamp));
            self.begin(target);
            return raw.get(at..).unwrap_or_default();
        }
        match stamp {
            _ if !ended => {}
            Some(stamp) => self.skipped(stamp),
            None => self.line = Line::Head,
        }
        rest
    }

    /// Looks for the line that is sought behind bytes that are passed over; gives its stamp, and where behind that it goes on.
    ///
    /// Where the filter of `sinceTime` leaves out a line's last part and not its first, which takes a part that is stamped before the one in
    /// front of it, the newline is left out too, and the next line stands in the same line of the answer. No program knows the stamp that its
    /// output will get, so that a line which holds the one that is sought is two.
    fn glued(&mut self, passed: &[u8]) -> Option<(Stamp, usize)> {
        let seek = self.seek.as_mut()?;
        let (before, sought) = (seek.passed_over.len(), &seek.sought);
        seek.passed_over.extend_from_slice(passed);
        let found = seek.passed_over.windows(sought.len()).position(|window| window == sought);
        if found.is_some() || passed.last() == Some(&b'\n') {
            seek.passed_over.clear();
        } else {
            let kept = seek.passed_over.len().saturating_sub(sought.len() - 1);
            seek.passed_over.drain(..kept);
        }
        found.map(|at| (seek.target.stamp, (at + sought.len()).saturating_sub(before)))
    }

    /// A line that was taken before has ended.
    fn skipped(&mut self, stamp: Stamp) {
        self.recent.add(stamp);
        if let Some(seek) = self.seek.as_mut().filter(|seek| seek.target.stamp == stamp) {
            seek.passed += 1;
            if seek.passed == seek.target.lines && seek.target.partial == 0 {
                self.found();
            }
        }
        self.line = Line::Head;
    }

    /// The search is over: what follows is new, and what was held back was not.
    fn found(&mut self) {
        if let Some(Seek { target, held_stamps, .. }) = self.seek.take() {
            held_stamps.into_iter().for_each(|stamp| self.recent.add(stamp));
            self.current = Some(target);
            self.line = Line::Take;
        }
    }

    /// The search is over: the place is not there any more, so what was held back is new.
    fn not_found(&mut self) {
        if let Some(Seek { held, .. }) = self.seek.take() {
            self.line = Line::Head;
            self.feed(&held);
        }
    }

    fn hold(&mut self, bytes: &[u8], ended: bool) {
        let Some(seek) = &mut self.seek else { return };
        seek.held.extend_from_slice(bytes);
        if ended {
            self.line = Line::Head;
        }
        if seek.held.len() > MAX_HELD {
            self.not_found();
        }
    }

    /// Takes bytes of the current line, up to its end at most.
    fn take(&mut self, mut bytes: &[u8]) {
        let Some(mut place) = self.current else { return };
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(bytes.len().min(MAX_LOG_CHUNK - self.taken.len()));
            self.taken.extend_from_slice(part);
            bytes = rest;
            if part.last() == Some(&b'\n') {
                place = Place { lines: place.lines + 1, partial: 0, ..place };
                self.recent.add(place.stamp);
                self.line = Line::Head;
            } else {
                place.partial += part.len() as u64;
            }
            (self.current, self.place) = (Some(place), Some(place));
            if self.taken.len() == MAX_LOG_CHUNK {
                self.cut();
            }
        }
    }

    fn cut(&mut self) {
        let Some(place) = self.place.filter(|_| !self.taken.is_empty()) else { return };
        let bytes = Bytes::from(std::mem::take(&mut self.taken));
        self.resume =
            ResumePoint { container: self.container.clone(), timestamp: place.stamp.as_str().to_owned(), lines: place.lines, partial: place.partial };
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.ready.push(Piece { offset, bytes, resume: self.resume.clone() });
    }

    fn hand_out(&mut self) -> Vec<Piece> {
        self.cut();
        std::mem::take(&mut self.ready)
    }
}

/// The place of a resume point in this container's log; `None` is its start.
fn place_of(container: &str, resume: &ResumePoint) -> Option<(Place, Timestamp)> {
    let stamp = Stamp::parse(resume.timestamp.as_bytes()).filter(|_| resume.container == container)?;
    let place = Place { stamp, lines: resume.lines, partial: resume.partial };
    (place.lines > 0 || place.partial > 0).then_some((place, stamp.moment()?))
}

/// Splits after the first newline, or after `most` bytes, whichever comes first; says whether it was the newline.
fn to_newline(raw: &[u8], most: usize) -> (&[u8], &[u8], bool) {
    let window = raw.get(..most).unwrap_or(raw);
    match window.iter().position(|byte| *byte == b'\n') {
        Some(at) => {
            let (line, rest) = raw.split_at(at + 1);
            (line, rest, true)
        }
        None => {
            let (part, rest) = raw.split_at(window.len());
            (part, rest, false)
        }
    }
}

#[cfg(test)]
#[path = "framer_tests.rs"]
mod tests;
