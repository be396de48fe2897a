//! `lakeshore backup` beside a running server, and what a server does with the copy.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nymph::types::{Attempt, Reason, State};
use nymph::wire::{DispatchEnvelope, HeldItem, OPEN_PAGE, OpenPhase, ToDaemon};
use serde_json::{Value, json};

use crate::covers::covers;
use crate::daemon::{Daemon, Incoming, completed, running, seen};
use crate::launched::launched;
use crate::plane::Plane;

async fn lakeshore(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lakeshore"));
    command.args(arguments).env_remove("LAKESHORE_DATA");
    tokio::task::spawn_blocking(move || command.output().expect("it runs")).await.expect("it ends")
}

async fn back_up(data: &Path, file: &Path) -> Value {
    let ended = lakeshore(&["backup", "--data", text(data), text(file), "-o", "json"]).await;
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    serde_json::from_slice(&ended.stdout).expect("JSON")
}

/// Sends a log in chunks that the wire allows, up to its end, and waits until all of it is stored.
async fn send(daemon: &mut Daemon, stream: u64, from: u64, bytes: &[u8]) {
    let mut offset = from;
    for chunk in bytes.chunks(50_000) {
        daemon.log(stream, offset, chunk).await;
        offset += chunk.len() as u64;
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// As the help says: `mkdir -m 700 restored && tar -xpf FILE -C restored`.
fn unpack(file: &Path, folder: &Path) {
    std::fs::create_dir(folder).expect("it is made");
    let ended = Command::new("tar").arg("-xpf").arg(file).arg("-C").arg(folder).output().expect("tar runs");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn held(daemon: &Daemon, envelope: &DispatchEnvelope) -> HeldItem {
    HeldItem {
        dispatch_id: envelope.dispatch_id.clone(),
        attempt: Attempt(1),
        instance: envelope.instance.clone(),
        uid: Some("pod-uid".into()),
        install: Some(daemon.welcome.install.clone()),
        namespace: Some("nymph-runs".into()),
        caller_namespace: Some("default".into()),
        provider: Some("demo".into()),
        requested_by: Some("default/tester".into()),
    }
}

#[tokio::test]
async fn a_restored_copy_starts_nothing_again_and_takes_over_what_came_after_it() {
    covers!("S132");
    let mut plane = Plane::start_with(&["--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let launch = async |plane: &Plane| plane.launch(json!({"script": ""})).await.expect("it ends").expect(202);
    launch(&plane).await;
    let first = daemon.create().await;
    daemon.report(&first, 2, running()).await;
    let stream = daemon.followed().await.stream;
    let log: Vec<u8> = (0..300_000_u32).map(|i| (i * 31 % 251) as u8).collect();
    send(&mut daemon, stream, 0, &log[..100_000]).await;
    launch(&plane).await;
    let (queued, _) = daemon.dispatch().await; // never answered

    let file = plane.folder.path().join("lakeshore.tar");
    let made = back_up(&plane.data(), &file).await;
    assert_eq!((made["logs"].as_u64(), made["logBytes"].as_u64(), &made["damagedLogs"]), (Some(1), Some(100_000), &json!([])));
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);

    launch(&plane).await;
    let later = loop {
        let (envelope, _) = daemon.dispatch().await;
        if envelope.dispatch_id != queued.dispatch_id {
            break envelope;
        }
    };
    daemon.accept(&later).await;
    daemon.report(&later, 1, running()).await;
    send(&mut daemon, stream, 100_000, &log[100_000..200_000]).await;
    let epoch = daemon.welcome.epoch;
    let holds = vec![held(&daemon, &first), held(&daemon, &later)];
    plane.kill();
    drop(daemon);

    let restored = plane.folder.path().join("restored");
    unpack(&file, &restored);
    plane.move_to(restored.clone());
    plane.run();
    assert!(plane.log().contains("came back from a copy"), "{}", plane.log());
    assert_eq!(plane.instance(first.instance.as_str()).await["state"], "unknown", "the copy does not know how it is now");
    let mut daemon = Daemon::connect_holding(&plane, &token, "node1", holds).await;
    assert!(daemon.welcome.epoch > epoch);
    let mut open: Vec<_> = daemon.welcome.open.iter().map(|item| (item.instance.clone(), item.phase)).collect();
    let mut expected =
        [(first.instance.clone(), OpenPhase::Created), (queued.instance.clone(), OpenPhase::Accepted), (later.instance.clone(), OpenPhase::Created)];
    open.sort_by(|a, b| a.0.cmp(&b.0));
    expected.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(open, expected);

    let followed = daemon.followed().await;
    assert_eq!(followed.offset, 100_000, "the log goes on where the copy has it");
    send(&mut daemon, followed.stream, 100_000, &log[100_000..]).await;
    daemon.report(&queued, 1, seen(State::Stopped, Reason::Lost)).await;
    daemon.report(&later, 7, completed()).await;
    daemon.report(&first, 3, running()).await;
    for (envelope, state, reason) in [(&first, "running", "running"), (&queued, "stopped", "lost"), (&later, "stopped", "completed")] {
        let shown = plane.instance(envelope.instance.as_str()).await;
        assert_eq!((shown["state"].as_str(), shown["reason"].as_str()), (Some(state), Some(reason)), "{shown}");
    }
    let path = format!("/v1/namespaces/default/providers/demo/instances/{}/logs", first.instance);
    let bytes = plane.request(reqwest::Method::GET, &path).send().await.expect("it answers").bytes().await.expect("a body");
    assert!(bytes == log, "{} bytes of {}", bytes.len(), log.len());

    launch(&plane).await;
    let (next, _) = daemon.dispatch().await;
    assert!(![&first, &queued, &later].iter().any(|known| known.dispatch_id == next.dispatch_id), "only what is new is offered");
    plane.kill();
    plane.run();
    assert_eq!(plane.log().matches("came back from a copy").count(), 1, "it is restored once");
}

/// All that was queued in a copy counts as accepted: more than one frame of `welcome` has room for.
#[tokio::test]
async fn a_place_with_any_number_of_open_dispatches_connects_after_a_restore() {
    covers!("S132");
    let mut plane = Plane::start_with(&["--launch-wait", "1ms"]).await;
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let reader = tokio::spawn(async move { while !matches!(daemon.next().await, Incoming::End) {} });
    let mut launched = BTreeSet::new();
    while launched.len() <= OPEN_PAGE {
        let some: Vec<_> = (0..50).map(|_| plane.launch(json!({"script": ""}))).collect();
        for launch in some {
            launched.insert(launch.await.expect("it ends").expect(202).body["instanceId"].as_str().expect("an id").to_owned());
        }
    }
    let file = plane.folder.path().join("lakeshore.tar");
    back_up(&plane.data(), &file).await;
    plane.kill();
    reader.await.expect("it ends with the server");
    let restored = plane.folder.path().join("restored");
    unpack(&file, &restored);
    plane.move_to(restored);
    plane.run();
    let mut daemon = Daemon::connect(&plane, &token, "node1").await;
    let mut listed: Vec<_> = std::mem::take(&mut daemon.welcome.open);
    let mut more = daemon.welcome.more;
    assert!(more && listed.len() == OPEN_PAGE);
    while more {
        let Incoming::Message(ToDaemon::Open { open, more: others }) = daemon.next().await else { panic!("what has no room in welcome comes next") };
        listed.extend(open);
        more = others;
    }
    assert_eq!(listed.iter().map(|item| item.instance.to_string()).collect::<BTreeSet<_>>(), launched);
    assert_eq!(listed.len(), launched.len(), "each once");
}

#[tokio::test]
async fn no_row_of_a_backup_counts_more_of_a_log_than_is_in_it() {
    let plane = Plane::start().await;
    let (_, mut daemon, envelope) = launched(&plane).await;
    daemon.report(&envelope, 2, running()).await;
    let stream = daemon.followed().await.stream;
    let backups = async {
        for number in 0..8 {
            let file = plane.folder.path().join(format!("{number}.tar"));
            back_up(&plane.data(), &file).await;
            let folder = plane.folder.path().join(format!("{number}"));
            unpack(&file, &folder);
            let database = rusqlite::Connection::open(folder.join("lakeshore.db")).expect("it opens");
            let stored: u64 =
                database.query_row("SELECT log_stored FROM dispatches", [], |row| row.get::<_, i64>(0)).expect("it is read").unsigned_abs();
            let files = std::fs::read_dir(folder.join("logs").join(envelope.instance.as_str()))
                .map(|files| files.map(|file| size(&file.expect("a file").path())).sum());
            assert_eq!(files.unwrap_or(0), stored, "backup {number}");
        }
    };
    let writing = async {
        let mut offset = 0;
        loop {
            daemon.log(stream, offset, &[b'x'; 60_000]).await;
            offset += 60_000;
        }
    };
    tokio::select! {
        () = backups => {}
        () = writing => {}
    }
}

fn size(file: &Path) -> u64 {
    std::fs::metadata(file).expect("it is there").len()
}

#[tokio::test]
async fn a_backup_goes_to_stdout_and_never_over_a_file() {
    let mut plane = Plane::start().await;
    plane.with_provider().await;
    let data = plane.data();
    let file = |name: &str| -> PathBuf { plane.folder.path().join(name) };
    let (one, two, three, absent) = (file("one.tar"), file("two.tar"), file("three.tar"), file("absent"));
    let streamed = lakeshore(&["backup", "--data", text(&data), "-"]).await;
    assert!(streamed.status.success(), "{}", String::from_utf8_lossy(&streamed.stderr));
    std::fs::write(&one, &streamed.stdout).expect("it is written");
    unpack(&one, &file("streamed"));
    let refused = lakeshore(&["backup", "--data", text(&data), text(&one)]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("overwrites nothing"), "{said}");
    assert!(std::fs::read(&one).expect("it is there") == streamed.stdout);
    let held = std::fs::File::create(file("two.tar.partial")).expect("it is made");
    held.lock().expect("nobody holds it");
    let refused = lakeshore(&["backup", "--data", text(&data), text(&two)]).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("written by another backup"), "{said}");
    drop(held);
    let refused = lakeshore(&["backup", "--data", text(&absent), text(&two)]).await;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no data folder of a control plane"));
    assert!(!absent.exists() && !two.exists(), "nothing is made");
    plane.kill();
    let made = back_up(&data, &three).await; // without a server, the files themselves
    assert_eq!(made["file"], text(&three));
    assert!(!data.join("lakeshore.db.backup").exists(), "nothing is left behind");
    unpack(&three, &plane.folder.path().join("stopped"));
    plane.move_to(plane.folder.path().join("stopped"));
    plane.run();
    assert_eq!(plane.get("/v1/clusters").await.expect(200).body[0]["name"], "c1");
}
