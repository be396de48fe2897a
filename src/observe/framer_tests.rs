//! The framer against a second writing of the kubelet's side: what it would answer for a log file and a `sinceTime`.
//!
//! [`answer`] was compared with the kubelet's own code (`ReadLogs` of `k8s.io/cri-client` v0.37.2, built with Go) on 1,536 answers for the logs that
//! [`logs`] makes: the same bytes each time.

use proptest::prelude::*;

use super::*;

/// One line of the runtime's log file; `partial`: the container's line goes on in the next one.
#[derive(Clone, Debug)]
struct Entry {
    at: i64,
    partial: bool,
    content: Vec<u8>,
}

fn entry(at: i64, content: &str) -> Entry {
    Entry { at, partial: false, content: content.into() }
}

fn part(at: i64, content: &str) -> Entry {
    Entry { at, partial: true, content: content.into() }
}

const SECOND: i64 = 1_000_000_000;
const START: i64 = 1_796_000_000 * SECOND;

/// What the kubelet answers: the rules of `ReadLogs` and `logWriter.write`, written down a second time.
fn answer(log: &[Entry], since: Option<Timestamp>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut new_line = true;
    for Entry { at, partial, content } in log {
        let stamp = Timestamp::from_nanosecond(i128::from(START + at)).expect("in range");
        let mut text = content.clone();
        if !partial {
            text.push(b'\n');
        }
        if since.is_none_or(|since| stamp >= since) {
            if new_line {
                out.extend_from_slice(format!("{stamp:.9} ").as_bytes());
            }
            out.extend_from_slice(&text);
        }
        new_line = text.last().is_none_or(|last| *last == b'\n');
    }
    out
}

/// What the container wrote.
fn written(log: &[Entry]) -> Vec<u8> {
    log.iter().flat_map(|entry| [entry.content.as_slice(), if entry.partial { b"" } else { b"\n" }].concat()).collect()
}

/// The receiver: keeps what it was given, checks that it fits together, and remembers where to go on.
#[derive(Default)]
struct Store {
    bytes: Vec<u8>,
    resume: ResumePoint,
}

impl Store {
    fn framer(&self) -> LogFramer {
        LogFramer::new("c1".into(), &self.resume, self.bytes.len() as u64)
    }

    fn keep(&mut self, pieces: &[Piece]) {
        for piece in pieces {
            assert_eq!(piece.offset, self.bytes.len() as u64, "pieces follow each other");
            assert!((1..=MAX_LOG_CHUNK).contains(&piece.bytes.len()), "{} bytes", piece.bytes.len());
            self.bytes.extend_from_slice(&piece.bytes);
            self.resume = piece.resume.clone();
        }
    }

    /// Reads an answer of which only the first `length` bytes arrive, in chunks of at most `chunk`.
    fn read(&mut self, log: &[Entry], length: usize, chunk: usize) {
        let mut framer = self.framer();
        let raw = answer(log, framer.since_time());
        for raw in raw[..length.min(raw.len())].chunks(chunk.max(1)) {
            self.keep(&framer.push(raw));
            assert_eq!((framer.resume(), framer.offset()), (&self.resume, self.bytes.len() as u64));
        }
        if length >= raw.len() {
            self.keep(&framer.end());
        }
    }
}

/// All kinds of lines at once: equal stamps, neighbours and not, an empty line, a line of spaces, one that looks like a stamp, one in
/// parts that begins in one second and ends in the next, bytes that are no text, stdout's part with stderr's line after it, a
/// line stamped before the one in front of it over the change of a second, and no newline at the end.
fn every_kind() -> Vec<Entry> {
    let mut log = vec![
        entry(0, "one"),
        entry(0, ""),
        entry(0, "one"),
        entry(5, "   "),
        entry(0, "late twin"),
        entry(900_000_000, "2026-11-30T12:00:00.000000000Z "),
        entry(900_000_000, "2026-11-30T12:00:00.000000000Z"),
        part(950_000_000, "begins in one second, "),
        part(SECOND, "goes on, "),
        entry(SECOND + 1, "ends in the next"),
        entry(SECOND + 1, "\r\tprogress\r"),
        part(SECOND + 2, "out without newline"),
        entry(SECOND + 3, "err"),
        entry(3 * SECOND + 10, "second writer first"),
        entry(3 * SECOND - 20, "a second began in between"),
        entry(3 * SECOND + 11, ""),
    ];
    log.push(Entry { at: 3 * SECOND + 12, partial: false, content: vec![0, 0xff, 0xfe, b' ', 0xc3] });
    log.push(part(3 * SECOND + 13, "no newline"));
    log
}

#[test]
fn one_answer_gives_the_containers_bytes() {
    let log = every_kind();
    for chunk in [1, 2, 7, 35, 36, 37, 10_000] {
        let mut store = Store::default();
        store.read(&log, usize::MAX, chunk);
        assert_eq!(String::from_utf8_lossy(&store.bytes), String::from_utf8_lossy(&written(&log)), "chunks of {chunk}");
    }
}

