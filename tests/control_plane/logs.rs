//! Log bytes: exact, whole, and at each reader's own pace.

use futures_util::StreamExt;
use nymph::types::{Reason, State};
use nymph::wire::{CloseCode, DispatchEnvelope, LOG_CREDIT, LogEndReason, MAX_LOG_CHUNK};
use reqwest::Method;
use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, completed, resume_at, running, seen};
use crate::launched::launch_created;
use crate::plane::{Plane, STUCK};

fn path(envelope: &DispatchEnvelope, query: &str) -> String {
    format!("/v1/namespaces/default/providers/demo/instances/{}/logs{query}", envelope.instance)
}

/// Bytes of every value, line ends and none among them.
fn noise(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7919 % 256) as u8).collect()
}

async fn running_instance(plane: &Plane, daemon: &mut Daemon) -> DispatchEnvelope {
    let envelope = launch_created(plane, daemon).await;
    let epoch = daemon.welcome.epoch;
    daemon.say_report(&envelope, 2, epoch, running()).await;
    envelope
}

async fn read(plane: &Plane, path: &str) -> Vec<u8> {
    let response = plane.request(Method::GET, path).send().await.expect("it answers");
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/octet-stream");
    response.bytes().await.expect("the body is whole").to_vec()
}

#[tokio::test]
async fn a_log_is_the_same_bytes_over_a_reconnect_and_a_killed_server() {
    covers!("S115", "S132");
    let mut plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    let bytes = noise(300_000);
    let follow = daemon.followed().await;
    assert_eq!((follow.offset, follow.credit), (0, LOG_CREDIT));
    daemon.log(follow.stream, 0, &bytes[..60_000]).await;
    daemon.send_log(follow.stream, 60_000, &bytes[60_000..100_000]).await; // perhaps stored, perhaps not
    drop(daemon);

    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let follow = daemon.followed().await;
    assert!(follow.offset == 60_000 || follow.offset == 100_000, "{}", follow.offset);
    assert_eq!(follow.resume, resume_at(follow.offset));
    let overlap = usize::try_from(follow.offset).expect("small") - 500;
    daemon.log(follow.stream, overlap as u64, &bytes[overlap..overlap + 60_000]).await; // a resume by whole seconds sends some again
    plane.kill();
    plane.run();

    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let follow = daemon.followed().await;
    let stored = usize::try_from(follow.offset).expect("small");
    assert_eq!(stored, overlap + 60_000, "what was acknowledged is on disk");
    assert!(read(&plane, &path(&envelope, "")).await == bytes[..stored]);
    for (index, chunk) in bytes[stored..].chunks(MAX_LOG_CHUNK).enumerate() {
        daemon.log(follow.stream, (stored + index * MAX_LOG_CHUNK) as u64, chunk).await;
    }
    daemon.end_log(follow.stream, LogEndReason::Complete, bytes.len() as u64).await;
    daemon.report(&envelope, 3, completed()).await;
    assert!(read(&plane, &path(&envelope, "?follow=true")).await == bytes, "a follow ends with the log");
    assert!(read(&plane, &path(&envelope, "?offset=299990")).await == bytes[299_990..]);
    assert_eq!(plane.instance(envelope.instance.as_str()).await["logComplete"], true);
    drop(daemon);
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let launched = plane.launch(json!({"script": ""}));
    let (next, _) = daemon.dispatch().await; // nothing was asked for before it: `dispatch` would have dropped it, `followed` below would see it
    daemon.accept(&next).await;
    daemon.report(&next, 1, running()).await;
    launched.await.expect("it ends").expect(202);
}

#[tokio::test]
async fn bytes_reach_a_follower_while_the_script_runs() {
    covers!("S115");
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    let follow = daemon.followed().await;
    let response = plane.request(Method::GET, &path(&envelope, "?follow=true")).send().await.expect("it answers");
    assert_eq!(response.headers()["x-nymph-log-offset"], "0");
    let mut body = response.bytes_stream();
    for (offset, line) in [(0, "one\n"), (4, "two\n"), (8, "no final newline")] {
        daemon.log(follow.stream, offset, line.as_bytes()).await;
        let piece = tokio::time::timeout(STUCK, body.next()).await.expect("it comes").expect("more comes").expect("the body goes on");
        assert_eq!(piece, line.as_bytes());
    }
    daemon.report(&envelope, 3, completed()).await;
    daemon.end_log(follow.stream, LogEndReason::Complete, 24).await;
    assert!(tokio::time::timeout(STUCK, body.next()).await.expect("it ends").is_none());
}

#[tokio::test]
async fn a_follower_that_does_not_read_holds_up_nobody() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    let follow = daemon.followed().await;
    let _unread = plane.request(Method::GET, &path(&envelope, "?follow=true")).send().await.expect("it answers");
    let bytes = noise(20 << 20); // more than sockets hold
    for (index, chunk) in bytes.chunks(MAX_LOG_CHUNK).enumerate() {
        daemon.send_log(follow.stream, (index * MAX_LOG_CHUNK) as u64, chunk).await;
        if index % 8 == 7 {
            daemon.acked(follow.stream, ((index - 7) * MAX_LOG_CHUNK) as u64).await;
        }
    }
    daemon.end_log(follow.stream, LogEndReason::Complete, bytes.len() as u64).await;
    daemon.report(&envelope, 3, completed()).await;
    assert!(read(&plane, &path(&envelope, "?follow=true")).await == bytes, "another reads all of it");
}

