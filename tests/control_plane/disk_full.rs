//! A data folder on a small disk of its own, which the test fills and empties.

use std::path::PathBuf;
use std::process::Command;

use serde_json::json;

use crate::daemon::Daemon;
use crate::launched::launched;
use crate::plane::{Plane, skip};

/// Puts the data folder on a file system of 48 MiB that only the server's process sees.
const SMALL: &str = r#"set -e
mkdir "$0.small"
mount -t tmpfs -o size=48m,mode=700 small "$0.small"
cp -a "$0/." "$0.small/"
mount --bind "$0.small" "$0"
exec "$@""#;

fn unshare() -> Vec<String> {
    ["unshare", "--mount", "--map-root-user"].map(str::to_owned).to_vec()
}

fn can_mount() -> bool {
    let probe = "mount -t tmpfs -o size=1m probe /tmp";
    let arguments = unshare();
    Command::new(&arguments[0]).args(&arguments[1..]).args(["sh", "-c", probe]).output().is_ok_and(|ended| ended.status.success())
}

async fn small(arguments: &[&str]) -> Plane {
    let wrapper = |folder: &std::path::Path| {
        let data = folder.join("data").to_str().expect("text").to_owned();
        unshare().into_iter().chain(["sh".into(), "-c".into(), SMALL.into(), data]).collect()
    };
    Plane::start_in(wrapper, arguments).await
}

/// The small disk, seen from here.
fn disk(plane: &Plane) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root{}", plane.pid(), plane.data().display()))
}

/// Fills it but for `leave` bytes.
fn fill(plane: &Plane, leave: u64) {
    let stat = nix::sys::statvfs::statvfs(&disk(plane)).expect("it is looked at");
    let free = stat.blocks_available() * stat.fragment_size();
    let ballast = vec![1; usize::try_from(free - leave).expect("48 MiB")];
    std::fs::write(disk(plane).join("ballast"), ballast).expect("it fits");
}

fn empty(plane: &Plane) {
    std::fs::remove_file(disk(plane).join("ballast")).expect("it is removed");
}

#[tokio::test]
async fn launches_stop_before_the_disk_is_full_and_what_runs_goes_on() {
    if !can_mount() {
        return skip("a disk of its own needs the right to mount (root, or user namespaces)");
    }
    let plane = small(&["--min-free-bytes", "8388608"]).await;
    let (_, mut daemon, envelope) = launched(&plane).await;
    plane.get("/readyz").await.expect(200);
    fill(&plane, 4 << 20);
    let refused = plane.launch(json!({"script": ""})).await.expect("it ends").expect_problem(507, "store_full");
    assert!(refused.body["detail"].as_str().is_some_and(|detail| detail.contains("MiB free")), "{}", refused.body);
    let unready = plane.get("/readyz").await.expect_problem(507, "store_full");
    assert!(unready.body["detail"].as_str().is_some_and(|detail| detail.contains("disk under the data folder")), "{}", unready.body);
    daemon.report(&envelope, 2, crate::daemon::completed()).await;
    assert_eq!(plane.instance(envelope.instance.as_str()).await["state"], "stopped", "an end is stored all the same");
    empty(&plane);
    plane.get("/readyz").await.expect(200);
    let launched = plane.launch(json!({"script": ""}));
    daemon.create().await;
    launched.await.expect("it ends").expect(202);
}

#[tokio::test]
async fn a_disk_without_any_room_is_said_and_nothing_acknowledged_is_lost() {
    if !can_mount() {
        return skip("a disk of its own needs the right to mount (root, or user namespaces)");
    }
    let plane = small(&["--min-free-bytes", "0", "--launch-wait", "20ms"]).await;
    let token = plane.with_provider().await;
    let _daemon = Daemon::connect(&plane, &token, "node1").await;
    fill(&plane, 600 << 10);
    let body = json!({"script": format!("#{}", "x".repeat(60_000))});
    let mut answered = Vec::new();
    let refused = loop {
        let answer = plane.launch(body.clone()).await.expect("it ends");
        if answer.status != 202 {
            break answer;
        }
        answered.push(answer.body["instanceId"].as_str().expect("an id").to_owned());
        assert!(answered.len() < 1000, "600 KiB hold no thousand launches");
    };
    let refused = refused.expect_problem(507, "store_full");
    assert!(refused.body["cure"].as_str().is_some_and(|cure| cure.contains("room")), "{}", refused.body);
    plane.get("/readyz").await.expect_problem(507, "store_full");
    empty(&plane);
    plane.get("/readyz").await.expect(200);
    let last = plane.launch(body).await.expect("it ends").expect(202);
    answered.push(last.body["instanceId"].as_str().expect("an id").to_owned());
    let listed = plane.get("/v1/namespaces/default/instances").await.expect(200).body;
    let mut listed: Vec<_> = listed.as_array().expect("a list").iter().map(|row| row["instanceId"].as_str().expect("an id").to_owned()).collect();
    listed.sort();
    answered.sort();
    assert_eq!(listed, answered, "each answered launch has its row, and no other has one");
}
