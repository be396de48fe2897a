//! Programs, waits and measurements, shared by the rings that drive real processes.

#![allow(clippy::disallowed_methods, reason = "the rings wait for a real cluster, in real time, from plain threads")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for a condition. Generous, since the machine may be busy: no test asserts how long a wait took, but through
/// [`measured`].
const PATIENCE: Duration = Duration::from_secs(90);

/// What a finished program said.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Run {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The same, after the program ended with 0.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.text(), self.stderr);
        self
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", self.text(), self.stderr))
    }

    /// Asserts that the program failed, and that its words are in what it says to the person.
    pub(crate) fn refused(&self, words: &[&str]) {
        assert!(!matches!(self.code, Some(0) | None), "it was not refused: {}", self.text());
        for word in words {
            assert!(self.stderr.contains(word), "{word:?} is not in: {}", self.stderr);
        }
    }
}

pub(crate) fn run(program: &str, args: &[&str], stdin: Option<&str>) -> Run {
    run_command(Command::new(program).args(args), stdin)
}

pub(crate) fn run_command(command: &mut Command, stdin: Option<&str>) -> Run {
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() }).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}; run this ring by tests/run", command.get_program()));
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), stdin) {
        pipe.write_all(text.as_bytes()).expect("the program reads its input");
    }
    let output = child.wait_with_output().expect("the program ends");
    Run { code: output.status.code(), stdout: output.stdout, stderr: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// A file with these bytes, kept until the machine clears its temporary folder.
pub(crate) fn file_with(bytes: &[u8], suffix: &str) -> PathBuf {
    let mut file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    file.into_temp_path().keep().expect("a temporary file can be kept")
}

/// Waits until the condition holds and says how long it took; when it never does, fails with the story.
pub(crate) fn until<T>(what: &str, story: impl Fn() -> String, condition: impl FnMut() -> Option<T>) -> (T, Duration) {
    until_within(PATIENCE, what, story, condition)
}

/// The same with another patience.
pub(crate) fn until_within<T>(patience: Duration, what: &str, story: impl Fn() -> String, mut condition: impl FnMut() -> Option<T>) -> (T, Duration) {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return (value, started.elapsed());
        }
        assert!(started.elapsed() < patience, "waited {patience:?} for: {what}\n{}", story());
        std::thread::sleep(Duration::from_millis(50)); // polls a level; it does not wait for an event
    }
}

/// Records what was measured against a limit that the issue states, and holds it at three times its value.
pub(crate) fn measured(name: &str, limit: Duration, took: Duration) {
    if let Ok(folder) = std::env::var("NYMPH_MEASURES_DIR") {
        let path = PathBuf::from(folder).join(format!("{}", std::process::id()));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("the folder exists");
        writeln!(file, "{name}|{:.3}|{:.3}", took.as_secs_f64(), limit.as_secs_f64()).expect("room for a line");
    }
    assert!(took < limit * 3, "{name}: {took:?}, three times the limit of {limit:?} is over");
}