#[tokio::test]
async fn more_than_there_was_credit_for_ends_the_session() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    running_instance(&plane, &mut daemon).await;
    let follow = daemon.followed().await;
    let chunk = noise(MAX_LOG_CHUNK);
    for index in 0..400 {
        daemon.send_log(follow.stream, index * MAX_LOG_CHUNK as u64, &chunk).await; // without ever waiting for credit
    }
    assert_eq!(daemon.closed().await.code, CloseCode::Protocol);
}

#[tokio::test]
async fn a_log_over_its_limit_is_cut_marked_and_still_acknowledged() {
    let plane = Plane::start_with(&["--log-limit-bytes", "100000"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    let follow = daemon.followed().await;
    let bytes = noise(180_000);
    for (index, chunk) in bytes.chunks(60_000).enumerate() {
        daemon.log(follow.stream, (index * 60_000) as u64, chunk).await;
    }
    drop(daemon);
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let follow = daemon.followed().await;
    assert_eq!(follow.offset, 180_000, "what was dropped is not asked for again");
    daemon.end_log(follow.stream, LogEndReason::Complete, 180_000).await;
    daemon.report(&envelope, 3, completed()).await;
    let response = plane.request(Method::GET, &path(&envelope, "?follow=true")).send().await.expect("it answers");
    assert_eq!(response.headers()["x-nymph-log-dropped-bytes"], "80000");
    assert!(response.bytes().await.expect("the body is whole") == bytes[..100_000]);
    let row = plane.instance(envelope.instance.as_str()).await;
    assert_eq!((row["logBytes"].as_u64(), row["logDroppedBytes"].as_u64(), row["logComplete"].as_bool()), (Some(100_000), Some(80_000), Some(false)));
}

#[tokio::test]
async fn a_hole_in_a_stream_is_asked_for_again_and_never_stored() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    let first = daemon.followed().await;
    daemon.log(first.stream, 0, b"one").await;
    daemon.send_log(first.stream, 5, b"three").await;
    let second = daemon.followed().await;
    assert_eq!((second.offset, &second.resume), (3, &resume_at(3)));
    assert_ne!(second.stream, first.stream);
    daemon.log(second.stream, 3, b"twothree").await;
    daemon.end_log(second.stream, LogEndReason::Complete, 99).await; // says more than came
    let third = daemon.followed().await;
    daemon.end_log(third.stream, LogEndReason::Complete, 11).await;
    daemon.report(&envelope, 3, completed()).await;
    assert_eq!(read(&plane, &path(&envelope, "?follow=true")).await, b"onetwothree");
}

#[tokio::test]
async fn a_follow_ends_when_no_log_can_come() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    // Never started: no log will come.
    let envelope = launch_created(&plane, &mut daemon).await;
    let following = plane.request(Method::GET, &path(&envelope, "?follow=true")).send().await.expect("it answers");
    daemon.report(&envelope, 2, seen(State::Stopped, Reason::InvalidImage)).await;
    assert_eq!(following.bytes().await.expect("it ends"), "");
    // Its object went before its log was read to the end.
    let envelope = running_instance(&plane, &mut daemon).await;
    let follow = daemon.followed().await;
    daemon.log(follow.stream, 0, b"partly").await;
    daemon.report(&envelope, 3, seen(State::Stopped, Reason::DeletedByOther)).await;
    daemon.end_log(follow.stream, LogEndReason::Gone, 6).await;
    assert_eq!(read(&plane, &path(&envelope, "?follow=true")).await, b"partly");
    assert_eq!(plane.instance(envelope.instance.as_str()).await["logComplete"], false);
    // Lost while the daemon was away.
    let envelope = running_instance(&plane, &mut daemon).await;
    daemon.followed().await;
    daemon.report(&envelope, 3, seen(State::Stopped, Reason::Lost)).await;
    assert_eq!(read(&plane, &path(&envelope, "?follow=true")).await, b"");
}

#[tokio::test]
async fn a_server_that_stops_cuts_a_follow_so_that_a_part_is_not_taken_for_the_whole() {
    let mut plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    let follow = daemon.followed().await;
    daemon.log(follow.stream, 0, b"some").await;
    let following = plane.request(Method::GET, &path(&envelope, "?follow=true")).send().await.expect("it answers");
    assert!(plane.terminate(), "it exits with 0");
    assert!(following.bytes().await.is_err(), "the body was not ended properly");
    assert_eq!(daemon.closed().await.code, CloseCode::GoAway);
}

#[tokio::test]
async fn an_offset_beyond_the_log_is_refused() {
    let plane = Plane::start().await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let envelope = running_instance(&plane, &mut daemon).await;
    daemon.followed().await;
    plane.get(&path(&envelope, "?offset=1")).await.expect_problem(400, "invalid_path");
    plane.get(&path(&envelope, "?offset=x")).await.expect_problem(400, "invalid_path");
    plane.get(&path(&envelope, "?offset=0")).await.expect(200);
}
