//! On a terminal, output is shown and not obeyed.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use nix::pty::openpty;

use crate::lakeshore::lakeshore;
use crate::play::{Play, ordinary};

/// What a terminal receives on stdout when `log` is followed on it.
fn on_a_terminal(log: &[u8], more: &[&str]) -> String {
    let play = Play::start(ordinary(log, 0));
    let terminal = openpty(None, None).expect("a terminal");
    let call = lakeshore(&[&["launch", "py", "hello.py"], more].concat()).file("hello.py", "print(1)\n").to(&play.url());
    let (mut child, _home) = call.start_on(terminal.slave, Stdio::null());
    let mut shown = Vec::new();
    // Linux ends a terminal whose last writer is gone with EIO.
    let end = File::from(terminal.master).read_to_end(&mut shown);
    assert!(end.is_ok() || end.is_err_and(|e| e.raw_os_error() == Some(nix::errno::Errno::EIO as i32)));
    assert_eq!(child.wait().expect("ends").code(), Some(0));
    String::from_utf8(shown).expect("is text").replace("\r\n", "\n") // the terminal's own line ends
}

const HOSTILE: &[u8] = b"\x1b]0;owned\x07\x1b[2Jplain \xe6\x97\xa5 \xc2\x9b31m\n";

#[test]
fn control_characters_are_made_visible_on_a_terminal() {
    assert_eq!(on_a_terminal(HOSTILE, &[]), "^[]0;owned^G^[[2Jplain 日 \\u{9b}31m\n");
}

#[test]
fn raw_shows_them_to_the_terminal() {
    assert_eq!(on_a_terminal(HOSTILE, &["--raw"]).as_bytes(), HOSTILE);
}
