//! Following a launch: its bytes, its breaks, and its end.

use std::process::Command;

use serde_json::json;

use crate::covers::covers;
use crate::lakeshore::{Lakeshore, ended, lakeshore};
use crate::play::{Cut, ID, Play, Script, instance, ordinary};

/// `lakeshore launch` of a small script.
fn launch(more: &[&str]) -> Lakeshore {
    lakeshore(&[&["launch", "py", "hello.py"], more].concat()).file("hello.py", "print(1)\n")
}

/// Bytes that are no text, with every byte value in them.
fn binary(length: u32) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[test]
fn output_arrives_byte_for_byte_and_the_exit_code_is_the_scripts() {
    covers!("S81", "S93");
    let log = binary(100_000);
    let play = Play::start(ordinary(&log, 3));
    let ended = launch(&[]).to(&play.url()).run();
    assert!(ended.stdout == log, "{} bytes came", ended.stdout.len());
    assert_eq!(ended.code, Some(3));
    insta::assert_snapshot!(ended.stderr, @r#"
    launched lakeshore-0a1b2c3d on provider demo provider
    starting: scheduling
    starting: image_pull: Back-off pulling image "x"
    running on node-1
    lakeshore-0a1b2c3d stopped: exit_code (exit code 3)
    "#);
}

#[test]
fn what_is_launched_is_sent_once_with_a_key() {
    covers!("S79", "S90");
    let play = Play::start(ordinary(b"", 0));
    let script = "print(\"$HOME `x` 'y' ü\")"; // no final newline
    let call = lakeshore(&[
        "launch",
        "py",
        "-",
        "--node",
        "node-2",
        "--image",
        "python:3",
        "--env",
        "A=b=c",
        "--field",
        r#"tags={"t":"1"}"#,
        "--",
        "-x",
        "--",
        "y z",
    ]);
    assert_eq!(call.stdin(script.as_bytes()).to(&play.url()).run().code, Some(0));
    let launches: Vec<_> = play.seen().into_iter().filter(|seen| seen.line.ends_with("/launch")).collect();
    assert_eq!(launches.len(), 1);
    assert_eq!(launches[0].line, "POST /v1/namespaces/default/providers/demo%20provider/launch");
    assert_eq!(launches[0].idempotency_key.as_ref().map(String::len), Some(32));
    let expected = json!({
        "script": script, "mode": "py", "node": "node-2", "image": "python:3", "env": {"A": "b=c"}, "tags": {"t": "1"}, "args": ["-x", "--", "y z"],
    });
    assert_eq!(launches[0].body, expected);
}

#[test]
fn a_script_that_cannot_arrive_is_refused_before_anything_is_sent() {
    covers!("S79", "S130");
    let play = Play::start(ordinary(b"", 0));
    for (bytes, expected) in [(&b"print('\xff')"[..], "is not UTF-8 at byte 7"), (b"print('\0')", "has a NUL at byte 7")] {
        let ended = lakeshore(&["launch", "py", "x.py"]).file("x.py", bytes).to(&play.url()).run();
        assert_eq!(ended.code, Some(125));
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
    let ended = lakeshore(&["launch", "py", "missing.py"]).to(&play.url()).run();
    assert_eq!(ended.code, Some(125));
    assert!(ended.stderr.contains("cannot read the script missing.py: No such file"), "{}", ended.stderr);
    assert!(play.seen().is_empty());
}

#[test]
fn a_launch_without_an_answer_is_asked_for_again_with_the_same_key() {
    covers!("S65");
    let play = Play::start(Script { launches_to_drop: 1, ..ordinary(b"out", 0) });
    let ended = launch(&[]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stdout()), (Some(0), "out"), "{}", ended.stderr);
    let keys: Vec<_> = play.seen().into_iter().filter(|seen| seen.line.ends_with("/launch")).map(|seen| seen.idempotency_key).collect();
    assert_eq!(keys.len(), 2);
    assert_eq!(keys[0], keys[1]);
}

#[test]
fn a_launch_that_may_have_happened_is_not_called_a_failure_to_launch() {
    let play = Play::start(Script { launches_to_drop: 2, ..ordinary(b"", 0) });
    let ended = launch(&["-n", "team a"]).to(&play.url()).run();
    assert_eq!(ended.code, Some(125));
    insta::with_settings!({filters => vec![(r"127\.0\.0\.1:\d+", "ADDRESS")]}, { insta::assert_snapshot!(ended.stderr, @r#"
    error: no answer from the control plane at http://ADDRESS (connection closed before message completed): the script may have been launched
      cure: `lakeshore --namespace 'team a' instances` shows whether it was
    "#); });
}

#[test]
fn a_stream_that_is_cut_goes_on_at_the_byte_where_it_broke() {
    let log = binary(50_000);
    let openings = vec![(10_000, Cut::Broken), (10_000, Cut::Broken), (30_000, Cut::Broken), (31_000, Cut::Clean)];
    let play = Play::start(Script { openings, ..ordinary(&log, 0) });
    let ended = launch(&[]).to(&play.url()).run();
    assert!(ended.stdout == log, "{} of {} bytes came", ended.stdout.len(), log.len());
    assert_eq!(ended.code, Some(0));
    // Each opening asked for exactly the first byte that had not come, and the clean end at 31,000 was not taken for the log's.
    let offsets: Vec<_> = play.lines("GET").into_iter().filter_map(|line| Some(line.split_once("/logs?follow=true&offset=")?.1.to_owned())).collect();
    // How often its end is confirmed depends on when the instance is seen to have ended.
    assert!(offsets.starts_with(&["0", "10000", "10000", "30000", "31000"].map(str::to_owned)), "{offsets:?}");
    assert!(offsets.len() > 5 && offsets[5..].iter().all(|offset| offset == "50000"), "{offsets:?}");
}

#[test]
fn a_restart_of_the_server_loses_and_repeats_nothing() {
    covers!("S132");
    let log = binary(40_000);
    let play = Play::start(Script { openings: vec![(20_000, Cut::Open)], ..ordinary(&log, 5) });
    let url = play.url();
    let (mut child, home) = launch(&[]).to(&url).start();
    let mut stdout = child.stdout.take().expect("is a pipe");
    let mut first = vec![0; 20_000];
    std::io::Read::read_exact(&mut stdout, &mut first).expect("the first half comes");
    // Down until the program has noticed: its first note ends the wait.
    let mut stderr = std::io::BufReader::new(child.stderr.take().expect("is a pipe"));
    let mut notes = String::new();
    let play = play.restart(|| {
        while !notes.contains("trying again") {
            assert!(std::io::BufRead::read_line(&mut stderr, &mut notes).expect("is text") > 0, "{notes}");
        }
    });
    let mut rest = Vec::new();
    std::io::Read::read_to_end(&mut stdout, &mut rest).expect("the rest comes");
    std::io::Read::read_to_string(&mut stderr, &mut notes).expect("is text");
    assert_eq!(child.wait().expect("ends").code(), Some(5), "{notes}");
    first.extend(rest);
    assert!(first == log, "{} of {} bytes came\n{notes}", first.len(), log.len());
    assert_eq!((notes.matches("trying again").count(), notes.matches("connected again").count()), (1, 1), "{notes}");
    drop((play, home));
}

#[test]
fn an_outcome_that_is_not_known_exits_with_125() {
    covers!("S103");
    for (state, expected) in [
        (
            instance("stopped", "lost", "accepted, and never seen to exist", None),
            "stopped: lost (exit code unknown): accepted, and never seen to exist",
        ),
        (instance("stopped", "rejected", "", None), "stopped: rejected (exit code unknown)"),
    ] {
        let play = Play::start(Script { states: vec![instance("starting", "accepted", "", None), state], ..Script::default() });
        let ended = launch(&[]).to(&play.url()).run();
        assert_eq!(ended.code, Some(125), "{}", ended.stderr);
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

#[test]
fn out_of_memory_shows_as_such_with_the_containers_code() {
    let states = vec![instance("running", "running", "", None), instance("stopped", "out_of_memory", "limit 64Mi", Some(137))];
    let play = Play::start(Script { states, ..Script::default() });
    let ended = launch(&[]).to(&play.url()).run();
    assert_eq!(ended.code, Some(137));
    assert!(ended.stderr.ends_with(&format!("{ID} stopped: out_of_memory (exit code 137): limit 64Mi\n")), "{}", ended.stderr);
}

#[test]
fn output_that_is_not_kept_is_said_to_be_missing() {
    let mut last = instance("stopped", "completed", "", Some(0));
    last["logDroppedBytes"] = json!(4096);
    let play = Play::start(Script { states: vec![instance("running", "running", "", None), last], log: b"begin".to_vec(), ..Script::default() });
    let ended = launch(&[]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stdout()), (Some(0), "begin"));
    assert!(ended.stderr.contains("4096 bytes at the end of the output went over"), "{}", ended.stderr);
}

#[test]
fn detached_only_the_id_is_printed() {
    covers!("S93", "S96");
    let play = Play::start(ordinary(b"x", 0));
    let ended = launch(&["--detach"]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stdout(), ended.stderr.as_str()), (Some(0), format!("{ID}\n").as_str(), ""));
    let ended = launch(&["--detach", "-o", "json"]).to(&play.url()).run();
    let answer: serde_json::Value = serde_json::from_slice(&ended.stdout).expect("is JSON");
    assert_eq!(answer["instanceId"], ID);
}

#[test]
fn logs_shows_what_is_there_from_any_byte() {
    let script = || Script { states: vec![instance("running", "running", "", None)], log: b"one\ntwo\n".to_vec(), ..Script::default() };
    let play = Play::start(script());
    assert_eq!(lakeshore(&["logs", ID]).to(&play.url()).run().stdout(), "one\ntwo\n");
    assert_eq!(lakeshore(&["logs", ID, "--offset", "4"]).to(&play.url()).run().stdout(), "two\n");
    assert!(play.lines("GET").iter().all(|line| !line.contains("follow=true")));
    let broken = Play::start(Script { openings: vec![(3, Cut::Broken)], ..script() });
    assert_eq!(lakeshore(&["logs", ID]).to(&broken.url()).run().stdout(), "one\ntwo\n");
}

#[test]
fn logs_follows_to_the_end() {
    let play = Play::start(Script { openings: vec![(3, Cut::Broken)], ..ordinary(b"one\ntwo\n", 3) });
    let ended = lakeshore(&["logs", "-f", ID]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stdout()), (Some(0), "one\ntwo\n"));
}

#[test]
fn an_empty_log_says_what_became_of_the_instance() {
    let play = Play::start(Script { states: vec![instance("stopped", "lost", "", None)], ..Script::default() });
    let ended = lakeshore(&["logs", ID]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stdout()), (Some(0), ""));
    assert_eq!(ended.stderr, format!("no output is kept; {ID} stopped: lost (exit code unknown)\n"));
    let play = Play::start(Script { states: vec![instance("starting", "image_pull", "", None)], ..Script::default() });
    let waiting = lakeshore(&["logs", ID]).to(&play.url()).run();
    assert_eq!(waiting.stderr, format!("no output yet; {ID} is starting: image_pull\n"));
}

#[test]
fn stop_says_so_when_it_comes_too_late() {
    let play = Play::start(Script { states: vec![instance("stopped", "completed", "", Some(0))], ..Script::default() });
    let ended = lakeshore(&["stop", ID]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stderr), (Some(0), format!("{ID} stopped: completed (exit code 0)\n")));
}

#[test]
fn stop_waits_for_the_end_when_asked() {
    covers!("S95", "S100");
    let states = vec![
        instance("running", "running", "", None),
        instance("stopping", "deleted_by_request", "", None),
        instance("stopped", "deleted_by_request", "", None),
    ];
    let play = Play::start(Script { states, ..Script::default() });
    let ended = lakeshore(&["stop", ID, "--wait"]).to(&play.url()).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(play.lines("DELETE").len(), 1);
    assert!(ended.stderr.ends_with(&format!("{ID} stopped: deleted_by_request (exit code unknown)\n")), "{}", ended.stderr);
}

#[test]
fn a_reader_that_goes_away_ends_it_without_a_word() {
    let play = Play::start(ordinary(&binary(2_000_000), 0));
    let (mut child, home) = launch(&[]).to(&play.url()).start();
    let mut head = Command::new("head")
        .args(["-c", "10"])
        .stdin(child.stdout.take().expect("is a pipe"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("head");
    head.wait().expect("head ends");
    let ended = ended(child.wait_with_output().expect("ends"));
    assert_eq!(ended.code, Some(141), "{}", ended.stderr);
    assert!(!ended.stderr.contains("error"), "{}", ended.stderr);
    drop(home);
}
