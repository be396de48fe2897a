//! Rows 1 and 2: the control plane is killed between a caller's request and its answer.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::covers::covers;
use crate::proxy::ws::{Verdict, Way};
use crate::rig::Rig;
use crate::rows::{rounds, shown};
use crate::world::creates;

#[test]
fn a_caller_whose_answer_was_lost_gets_the_same_dispatch_with_its_key() {
    covers!("S132");
    let mut rig = Rig::new();
    let rounds = rounds(3, 20);
    for round in 0..rounds {
        let key = format!("key-{round}");
        // A dispatch that is on its way is on disk.
        let trap = rig.ws.trap(|seen| seen.is(Way::Down, "dispatch"));
        let first = rig.launching(&key);
        trap.sprung("the dispatch");
        rig.shoot_server();
        assert!(first.join().is_none(), "the caller cannot have an answer");
        trap.release(Verdict::Cut);
        rig.kill_server();
        rig.start_server();
        let stored = rig.ids();
        assert_eq!(stored.len(), round + 1, "one row for each key: {stored:?}");
        let again = rig.launched_with(&key);
        assert!(stored.contains(&again), "{again} is another dispatch than {stored:?}");
        rig.until_connected();
        rig.assert_made_once(&again);
    }
    shown(1, "P", rounds);
}

/// Kills the control plane as it is about to write for the first time, by the system call; attached when this returns.
fn kill_at_first_write(rig: &Rig) -> std::process::Child {
    let pid = rig.server_pid();
    let mut strace = Command::new("strace")
        .args(["-f", "-e", "trace=pwrite64,fdatasync", "-e", "inject=pwrite64,fdatasync:error=EIO:signal=SIGKILL", "-o"])
        .arg(rig.path("strace"))
        .args(["-p", &pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("strace is installed; tests/faults/run sees to it");
    rig.until("strace is attached to every thread", || {
        if let Some(status) = strace.try_wait().expect("it is ours") {
            panic!("strace ended: {status}");
        }
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let traced = |task: std::path::PathBuf| std::fs::read_to_string(task.join("status")).is_ok_and(|s| !s.contains("TracerPid:\t0"));
        tasks.flatten().all(|task| traced(task.path())).then_some(())
    });
    strace
}

#[test]
fn what_was_never_written_was_never_dispatched_nor_answered() {
    covers!("S132");
    let mut rig = Rig::new();
    let rounds = rounds(3, 20);
    for round in 0..rounds {
        let key = format!("key-{round}");
        let before = rig.ws.count(Way::Down, "dispatch");
        let mut strace = kill_at_first_write(&rig);
        assert!(rig.launching(&key).join().is_none(), "the caller cannot have an answer");
        strace.wait().expect("it ends with what it traced");
        rig.kill_server();
        assert_eq!(rig.ws.count(Way::Down, "dispatch"), before, "something was dispatched before it was on disk");
        rig.start_server();
        assert_eq!(rig.ids().len(), round, "a launch that nobody was told of");
        rig.until_connected();
        let id = rig.launched_with(&key);
        rig.assert_made_once(&id);
    }
    shown(2, "P", rounds);
}

#[test]
fn a_kill_at_any_moment_of_a_launch_leaves_one_dispatch_a_key() {
    let mut rig = Rig::new();
    let rounds = rounds(8, 40);
    let mut answered = 0;
    for round in 0..rounds {
        let key = format!("key-{round}");
        let first = rig.launching(&key);
        std::thread::sleep(Duration::from_millis(2 * round as u64)); // the moment that is tried, not a wait
        rig.shoot_server();
        let first = first.join();
        answered += usize::from(first.is_some());
        rig.kill_server();
        rig.start_server();
        rig.until_connected();
        let id = rig.launched_with(&key);
        if let Some(first) = first.filter(|first| first.status == 202) {
            assert_eq!(first.body["instanceId"], id.as_str(), "an answer was forgotten");
        }
        let seen = rig.settled(&id);
        assert!(creates(&id) <= 1 && (seen["reason"] == "scheduling") == (creates(&id) == 1), "{seen}");
    }
    assert_eq!(rig.ids().len(), rounds, "one row a key");
    assert!(answered < rounds, "no kill came before an answer");
    shown(1, "P", answered);
    shown(2, "P", rounds - answered);
}
