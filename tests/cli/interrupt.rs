//! Ctrl-C leaves the instance running, and says how to get back to it.

use std::io::Read;

use nix::sys::signal::Signal;

use crate::lakeshore::{ended, lakeshore, signal};
use crate::play::{Cut, ID, Play, Script, ordinary};

/// Starts `arguments`, waits for the first byte of output, and presses Ctrl-C.
fn interrupted(arguments: &[&str]) -> (crate::lakeshore::Ended, Vec<String>) {
    let play = Play::start(Script { openings: vec![(1, Cut::Open)], ..ordinary(b"first\nsecond\n", 0) });
    let (mut child, _home) = lakeshore(arguments).file("hello.py", "print(1)\n").to(&play.url()).start();
    child.stdout.as_mut().expect("is a pipe").read_exact(&mut [0]).expect("output begins");
    signal(child.id(), Signal::SIGINT);
    let ended = ended(child.wait_with_output().expect("ends"));
    (ended, play.lines("DELETE"))
}

#[test]
fn ctrl_c_detaches_from_a_launch_and_says_how_to_go_on() {
    let (ended, deletions) = interrupted(&["launch", "py", "hello.py", "-n", "default"]);
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let hints = format!(
        "detached: {ID} goes on without you\n  follow it: lakeshore --namespace 'default' logs -f {ID}\n  stop it:   lakeshore --namespace 'default' stop {ID}\n"
    );
    assert!(ended.stderr.ends_with(&hints), "{}", ended.stderr);
    assert!(deletions.is_empty(), "{deletions:?}");
}

#[test]
fn ctrl_c_ends_following_a_log_without_a_word() {
    let (ended, deletions) = interrupted(&["logs", "-f", ID]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(130), ""));
    assert!(deletions.is_empty(), "{deletions:?}");
}
