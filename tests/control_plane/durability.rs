//! A promise is on disk before it is given: seen in the system calls of `lakeshore serve`, whatever its code says.
//!
//! That it fails without the sync, ring `mutants` shows: `no_wal_sync.patch`.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::covers::covers;
use crate::daemon::{Daemon, created};
use crate::plane::{Plane, skip};

/// The calls by which files and sockets are written, and files synced.
const CALLS: &str = "trace=fsync,fdatasync,write,writev,sendto,sendmsg,pwrite64";
const LOG: &str = "/lakeshore.db-wal>";

fn strace(trace: &Path) -> Vec<String> {
    let trace = trace.to_str().expect("text");
    // -D: the tracer is not the parent, so that the server is our child. -s: a page of the database is shown whole.
    ["strace", "-D", "-f", "-y", "-s", "8192", "-e", CALLS, "-e", "signal=none", "-o", trace].map(str::to_owned).to_vec()
}

fn can_trace(folder: &Path) -> bool {
    let arguments = strace(&folder.join("probe"));
    let ended = Command::new(&arguments[0]).args(&arguments[1..]).arg("true").output();
    ended.is_ok_and(|ended| ended.status.success()) && std::fs::metadata(folder.join("probe")).is_ok()
}

/// One thing that was seen, in its order.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    /// Bytes that name the dispatch or its instance went into the write-ahead log.
    Written,
    /// A sync of the log came to its end.
    Synced,
    /// Bytes that name it went to a socket.
    Said(String),
}

/// Reads a trace. A call that another thread's call interrupted has two lines: what is written counts where the write begins, for a
/// socket, and what is synced where the sync ends.
fn read(trace: &str, names: &[&str]) -> Vec<Seen> {
    let mut unfinished: HashMap<&str, bool> = HashMap::new();
    let mut seen = Vec::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ').map(|(thread, call)| (thread, call.trim_start())) else { continue };
        let sync = call.starts_with("fsync(") || call.starts_with("fdatasync(");
        if sync && call.contains(LOG) {
            if call.ends_with("<unfinished ...>") {
                unfinished.insert(thread, true);
            } else if call.ends_with("= 0") {
                seen.push(Seen::Synced);
            }
        } else if call.starts_with("<... f") && call.contains("sync resumed>") {
            if unfinished.remove(thread).is_some() && call.ends_with("= 0") {
                seen.push(Seen::Synced);
            }
        } else if names.iter().any(|name| call.contains(name)) {
            let target = call.split_once('>').map_or("", |(target, _)| target);
            if call.contains(LOG) {
                seen.push(Seen::Written);
            } else if target.contains("<socket:") || target.contains("<TCP") {
                seen.push(Seen::Said(call.chars().take(2000).collect()));
            }
        }
    }
    seen
}

/// Everything that was said of the dispatch while bytes of it were in the log and not synced.
fn broken(seen: &[Seen]) -> Vec<&str> {
    let mut dirty = false;
    let mut found = Vec::new();
    for event in seen {
        match event {
            Seen::Written => dirty = true,
            Seen::Synced => dirty = false,
            Seen::Said(what) if dirty => found.push(what.as_str()),
            Seen::Said(_) => {}
        }
    }
    found
}

#[tokio::test]
async fn what_is_answered_or_acknowledged_was_synced_before() {
    covers!("S132");
    let probe = tempfile::tempdir().expect("a folder");
    if !can_trace(probe.path()) {
        return skip(
            "the system calls of the server cannot be traced: strace is missing (Debian: apt-get install strace), or ptrace is not permitted",
        );
    }
    let trace = probe.path().join("trace");
    let mut plane = Plane::start_in(|_| strace(&trace), &[]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let launched = plane.launch(json!({"script": ""}));
    let (envelope, _) = daemon.dispatch().await;
    daemon.accept(&envelope).await;
    daemon.report(&envelope, 1, created()).await;
    launched.await.expect("it ends").expect(202);
    assert!(plane.terminate(), "{}", plane.log());
    let text = std::fs::read(&trace).expect("it is there");
    let text = String::from_utf8_lossy(&text);
    let (dispatch, instance) = (envelope.dispatch_id.to_string(), envelope.instance.to_string());
    let seen = read(&text, &[&dispatch, &instance]);
    let first = seen.iter().position(|event| *event == Seen::Written);
    let said = |what: &str| seen.iter().position(|event| matches!(event, Seen::Said(text) if text.contains(what)));
    for promise in ["accepted_ack", "HTTP/1.1 202"] {
        let at = said(promise).unwrap_or_else(|| panic!("the trace shows no {promise}: {seen:?}"));
        assert!(first.is_some_and(|first| first < at), "the row was written before {promise}: {seen:?}");
    }
    let (accepted, acknowledged) = (said("accepted_ack"), said(r#"\"ack\""#));
    let between = accepted.zip(acknowledged).and_then(|(from, to)| seen.get(from..to));
    let written = between.is_some_and(|between| between.contains(&Seen::Written));
    assert!(written, "the report was written before its ack: {seen:?}");
    assert_eq!(broken(&seen), Vec::<&str>::new(), "said before it was on disk");
}

#[test]
fn a_reply_before_the_sync_is_found_and_one_after_it_is_not() {
    let write = r#"12 pwrite64(9</d/lakeshore.db-wal>, "lakeshore-0011", 4096, 56) = 4096"#;
    let reply = r#"13 writev(11<socket:[5]>, [{"HTTP/1.1 202 lakeshore-0011"}], 1) = 30"#;
    let (begun, ended) = ("12 fdatasync(9</d/lakeshore.db-wal> <unfinished ...>", "12 <... fdatasync resumed>) = 0");
    let check = |lines: &[&str]| broken(&read(&lines.join("\n"), &["lakeshore-0011"])).len();
    assert_eq!(check(&[write, begun, ended, reply]), 0);
    assert_eq!(check(&[write, "12 fdatasync(9</d/lakeshore.db-wal>) = 0", reply]), 0);
    assert_eq!(check(&[write, begun, reply, ended]), 1);
    assert_eq!(check(&[write, reply]), 1);
    assert_eq!(check(&[write, "12 fdatasync(8</d/lakeshore.db>) = 0", reply]), 1, "another file's sync is none");
    assert_eq!(check(&[write, "12 fdatasync(9</d/lakeshore.db-wal>) = -1 EIO (Input/output error)", reply]), 1);
}
