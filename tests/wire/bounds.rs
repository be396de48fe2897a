//! What hostile frames may cost, measured by the allocator.

use std::fmt::Write;

use nymph::wire::{self, Dispatch, InvalidDispatch, MAX_BINARY, MAX_DISPATCH_VALUES, MAX_TEXT, MAX_VALUES, TextError, ToControlPlane, ToDaemon};

/// Most that reading a frame may take at once, in times the longest frame.
const MOST: u64 = 32;

/// What costs most for its bytes: values of each kind, alone and in what holds them.
const DEAR: [&str; 8] = ["0", "\"\"", "[]", "[0]", "[[0]]", "{}", "{\"\":0}", "{\"\":{\"\":0}}"];

/// `before`, as many of `unit` as there is room for, `after`.
fn filled(before: &str, unit: &str, after: &str, most_bytes: usize, most_values: usize) -> String {
    let each = wire::most_values(unit.as_bytes());
    let room = (most_bytes - before.len() - after.len()) / (unit.len() + 1);
    let count = room.min((most_values - wire::most_values(before.as_bytes()) - wire::most_values(after.as_bytes())) / each);
    let list = vec![unit; count].join(",");
    format!("{before}{list}{after}")
}

/// The most that was allocated at once during `read`, in bytes.
fn peak(read: impl FnOnce()) -> u64 {
    allocation_counter::measure(read).bytes_max
}

#[test]
fn the_dearest_text_frames_take_a_bounded_multiple_of_the_longest() {
    let hello = r#"{"type":"hello","version":"","role":"cluster","boot_id":"","policy_digest":"","#;
    let mut worst = (0, String::new());
    for unit in DEAR {
        for (before, after) in [
            (r#"{"type":"heartbeat","x":["#.to_owned(), "]}"),
            (r#"{"x":["#.to_owned(), r#"],"type":"heartbeat"}"#),
            (format!(r#"{hello}"keys":{{"issuer":"","jwks":["#), "]}}"),
            (format!(r#"{hello}"capabilities":["#), "]}"),
        ] {
            let frame = filled(&before, unit, after, MAX_TEXT, MAX_VALUES);
            assert!(wire::most_values(frame.as_bytes()) <= MAX_VALUES && frame.len() <= MAX_TEXT);
            let took = peak(|| drop(wire::decode_text::<ToControlPlane>(&frame)));
            worst = worst.max((took, format!("{before}{unit},…")));
        }
    }
    let labels = (0..MAX_VALUES - 20).fold(String::new(), |mut text, n| {
        let _ = write!(text, "\"{n:x}\":\"\","); // writing to a String cannot fail
        text
    });
    let lookup =
        format!(r#"{{"type":"lookup","request":1,"instance":"lakeshore-00112233","labels":{{{}}},"delete":false}}"#, labels.trim_end_matches(','));
    let took = peak(|| drop(wire::decode_text::<ToDaemon>(&lookup).expect("a message")));
    worst = worst.max((took, "labels".to_owned()));
    println!("dearest text frame: {} KiB for one of at most {} KiB: {}", worst.0 >> 10, MAX_TEXT >> 10, worst.1);
    assert!(worst.0 > 4 << 20, "nothing was measured");
    assert!(worst.0 <= MOST * MAX_TEXT as u64, "{} bytes for {}", worst.0, worst.1);
}

#[test]
fn the_dearest_dispatch_fits_a_daemon_many_times_over() {
    let before =
        r#"{"version":1,"caller":{"namespace":"d","provider":"p","user":"u"},"work":{"launch":{"image":"i","script_base64":"","resources":["#;
    let mut worst = (0, "");
    for unit in DEAR {
        let body = filled(before, unit, "]}}}", MAX_BINARY, MAX_DISPATCH_VALUES);
        let took = peak(|| drop(Dispatch::decode(body.as_bytes()).expect("within the bounds")));
        worst = worst.max((took, unit));
    }
    println!("dearest dispatch: {} KiB: {}", worst.0 >> 10, worst.1);
    // The daemon's limit in the chart is 128 MiB; a manifest is made of up to three copies.
    assert!((1 << 20..=8 << 20).contains(&worst.0), "{} bytes for {}", worst.0, worst.1);
}

#[test]
fn what_holds_too_many_values_is_refused_before_it_costs_anything() {
    let text = format!(r#"{{"type":"heartbeat","x":[{}0]}}"#, "0,".repeat(MAX_VALUES));
    let took = peak(|| assert!(matches!(wire::decode_text::<ToDaemon>(&text), Err(TextError::TooManyValues { .. }))));
    assert!(took < 4096, "{took} bytes");
    let body = format!(r#"{{"version":1,"args":[{}0]}}"#, "0,".repeat(MAX_DISPATCH_VALUES));
    let took = peak(|| assert!(matches!(Dispatch::decode(body.as_bytes()), Err(InvalidDispatch::TooManyValues { .. }))));
    assert!(took < 4096, "{took} bytes");
    let long = ToDaemon::Lookup {
        request: 1,
        instance: "lakeshore-00112233".parse().expect("a name"),
        labels: (0..MAX_VALUES).map(|n| (format!("{n:x}"), String::new())).collect(),
        delete: false,
    };
    assert!(matches!(wire::encode_text(&long), Err(TextError::TooManyValues { .. })), "what a peer refuses is not sent");
}

#[test]
fn what_is_nested_too_deeply_is_refused_and_takes_no_stack() {
    for depth in [200, MAX_DISPATCH_VALUES / 2] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        let text = format!(r#"{{"type":"heartbeat","x":{open}{close}}}"#);
        assert!(matches!(wire::decode_text::<ToDaemon>(&text), Err(TextError::Malformed { .. })), "{depth}");
        let body = format!(r#"{{"version":1,"work":{{"launch":{{"resources":{open}{close}}}}}}}"#);
        let error = Dispatch::decode(body.as_bytes()).expect_err("it is too deep").to_string();
        assert!(error.contains("recursion limit"), "{depth}: {error}");
    }
}
