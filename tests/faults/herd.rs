//! Row 13: the control plane restarts under 500 daemons, and all of them come back.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nymph::dial::{Backoff, Target, connect};
use nymph::types::{NodeName, Placement};
use nymph::wire::{Frame, ToControlPlane, ToDaemon, decode_text, encode_text};
use secrecy::SecretString;

use crate::proxy::ws::{Said, Verdict};
use crate::proxy::{self, Task};
use crate::rig::Rig;
use crate::rows::{remark, shown};
use crate::world::measured;

const DAEMONS: usize = 500;
/// All of them, after a restart: the longest pause of the backoff, and the handshakes themselves.
const BACK: Duration = Duration::from_secs(30);
/// Dials that each may need for one restart, on average: few, or it is a spiral.
const DIALS: u64 = 8;

/// What the daemons of the herd share.
#[derive(Default)]
struct Herd {
    dials: AtomicU64,
    up: AtomicUsize,
}

/// One daemon: the real dial and backoff, a hello like a real one's, heartbeats; for ever.
async fn daemon(herd: Arc<Herd>, url: String, token: SecretString, hello: ToControlPlane, number: usize) {
    let node: NodeName = format!("herd-{number}").parse().expect("a name");
    let ToControlPlane::Hello(mut hello) = hello else { panic!("a hello was kept") };
    let facts = hello.node.as_mut().expect("a node's daemon tells of its node");
    (facts.name, facts.uid, hello.boot_id) = (node.clone(), Some(format!("uid-{number}")), format!("boot-{number}"));
    let hello = encode_text(&ToControlPlane::Hello(hello)).expect("it fits");
    let beat = encode_text(&ToControlPlane::Heartbeat {}).expect("it fits");
    let mut backoff = Backoff::default();
    loop {
        herd.dials.fetch_add(1, Ordering::Relaxed);
        let target = Target {
            url: url.parse().expect("a URL"),
            placement: Placement::Node(node.clone()),
            token: token.clone(),
            identity: None,
            ca_file: None,
            server_name: None,
            proxy: None,
        };
        if let Ok((mut reader, mut writer)) = connect(&target).await {
            let mut welcome = false;
            let mut beats = tokio::time::interval(Duration::from_secs(15));
            if writer.text(hello.clone()).await.is_ok() {
                loop {
                    let frame = tokio::select! {
                        frame = reader.next() => frame,
                        _ = beats.tick() => {
                            if welcome && writer.text(beat.clone()).await.is_err() { break }
                            continue;
                        }
                    };
                    match frame {
                        Ok(Frame::Text(text)) if !welcome && matches!(decode_text(&text), Ok(ToDaemon::Welcome(_))) => {
                            welcome = true;
                            herd.up.fetch_add(1, Ordering::SeqCst);
                        }
                        Ok(_) => {}
                        Err(_) => break,
                    }
                }
            }
            if welcome {
                herd.up.fetch_sub(1, Ordering::SeqCst);
            }
        }
        tokio::time::sleep(backoff.next(getrandom::u64().expect("randomness"))).await;
    }
}

/// CPU time of a process so far, user and system.
fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name in parentheses").1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number");
    Duration::from_millis(ticks * 10) // USER_HZ is 100
}

#[test]
fn five_hundred_daemons_come_back_from_a_restart_without_a_spiral() {
    let mut rig = Rig::without_daemon();
    // One that proves itself would have the cluster's keys recorded, and nobody could be 500 others afterwards.
    std::fs::remove_file(rig.path("identity")).expect("it was there");
    rig.start_daemon();
    rig.until_connected();
    let kept = Arc::new(Mutex::new(None));
    let keep = Arc::clone(&kept);
    rig.ws.hook(move |seen| {
        if let Said::ToControlPlane(hello @ ToControlPlane::Hello(_)) = &seen.said {
            *keep.lock().expect("no hook panics") = Some(hello.clone());
        }
        Verdict::Pass
    });
    rig.ws.cut();
    rig.until("a hello to go by", || kept.lock().expect("no hook panics").is_some().then_some(()));
    let hello = kept.lock().expect("no hook panics").clone().expect("it was kept");
    let (herd, token) = (Arc::new(Herd::default()), SecretString::from(rig.log("token").trim().to_owned()));
    let url = format!("ws://{}", rig.url());
    let started = Instant::now();
    let tasks: Vec<Task<()>> =
        (0..DAEMONS).map(|n| proxy::background(daemon(Arc::clone(&herd), url.clone(), token.clone(), hello.clone(), n))).collect();
    let all_up = || (herd.up.load(Ordering::SeqCst) == DAEMONS).then_some(());
    rig.until("all are connected", all_up);
    let first = (started.elapsed(), cpu(rig.server_pid()));

    rig.kill_server();
    rig.until("all have noticed", || (herd.up.load(Ordering::SeqCst) == 0).then_some(()));
    let dials = herd.dials.load(Ordering::Relaxed);
    rig.start_server();
    let restarted = Instant::now();
    rig.until("all are back", all_up);
    let (took, used) = (restarted.elapsed(), cpu(rig.server_pid()));
    let dials = herd.dials.load(Ordering::Relaxed) - dials;
    measured("500 daemons back after a restart", BACK, took);
    assert!(dials <= DIALS * DAEMONS as u64, "a spiral: {dials} dials for {DAEMONS} daemons");
    rig.until_connected();
    let id = rig.launched_with("after");
    rig.assert_made_once(&id);
    assert_eq!(herd.up.load(Ordering::SeqCst), DAEMONS, "some were lost again");
    remark(
        13,
        &format!(
            "first {:.1} s; back after {:.1} s with {dials} dials and {:.1} s CPU (first {:.1} s)",
            first.0.as_secs_f64(),
            took.as_secs_f64(),
            used.as_secs_f64(),
            first.1.as_secs_f64()
        ),
    );
    shown(13, "P", DAEMONS);
    for task in tasks {
        task.abort();
    }
}
