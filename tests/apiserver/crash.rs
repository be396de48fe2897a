//! SIGKILL at any moment: each 202 reaches one end, and no Pod is made twice.

use serde_json::Value;

use crate::covers::covers;
use crate::world::{World, creates};

/// Launches while the given thing is killed and started again; returns the ids that were answered with 202.
fn launches_under(kills: usize, kill: impl Fn(&mut World)) -> (World, Vec<String>) {
    let mut world = World::new();
    let mut ids = Vec::new();
    for _ in 0..kills {
        let answers: Vec<_> = std::thread::scope(|scope| {
            let world = &world;
            let launches: Vec<_> = (0..4).map(|_| scope.spawn(|| world.launch(&[]))).collect();
            launches.into_iter().map(|l| l.join().expect("no panic")).collect()
        });
        ids.extend(answers.iter().filter(|a| a.code == Some(0)).filter_map(|a| a.json()["instanceId"].as_str().map(str::to_owned)));
        kill(&mut world);
    }
    (world, ids)
}

fn rounds() -> usize {
    if std::env::var_os("NYMPH_LONG").is_some_and(|v| !v.is_empty()) { 20 } else { 5 }
}

/// Every answered launch is in the list, made at most once, and shows what the cluster shows.
fn nothing_lost_or_doubled(world: &World, ids: &[String]) {
    assert!(ids.len() >= rounds() * 3, "too few launches were answered to show anything: {ids:?}");
    for id in ids {
        let (seen, _) = world.until(&format!("{id} is settled"), || {
            let seen = world.instance(id);
            let settled = seen["state"] == "stopped" || (seen["state"] == "starting" && seen["reason"] == "scheduling");
            settled.then_some(seen)
        });
        let made = creates(id);
        assert!(made <= 1, "{id} was created {made} times");
        if made == 1 {
            assert_eq!(seen["reason"], "scheduling", "{id} exists: {seen}");
            assert!(world.pods().contains(id), "{id}");
        } else {
            assert_eq!((&seen["state"], &seen["reason"]), (&Value::from("stopped"), &Value::from("lost")), "{id} was never made: {seen}");
        }
    }
    assert_eq!(world.pods().iter().filter(|p| !ids.contains(p)).count(), 0, "a Pod that no answered launch asked for");
}

#[test]
fn a_daemon_killed_again_and_again_makes_each_pod_once() {
    covers!("S65", "S132");
    let (world, ids) = launches_under(rounds(), |world| {
        world.kill_daemon();
        world.start_daemon();
        let node = world.node.clone();
        world.until("the daemon is back", || {
            let daemons = world.lakeshore(&["daemons", "-o", "json"]).json();
            daemons.as_array()?.iter().any(|d| d["node"] == node.as_str() && d["connected"] == true).then_some(())
        });
    });
    nothing_lost_or_doubled(&world, &ids);
}

#[test]
fn a_control_plane_killed_again_and_again_keeps_every_answer() {
    covers!("S132");
    let (world, ids) = launches_under(rounds(), |world| {
        world.kill_server();
        world.start_server();
        let node = world.node.clone();
        world.until("the daemon is back by itself", || {
            let daemons = world.lakeshore(&["daemons", "-o", "json"]).json();
            daemons.as_array()?.iter().any(|d| d["node"] == node.as_str() && d["connected"] == true).then_some(())
        });
    });
    nothing_lost_or_doubled(&world, &ids);
}

#[test]
fn a_daemon_killed_in_the_middle_of_launches_loses_none_of_them() {
    let mut world = World::new();
    let mut daemon = world.take_daemon();
    let ids: Vec<String> = std::thread::scope(|scope| {
        let world = &world;
        let launches: Vec<_> = (0..8).map(|_| scope.spawn(|| world.launch(&[]))).collect();
        world.until("the first Pod is made", || (!world.pods().is_empty()).then_some(()));
        daemon.kill().expect("it ran");
        let answers = launches.into_iter().map(|l| l.join().expect("no panic"));
        answers.filter(|a| a.code == Some(0)).filter_map(|a| a.json()["instanceId"].as_str().map(str::to_owned)).collect()
    });
    daemon.wait().expect("it was ours");
    world.start_daemon();
    for id in ids {
        world.until(&format!("{id} is settled"), || {
            let seen = world.instance(&id);
            (seen["reason"] == "scheduling" || seen["reason"] == "lost").then_some(())
        });
        assert!(creates(&id) <= 1, "{id}");
    }
}
