//! `shown(4, "K", 5)`: a test's own word that it showed row 4 of the fault matrix in layer K with 5 repetitions (or seeds).
//!
//! With `NYMPH_FAULTS_DIR` set (`tests/run faults` sets it) a line is appended to the process's own file there, from which the ring's table
//! takes its numbers; without it nothing is written. It is called at a test's end: a test that fails notes nothing.

#![allow(dead_code, reason = "each test target uses a part")]

use std::io::Write as _;

/// Notes it.
///
/// # Panics
///
/// When the folder that was asked for cannot be written.
pub(crate) fn shown(row: u32, layer: &str, repetitions: usize) {
    note(&format!("{row}|{layer}|{repetitions}|"));
}

/// Notes a measured figure or a limit of what was shown, which is printed in the row's line.
pub(crate) fn remark(row: u32, words: &str) {
    note(&format!("{row}||0|{words}"));
}

fn note(line: &str) {
    let Some(folder) = std::env::var_os("NYMPH_FAULTS_DIR") else { return };
    let path = std::path::Path::new(&folder).join(std::process::id().to_string());
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.write_all(format!("{line}\n").as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", path.display())); // one write: tests append side by side
}

/// How often a test repeats: more with `tests/run --long`.
pub(crate) fn rounds(short: usize, long: usize) -> usize {
    if std::env::var_os("NYMPH_LONG").is_some_and(|v| !v.is_empty()) { long } else { short }
}