#[test]
fn an_answer_cut_at_any_byte_goes_on_without_hole_or_repetition() {
    let log = every_kind();
    let length = answer(&log, None).len();
    for first in 0..=length {
        let mut store = Store::default();
        store.read(&log, first, 10_000);
        let kept = store.bytes.clone();
        assert!(written(&log).starts_with(&kept), "cut at {first}: {kept:?}");
        store.read(&log, usize::MAX, 10_000);
        assert_eq!(String::from_utf8_lossy(&store.bytes), String::from_utf8_lossy(&written(&log)), "cut at {first}");
    }
}

#[test]
fn a_log_read_while_it_grows_is_read_once() {
    let log = every_kind();
    let mut store = Store::default();
    for known in 0..=log.len() {
        store.read(&log[..known], usize::MAX, 64);
        assert_eq!(store.bytes, written(&log[..known]), "after {known} entries");
    }
}

#[test]
fn a_line_of_ten_megabytes_comes_in_bounded_pieces_and_can_be_resumed_inside() {
    let content: Vec<u8> = (0..10 << 20).map(|n: u32| b'a' + u8::try_from(n % 23).expect("small")).collect();
    let mut log: Vec<Entry> =
        content.chunks(16 << 10).zip(1..).map(|(part, at)| Entry { at: at * 40_000_000, partial: true, content: part.to_vec() }).collect();
    log.insert(0, entry(0, "before"));
    log.push(entry(999 * SECOND, "after"));
    let mut store = Store::default();
    for cut in [100, 3 << 20, (3 << 20) + 1, 9 << 20] {
        store.read(&log, cut, 100_000);
        let inside = store.resume.partial;
        assert!(inside as usize <= cut && store.bytes.len() + 200 >= cut, "{inside} of {cut}");
    }
    store.read(&log, usize::MAX, 100_000);
    assert!(store.bytes == written(&log), "the bytes differ");
}

/// Two writers: the last part of a line may be stamped before its first, and the filter falls between them.
#[test]
fn a_line_that_a_filtered_newline_glued_to_another_is_found() {
    let late = |content| entry(-30_000_000, content);
    let glued = [part(1_000, "first, "), late("its end"), entry(SECOND + 1_000, "second"), entry(SECOND + 1_000, "third")];
    let stray = [part(-2, "first, "), part(1_000, "its middle, "), late("its end"), entry(SECOND + 1_000, "second"), entry(SECOND + 1_000, "third")];
    for log in [&glued[..], &stray[..]] {
        for chunk in 1..90 {
            let mut store = Store::default();
            store.read(log.get(..log.len() - 1).expect("it has more"), usize::MAX, usize::MAX);
            store.read(log, usize::MAX, chunk);
            assert_eq!(store.bytes.escape_ascii().to_string(), written(log).escape_ascii().to_string(), "in pieces of {chunk}");
        }
    }
}

#[test]
fn a_place_that_was_rotated_away_is_followed_by_what_is_there() {
    let log: Vec<Entry> = (0..10).map(|n| entry(n * 300_000_000, &format!("line {n}"))).collect();
    for known in 1..9usize {
        for rotated in known + 1..10 {
            let mut store = Store::default();
            store.read(&log[..known], usize::MAX, 64);
            store.read(&log[rotated..], usize::MAX, 64);
            let expected = [written(&log[..known]), written(&log[rotated..])].concat();
            assert_eq!(String::from_utf8_lossy(&store.bytes), String::from_utf8_lossy(&expected), "{known} known, {rotated} rotated away");
        }
    }
}

#[test]
fn lines_just_after_a_place_that_is_gone_are_held_back_and_then_given() {
    let mut store = Store::default();
    store.read(&[entry(0, "taken")], usize::MAX, 64);
    let mut framer = store.framer();
    let rest = [entry(10, "soon after"), entry(20, "too")];
    assert_eq!(framer.push(&answer(&rest, None)), [], "they could be lines that were taken before");
    store.keep(&framer.push(&answer(&[entry(SECOND, "later")], None)));
    assert_eq!(String::from_utf8_lossy(&store.bytes), "taken\nsoon after\ntoo\nlater\n");
}

#[test]
fn what_is_held_back_is_bounded() {
    let mut store = Store::default();
    store.read(&[entry(0, "taken")], usize::MAX, 64);
    let long = entry(10, &"x".repeat(3 * MAX_HELD));
    let mut framer = store.framer();
    let mut most = 0;
    for raw in answer(&[long.clone(), entry(11, "next")], None).chunks(1_000) {
        store.keep(&framer.push(raw));
        most = most.max(framer.seek.as_ref().map_or(0, |seek| seek.held.len()));
    }
    assert!(most <= MAX_HELD + 1_000, "{most} bytes were held");
    assert_eq!(store.bytes, [b"taken\n".as_slice(), &written(&[long]), b"next\n"].concat());
}

