//! Runs the built program in an environment of its own: nothing of the developer's settings leaks in.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// A token of the right form, which must never show up in any output.
pub(crate) const TOKEN: &str = "lakeshore_SECRETSECRETSECRETSECRETSECRETSECRETSECRETS";

/// One call of `lakeshore`, being prepared.
pub(crate) struct Lakeshore {
    pub(crate) command: Command,
    home: TempDir,
    stdin: Vec<u8>,
}

/// How a call ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    /// stdout of a call that prints text.
    pub(crate) fn stdout(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("is text")
    }
}

/// A call that talks to nobody.
pub(crate) fn lakeshore(arguments: &[&str]) -> Lakeshore {
    let home = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lakeshore"));
    command.args(arguments).env_clear().env("HOME", home.path()).current_dir(home.path());
    Lakeshore { command, home, stdin: Vec::new() }
}

impl Lakeshore {
    /// Talks to the server at `url`, with a token.
    pub(crate) fn to(self, url: &str) -> Self {
        self.env("LAKESHORE_URL", url).env("LAKESHORE_TOKEN", TOKEN)
    }

    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn stdin(mut self, bytes: &[u8]) -> Self {
        self.stdin = bytes.to_vec();
        self
    }

    /// Puts a file into the home and working folder.
    pub(crate) fn file(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("is below home")).expect("a folder");
        fs::write(&path, bytes).expect("is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("is ours");
        self
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Starts it with pipes, for a test that acts while it runs.
    pub(crate) fn start(mut self) -> (std::process::Child, TempDir) {
        let pipes = self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        (pipes.spawn().expect("the program starts"), self.home)
    }

    /// Starts it with the given stdout, for a test that looks at a terminal.
    pub(crate) fn start_on(mut self, stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> (std::process::Child, TempDir) {
        (self.command.stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().expect("the program starts"), self.home)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    ///
    /// When the token shows up anywhere, or the program itself panicked.
    pub(crate) fn run(mut self) -> Ended {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("is a pipe");
        let _ = stdin.write_all(&self.stdin); // a program that reads no stdin may have ended
        drop(stdin);
        ended(child.wait_with_output().expect("ends"))
    }
}

/// What is left of a program that ended.
pub(crate) fn ended(output: Output) -> Ended {
    let stderr = String::from_utf8(output.stderr).expect("messages are text");
    assert!(!stderr.contains(TOKEN) && !String::from_utf8_lossy(&output.stdout).contains(TOKEN), "the token was shown");
    assert!(!stderr.contains("panicked"), "{stderr}");
    Ended { code: output.status.code(), stdout: output.stdout, stderr }
}

/// Sends a signal to a process of ours.
pub(crate) fn signal(process: u32, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(process).expect("a process id")), signal).expect("it is there");
}
