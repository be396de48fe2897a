//! Tokens that were made, or may have been: none is left that is valid and that nobody can find.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::lakeshore::{Ended, Lakeshore, ended, lakeshore, signal};
use crate::plane::Plane;
use crate::play::{Play, Script};
use crate::serve::{call, ok};

fn run_on(call: Lakeshore, stdout: impl Into<Stdio>) -> Ended {
    let (child, _home) = call.start_on(stdout, Stdio::piped());
    ended(child.wait_with_output().expect("ends"))
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("it is there")
}

/// A pipe that nobody reads from any more.
fn closed() -> std::io::PipeWriter {
    std::io::pipe().expect("a pipe").1
}

#[test]
fn a_token_that_cannot_be_written_is_named_with_what_ends_it() {
    let answer = json!({"id": "5017cde40dc8b46d", "name": "c 1", "token": "the-new-one"});
    for (arguments, revoke) in [
        (&["clusters", "enroll", "c 1"][..], "`lakeshore clusters revoke 'c 1' 5017cde40dc8b46d`"),
        (&["clusters", "rotate", "c1"], "`lakeshore clusters revoke c1 5017cde40dc8b46d`"),
        (&["clusters", "rotate", "c1", "-o", "json"], "`lakeshore clusters revoke c1 5017cde40dc8b46d`"),
        (&["tokens", "create", "--name", "ci", "-n", "a"], "`lakeshore tokens revoke 5017cde40dc8b46d`"),
        (&["tokens", "create", "--name", "ci", "-n", "a", "-o", "yaml"], "`lakeshore tokens revoke 5017cde40dc8b46d`"),
    ] {
        let play = Play::start(Script { answer: Some((201, answer.clone())), ..Script::default() });
        let call = || lakeshore(arguments).to(&play.url());
        for (why, ended) in [("No space left", run_on(call(), full())), ("Broken pipe", run_on(call(), closed()))] {
            assert_eq!(ended.code, Some(1), "{arguments:?}: {}", ended.stderr);
            assert!(ended.stderr.contains(why) && ended.stderr.contains(revoke), "{arguments:?}: {}", ended.stderr);
            assert!(!ended.stderr.contains("the-new-one"), "{}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn the_token_of_a_data_folder_that_cannot_be_written_is_the_one_that_is_named() {
    let server = Plane::start().await;
    let data = server.data();
    let arguments = ["tokens", "create", "--data", data.to_str().expect("is text"), "--name", "lost", "--admin"];
    let failed = run_on(lakeshore(&arguments), full());
    assert_eq!(failed.code, Some(1), "{}", failed.stderr);
    let row = row(&server, "lost").expect("it was made");
    ok(&server, &["tokens", "revoke", row["id"].as_str().expect("an id")]);
    assert!(failed.stderr.contains(&format!("`lakeshore tokens revoke {}`", row["id"].as_str().expect("an id"))), "{}", failed.stderr);
}

fn row(server: &Plane, name: &str) -> Option<Value> {
    let rows: Value = serde_json::from_slice(&ok(server, &["tokens", "list", "-o", "json"]).stdout).expect("is JSON");
    rows.as_array().into_iter().flatten().find(|row| row["name"] == name).cloned()
}

#[tokio::test]
async fn a_server_that_was_stopped_makes_no_token_for_a_client_that_has_gone() {
    let server = Plane::start().await;
    signal(server.pid(), Signal::SIGSTOP);
    let data = server.data();
    let ended = lakeshore(&["tokens", "create", "--data", data.to_str().expect("is text"), "--name", "stopd", "--admin"]).run();
    signal(server.pid(), Signal::SIGCONT);
    assert_eq!((ended.code, ended.stdout()), (Some(1), ""), "{}", ended.stderr);
    for words in ["no answer within 10 s", "may have been made", "see `lakeshore tokens list`", "revoke it with `lakeshore tokens revoke ID`"] {
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    let dropped = async {
        while !server.log().contains("was gone before its request was looked at") {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::plane::STUCK, dropped).await.expect("the server looks at the request");
    assert_eq!(row(&server, "stopd"), None);
}

#[test]
fn a_request_for_a_token_that_is_not_answered_may_have_made_one() {
    for (arguments, list) in [
        (&["clusters", "enroll", "c1"][..], "see `lakeshore clusters list`, and revoke it with `lakeshore clusters revoke c1 ID`"),
        (&["tokens", "create", "--name", "ci", "--admin"], "see `lakeshore tokens list`, and revoke it with `lakeshore tokens revoke ID`"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("is bound"));
        for answer in ["", "HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n{"] {
            let (child, _home) = lakeshore(arguments).to(&url).start();
            let (mut stream, _) = listener.accept().expect("it comes");
            assert!(stream.read(&mut [0; 4096]).expect("it asks") > 0);
            stream.write_all(answer.as_bytes()).expect("it is sent");
            drop(stream);
            let ended = ended(child.wait_with_output().expect("ends"));
            assert_eq!(ended.code, Some(1), "{}", ended.stderr);
            assert!(ended.stderr.contains("may have been made") && ended.stderr.contains(list), "{}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn what_a_token_is_asked_with_is_named_as_on_the_command_line() {
    let server = Plane::start().await;
    let said = |arguments: &[&str], code: i32| {
        let ended = call(&server, arguments).run();
        assert_eq!((ended.code, ended.stdout()), (Some(code), ""), "{arguments:?}: {}", ended.stderr);
        ended.stderr
    };
    for time in ["0s", "0d", "99999999999d", "213503982334d"] {
        let text = said(&["clusters", "enroll", "c 1 ü", "--expires", time], 2);
        assert!(text.contains("--expires") && !text.contains("expiresIn"), "{text}");
    }
    let text = said(&["tokens", "create", "--name", "ci", "-n", "nowhere"], 2);
    assert!(text.contains("--namespace"), "{text}");
    ok(&server, &["clusters", "enroll", "c 1 ü"]);
    let text = said(&["clusters", "enroll", "c 1 ü"], 1);
    assert!(text.contains("`lakeshore clusters rotate 'c 1 ü'`"), "{text}");
    ok(&server, &["clusters", "rotate", "c 1 ü"]);
    let text = said(&["clusters", "rotate", "c 1 ü"], 1);
    assert!(text.contains("`lakeshore clusters revoke 'c 1 ü' ID`"), "{text}");
}

#[tokio::test]
async fn what_would_name_another_path_is_refused_with_its_argument() {
    let server = Plane::start().await;
    for (arguments, word) in [
        (&["clusters", "revoke", "c1", ""][..], "<TOKEN_ID>"),
        (&["clusters", "revoke", "c1", ".."], "<TOKEN_ID>"),
        (&["clusters", "revoke", "", "1"], "<NAME>"),
        (&["tokens", "revoke", ""], "<ID>"),
        (&["tokens", "revoke", ".."], "<ID>"),
        (&["instances", "-n", ""], "--namespace"),
        (&["instances", "-n", ".."], "--namespace"),
    ] {
        let ended = call(&server, arguments).run();
        assert_eq!((ended.code, ended.stdout()), (Some(2), ""), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(word) && !ended.stderr.contains("there is no path"), "{arguments:?}: {}", ended.stderr);
    }
    let url = format!("http://{}/foo", server.address);
    let ended = call(&server, &["daemons", "--server", &url]).run();
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains(&format!("the server's URL {url} (from --server) seems wrong")), "{}", ended.stderr);
}

#[test]
fn another_program_that_answers_is_told_as_a_wrong_url() {
    let play = Play::start(Script { answer: Some((404, json!("another program's page"))), ..Script::default() });
    let ended = lakeshore(&["daemons"]).to(&play.url()).run();
    assert!(ended.stderr.contains("(from LAKESHORE_URL) seems wrong"), "{}", ended.stderr);
}