#[test]
fn the_log_of_another_container_is_taken_from_its_start() {
    let mut store = Store::default();
    store.read(&[entry(0, "old")], usize::MAX, 64);
    let mut framer = LogFramer::new("c2".into(), &store.resume, 4);
    assert_eq!(framer.since_time(), None);
    let pieces = framer.push(&answer(&[entry(0, "new")], None));
    assert_eq!(pieces.len(), 1);
    assert_eq!((pieces[0].offset, &pieces[0].bytes[..], pieces[0].resume.container.as_str()), (4, b"new\n".as_slice(), "c2"));
}

#[test]
fn the_kubelets_own_words_are_no_log() {
    let mut framer = Store::default().framer();
    for words in ["unable to retrieve container logs for containerd://0123456789abcdef\n", "\n", "x\n", "failed to try resolving symlinks"] {
        assert_eq!(framer.push(words.as_bytes()), [], "{words:?}");
    }
    assert_eq!(framer.end(), []);
    assert_eq!(framer.resume(), &ResumePoint::default());
}

#[test]
fn the_api_is_asked_from_the_second_before_the_place() {
    let at = |text: &str, lines| ResumePoint { container: "c1".into(), timestamp: text.into(), lines, partial: 0 };
    let since = |resume| LogFramer::new("c1".into(), &resume, 0).since_time().map(|since| since.to_string());
    assert_eq!(since(at("2026-11-30T12:00:05.999999999Z", 1)).as_deref(), Some("2026-11-30T12:00:04Z"));
    assert_eq!(since(at("2026-11-30T12:00:05.000000000+02:00", 1)).as_deref(), Some("2026-11-30T10:00:04Z"));
    assert_eq!(since(at("yesterday", 1)), None);
    assert_eq!(since(at("2026-11-30T12:00:05Z", 0)), None, "no byte was taken");
    assert_eq!(since(ResumePoint::default()), None);
}

/// Logs of lines in parts, with stamps that stand still, jump, and fall back by less than [`SKEW`].
fn logs() -> impl Strategy<Value = Vec<Entry>> {
    let content = prop_oneof![
        Just(Vec::new()),
        proptest::collection::vec(any::<u8>().prop_filter("no newline inside a line", |byte| *byte != b'\n'), 0..40),
        Just(b"2026-11-30T12:00:00.000000000Z x".to_vec()),
        "[a-z ]{0,12}".prop_map(String::into_bytes),
    ];
    let step = prop_oneof![4 => Just(0i64), 2 => Just(1), 2 => 0..50_000_000i64, 1 => Just(SECOND), 1 => 0..3 * SECOND];
    let late = prop_oneof![4 => Just(0i64), 1 => 0..50_000_000i64];
    proptest::collection::vec((step, late, content, 1..20usize), 0..24).prop_flat_map(|lines| {
        let mut log = Vec::new();
        let mut clock = 0;
        for (step, late, content, size) in lines {
            clock += step;
            let mut parts = content.chunks(size).peekable();
            if parts.peek().is_none() {
                log.push(Entry { at: clock - late, partial: false, content });
                continue;
            }
            while let Some(part) = parts.next() {
                log.push(Entry { at: clock - late, partial: parts.peek().is_some(), content: part.to_vec() });
                clock += step / 7;
            }
        }
        any::<bool>().prop_map(move |open| {
            let mut log = log.clone();
            if let Some(last) = log.last_mut() {
                last.partial = open && !last.content.is_empty(); // a runtime writes no empty part
            }
            log
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn any_log_cut_anywhere_and_resumed_is_read_exactly_once(log in logs(), cuts in proptest::collection::vec((0.0..1.0f64, 1..80usize), 0..6)) {
        let mut store = Store::default();
        for (cut, chunk) in cuts {
            let whole = answer(&log, store.framer().since_time()).len();
            // Never the whole: an answer that was cut has no end.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a small length")]
            store.read(&log, (whole as f64 * cut) as usize, chunk);
            prop_assert!(written(&log).starts_with(&store.bytes), "{:?}", store.bytes);
        }
        store.read(&log, usize::MAX, 50);
        let expected = written(&log);
        prop_assert_eq!(store.bytes.escape_ascii().to_string(), expected.escape_ascii().to_string());
    }

    #[test]
    fn no_bytes_make_it_panic_or_give_more_than_they_hold(raw in proptest::collection::vec(any::<u8>(), 0..400), timestamp in ".{0,40}", lines in 0..3u64, partial in 0..9u64) {
        let resume = ResumePoint { container: "c1".into(), timestamp, lines, partial };
        let mut framer = LogFramer::new("c1".into(), &resume, u64::from(u32::MAX));
        let mut pieces = framer.push(&raw);
        pieces.extend(framer.end());
        prop_assert!(pieces.iter().map(|piece| piece.bytes.len()).sum::<usize>() <= raw.len());
    }
}
