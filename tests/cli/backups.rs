//! `lakeshore backup` when it is ended, and with folders that are not as they should be.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Child;
use std::sync::mpsc;

use nix::sys::signal::Signal;

use crate::lakeshore::{Ended, Lakeshore, ended, lakeshore, signal};
use crate::plane::{Plane, STUCK};

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// The end of a program that must not hang.
fn end_of(child: Child) -> Ended {
    let process = child.id();
    let (waited, end) = mpsc::channel();
    std::thread::spawn(move || waited.send(child.wait_with_output()));
    let output = end.recv_timeout(STUCK).unwrap_or_else(|_| {
        signal(process, Signal::SIGKILL);
        panic!("it hangs: {:?}", end.recv())
    });
    ended(output.expect("it ended"))
}

fn make_data(data: &Path) {
    let made = lakeshore(&["tokens", "create", "--data", text(data), "--name", "me", "--admin"]).run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
}

#[tokio::test]
async fn a_backup_says_that_it_waits_and_a_signal_leaves_nothing_behind() {
    let server = Plane::start().await;
    let file = server.folder.path().join("a.tar");
    let partial = server.folder.path().join("a.tar.partial");
    let back_up = || lakeshore(&["backup", "--data", text(&server.data()), text(&file)]);
    std::fs::write(&partial, "of a backup that was killed").expect("it is written");
    for (sent, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        signal(server.pid(), Signal::SIGSTOP);
        let (mut child, _home) = back_up().start();
        let mut told = BufReader::new(child.stderr.take().expect("is a pipe"));
        let mut line = String::new();
        told.read_line(&mut line).expect("is text");
        assert!(line.starts_with("waiting for the server on this data folder"), "{line}");
        assert!(partial.exists());
        signal(child.id(), sent);
        let ended = end_of(child);
        signal(server.pid(), Signal::SIGCONT);
        told.read_to_string(&mut line).expect("is text");
        assert_eq!(ended.code, Some(code), "{line}");
        assert!(line.contains("no backup was made"), "{line}");
        assert!(!partial.exists() && !file.exists(), "{sent}");
    }
    let (child, _home) = back_up().start();
    assert_eq!(end_of(child).code, Some(0), "the next one works");
}

#[test]
fn a_backup_without_a_server_that_is_ended_removes_its_copy_and_holds_up_others_with_a_clear_word() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let copy = data.join("lakeshore.db.backup");
    make_data(&data);
    let (mut child, _home) = lakeshore(&["backup", "--data", text(&data), "-"]).start();
    let mut stdout = child.stdout.take().expect("is a pipe");
    stdout.read_exact(&mut [0]).expect("the archive begins"); // and is larger than a pipe
    assert!(copy.exists());
    let file = folder.path().join("b.tar");
    for arguments in [&["tokens", "create", "--data", text(&data), "--name", "two", "--admin"][..], &["backup", "--data", text(&data), text(&file)]] {
        let ended = lakeshore(arguments).run();
        assert_eq!(ended.code, Some(1), "{}", ended.stderr);
        assert!(ended.stderr.contains("is held by another lakeshore command") && ended.stderr.contains("try again"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("admin.sock"), "{}", ended.stderr);
    }
    signal(child.id(), Signal::SIGTERM);
    let ended = end_of(child);
    assert_eq!(ended.code, Some(143), "{}", ended.stderr);
    assert!(!copy.exists());
}

#[tokio::test]
async fn a_server_removes_the_copy_of_a_backup_that_was_killed() {
    let mut server = Plane::start().await;
    server.kill();
    let copy = server.data().join("lakeshore.db.backup");
    std::fs::write(&copy, "half").expect("it is written");
    server.run();
    assert!(!copy.exists());
}

#[test]
fn a_data_folder_may_have_any_name_that_a_file_system_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in [OsStr::from_bytes(b"d\xff"), OsStr::new("file:foo"), OsStr::new("file:bar?mode=memory"), OsStr::new("a b"), OsStr::new("%41#x")] {
        let run = |arguments: &[&str], more: &[&OsStr]| {
            let ended = lakeshore(arguments).arguments(more).inside(folder.path()).run();
            assert_eq!(ended.code, Some(0), "{name:?} {arguments:?}: {}", ended.stderr);
        };
        run(&["tokens", "create", "--name", "me", "--admin", "--data"], &[name]);
        let mut file = name.to_owned();
        file.push(".tar");
        run(&["backup", "--data"], &[name, OsStr::new("--"), &file]);
        let database = folder.path().join(name).join("lakeshore.db");
        assert!(std::fs::metadata(database).expect("it is in the folder of that name").len() > 0, "{name:?}");
    }
    let mut made: Vec<_> = std::fs::read_dir(folder.path()).expect("it is read").map(|entry| entry.expect("an entry").file_name()).collect();
    made.sort();
    assert_eq!(made.len(), 10, "{made:?}");
}

#[test]
fn a_file_of_the_store_that_is_none_is_refused_at_once() {
    for name in ["lakeshore.db", "lakeshore.db-wal"] {
        let folder = tempfile::tempdir().expect("a folder");
        make_data(folder.path());
        let path = folder.path().join(name);
        let _ = std::fs::remove_file(&path); // the log is not there after a good end
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("it is made");
        for arguments in [
            &["serve", "--listen", "127.0.0.1:0", "--data", text(folder.path())][..],
            &["tokens", "create", "--name", "two", "--admin", "--data", text(folder.path())],
            &["backup", "--data", text(folder.path()), "a.tar"],
        ] {
            let (child, _home) = lakeshore(arguments).start();
            let ended = end_of(child);
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
            assert!(
                ended.stderr.contains(text(&path)) && ended.stderr.contains("it is a FIFO and not a regular file: move it away"),
                "{}",
                ended.stderr
            );
        }
    }
}

/// Nobody, root included, makes a file in `/sys`: a lock there stands for a folder that cannot be written to.
#[test]
fn a_folder_that_cannot_be_written_to_is_to_be_copied_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("a snapshot");
    make_data(&data);
    std::fs::remove_file(data.join("lock")).expect("it is there");
    std::os::unix::fs::symlink("/sys/lock", data.join("lock")).expect("it is made");
    let ended = lakeshore(&["backup", "--data", text(&data), "a.tar"]).run();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("`cp -a '{}' COPY`", data.display())), "{}", ended.stderr);
    let document = include_str!("../../deploy/OPERATING.md");
    assert!(document.contains("cp -a SNAPSHOT COPY"), "the document says the same");
}

impl Lakeshore {
    fn arguments(mut self, more: &[&OsStr]) -> Self {
        self.command.args(more);
        self
    }

    fn inside(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }
}
