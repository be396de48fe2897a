//! `covers!("S88", "A25")`: a test's own word on which requirements of the project's list it shows.
//!
//! Use it from an integration test with `#[path = "../support/covers.rs"] mod covers;` and `use crate::covers::covers;`. The macro runs
//! inside the test, so a requirement counts as covered only when its test really ran: with `NYMPH_COVERS_DIR` set (`tests/run` sets
//! it) each number is appended, one a line, to a file named for the process. Without the variable nothing is written.

use std::fs::OpenOptions;
use std::io::Write;

/// Notes that the test which calls it covers the named requirements.
macro_rules! covers {
    ($($requirement:literal),+ $(,)?) => {
        $crate::covers::note(&[$($requirement),+])
    };
}
pub(crate) use covers;

/// Appends `requirements` to this process's file; what [`covers!`] expands to.
///
/// # Panics
///
/// When a number is not of the list's form, or the folder that was asked for cannot be written: a lost note would show as a
/// requirement without a test.
pub(crate) fn note(requirements: &[&str]) {
    for requirement in requirements {
        assert!(is_requirement(requirement), "{requirement:?} is not a requirement's number: a letter and digits, as in \"S88\"");
    }
    let Some(folder) = std::env::var_os("NYMPH_COVERS_DIR") else { return };
    let path = std::path::Path::new(&folder).join(std::process::id().to_string());
    // One write a call: tests of one process append side by side.
    let lines = requirements.iter().map(|r| format!("{r}\n")).collect::<String>();
    let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    file.write_all(lines.as_bytes()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

fn is_requirement(text: &str) -> bool {
    let digits = text.strip_prefix(['S', 'A', 'W', 'B']).unwrap_or("");
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}
