//! A launch all the way: the program, `lakeshore serve`, and a daemon that is scripted at the wire.

use std::io::{BufRead, BufReader, Read};
use std::process::ChildStderr;

use nymph::types::{Reason, State};
use nymph::wire::{LogEndReason, RejectionCode};

use crate::covers::covers;
use crate::daemon::{Daemon, launch, rejection, running, seen};
use crate::lakeshore::{Ended, Lakeshore, ended};
use crate::plane::{Plane, STUCK};
use crate::serve::{call, ok};

/// Every byte value, in no order.
fn binary(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7919 % 256) as u8).collect()
}

/// A server with mode `py` and a daemon on `node1`; its enrolment token, for more of them.
async fn stage() -> (Plane, Daemon, String) {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    ok(&plane, &["modes", "add", "py", "--field", "provider=demo"]);
    let daemon = Daemon::connect(&plane, &token, "node1").await;
    (plane, daemon, token)
}

/// `lakeshore launch py hello.py …`.
fn hello(plane: &Plane, more: &[&str]) -> Lakeshore {
    call(plane, &[&["launch", "py", "hello.py"], more].concat()).file("hello.py", "print(1)")
}

/// What a program tells on stderr, read as far as a test has waited for.
struct Told {
    reader: BufReader<ChildStderr>,
    text: String,
}

impl Told {
    /// Reads on until `wanted` was told.
    async fn until(mut self, wanted: &'static str) -> Self {
        let reading = tokio::task::spawn_blocking(move || {
            while !self.text.contains(wanted) {
                assert!(self.reader.read_line(&mut self.text).expect("is text") > 0, "{wanted:?} was not told:\n{}", self.text);
            }
            self
        });
        tokio::time::timeout(STUCK, reading).await.expect("is told in time").expect("is told")
    }
}

/// Waits for a program without holding up the daemon.
async fn end_of(child: std::process::Child) -> Ended {
    let waited = tokio::task::spawn_blocking(|| child.wait_with_output().expect("ends"));
    ended(tokio::time::timeout(STUCK, waited).await.expect("ends in time").expect("no panic"))
}

#[tokio::test]
async fn a_launch_is_followed_over_a_killed_server_to_its_exit_code() {
    covers!("S81", "S93", "S115", "S116", "S132");
    let (mut plane, mut daemon, token) = stage().await;
    let (mut child, _home) = hello(&plane, &["--env", "A=b", "--", "x", "y z"]).start();
    let (envelope, dispatch) = daemon.dispatch().await;
    assert_eq!(launch(&dispatch).script().expect("a script"), "print(1)");
    assert_eq!(launch(&dispatch).args, ["x", "y z"]);
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, seen(State::Starting, Reason::ImagePull)).await;
    let told = Told { reader: BufReader::new(child.stderr.take().expect("is a pipe")), text: String::new() };
    let told = told.until("starting: image_pull").await;
    daemon.say_report(&envelope, 2, daemon.welcome.epoch, running()).await;
    let log = binary(200_000);
    let follow = daemon.followed().await;
    daemon.log(follow.stream, 0, &log[..50_000]).await;

    // The program has the first half before the server dies under it, and has noticed before the server is back.
    let mut stdout = child.stdout.take().expect("is a pipe");
    let first = tokio::task::spawn_blocking(move || {
        let mut first = vec![0; 50_000];
        stdout.read_exact(&mut first).expect("the first half comes");
        (first, stdout)
    });
    let (mut output, mut stdout) = tokio::time::timeout(STUCK, first).await.expect("comes in time").expect("no panic");
    let told = told.until("running on node1").await;
    plane.kill();
    let mut told = told.until("trying again").await;
    plane.run();

    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let follow = daemon.followed().await;
    assert_eq!(follow.offset, 50_000);
    for (i, piece) in log[50_000..].chunks(50_000).enumerate() {
        daemon.log(follow.stream, 50_000 * (i as u64 + 1), piece).await;
    }
    let mut stopped = seen(State::Stopped, Reason::ExitCode);
    stopped.exit_code = Some(7);
    daemon.end_log(follow.stream, LogEndReason::Complete, log.len() as u64).await;
    daemon.report(&envelope, 3, stopped).await;

    let rest = tokio::task::spawn_blocking(move || {
        stdout.read_to_end(&mut output).expect("the rest comes");
        told.reader.read_to_string(&mut told.text).expect("is text");
        (output, told.text, child.wait().expect("ends").code())
    });
    let (output, notes, code) = tokio::time::timeout(STUCK, rest).await.expect("ends in time").expect("no panic");
    assert_eq!(code, Some(7), "{notes}");
    assert!(output == log, "{} of {} bytes came\n{notes}", output.len(), log.len());
    assert!(notes.contains("connected again"), "{notes}");
    assert!(notes.ends_with(&format!("{} stopped: exit_code (exit code 7)\n", envelope.instance)), "{notes}");
}

#[tokio::test]
async fn a_refusal_by_policy_names_its_rule_and_exits_with_125() {
    covers!("S98", "S99", "S120");
    let (plane, mut daemon, _) = stage().await;
    let (child, _home) = hello(&plane, &["--image", "evil:1"]).start();
    let (envelope, _) = daemon.dispatch().await;
    let mut refused = rejection(RejectionCode::PolicyDenied, "images");
    refused.message = "image docker.io/library/evil:1 is not allowed".into();
    daemon.reject(&envelope, refused).await;
    let ended = end_of(child).await;
    assert_eq!((ended.code, ended.stdout()), (Some(125), ""), "{}", ended.stderr);
    assert!(ended.stderr.starts_with("error: image docker.io/library/evil:1 is not allowed (rule `images`)"), "{}", ended.stderr);
}

#[tokio::test]
async fn stop_is_carried_out_by_the_daemon_and_waited_for() {
    covers!("S95", "S100");
    let (plane, mut daemon, _) = stage().await;
    let (child, _home) = hello(&plane, &["--detach"]).start();
    let envelope = daemon.create().await;
    let launched = end_of(child).await;
    assert_eq!((launched.code, launched.stdout().trim_end()), (Some(0), envelope.instance.as_str()), "{}", launched.stderr);
    let (child, _home) = call(&plane, &["stop", "--wait", envelope.instance.as_str()]).start();
    assert_eq!(daemon.cancelled().await, envelope.instance);
    daemon.report(&envelope, 2, seen(State::Stopped, Reason::DeletedByRequest)).await;
    let stopped = end_of(child).await;
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    assert!(stopped.stderr.ends_with(&format!("{} stopped: deleted_by_request (exit code unknown)\n", envelope.instance)), "{}", stopped.stderr);
}

#[tokio::test]
async fn the_node_that_was_asked_for_gets_the_launch() {
    let (plane, _one, token) = stage().await;
    let mut two = Daemon::connect(&plane, &token, "node2").await;
    let (child, _home) = hello(&plane, &["--detach", "--node", "node2", "-o", "json"]).start();
    two.create().await;
    let answer: serde_json::Value = serde_json::from_slice(&end_of(child).await.stdout).expect("is JSON");
    assert_eq!(answer["node"], "node2");
    let daemons = ok(&plane, &["daemons"]);
    assert!(daemons.stdout().contains("node1") && daemons.stdout().contains("node2"), "{}", daemons.stdout());
}
