//! The fuzz targets' bodies over their committed corpora and over the frames of ours: a find stays found, without a fuzzer.

use std::fs;
use std::path::Path;

use crate::corpus::files;
use crate::covers::covers;
use crate::form::FORMS;

#[path = "../fuzz/bodies/dispatch.rs"]
mod dispatch;
#[path = "../fuzz/bodies/frame.rs"]
mod frame;
#[path = "../fuzz/bodies/log_framer.rs"]
mod log_framer;

/// Runs a target over each file of its corpus; says how many there are.
fn replay(target: &str, run: fn(&[u8])) -> usize {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuzz/corpus")).join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).expect("a corpus").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    for file in &files {
        println!("{}", file.display()); // shown when it panics
        run(&fs::read(file).expect("a file of the checkout"));
    }
    files.len()
}

#[test]
fn frames_that_a_fuzzer_found_are_read_without_a_fault() {
    assert!(replay("frame", frame::run) > 10);
    for form in FORMS {
        files(form).values().for_each(|bytes| frame::run(bytes));
    }
}

#[test]
fn dispatches_that_a_fuzzer_found_are_judged_and_rendered_without_a_fault() {
    assert!(replay("dispatch", dispatch::run) > 10);
    for form in FORMS {
        files(form).values().for_each(|bytes| dispatch::run(bytes));
    }
}

#[test]
fn logs_that_a_fuzzer_found_are_framed_without_a_fault() {
    covers!("B95");
    assert!(replay("log_framer", log_framer::run) > 10);
}
