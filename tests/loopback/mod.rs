//! Ring `loopback`: daemons and the control plane on one thread, over a model of the API server, with faults by seed.
//!
//! What runs is the real thing: [`crate::daemon::DaemonState`], both ends' sessions of [`crate::wire`], the hub, the store in SQLite with its files, log
//! framing and segments. What is modelled: time, the network, the API server with its kubelets, and the threads. One seed is one schedule:
//! `NYMPH_SEED=7 cargo test --lib loopback` plays it again and prints its story.

mod api;
mod caller;
mod check;
mod daemon;
mod effects;
mod faults;
mod kubelet;
mod links;
mod plane;
mod rng;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use caller::CallerStep;
use faults::Fault;
use world::{Step, World};

/// How long faults happen, in simulated time.
const STORM: Duration = Duration::from_secs(240);
/// How long everything may take to settle after the last fault: `lost_after`, a late create, the longest reconnect pause, a Pod's life.
const SETTLE: Duration = Duration::from_secs(420);
/// Steps after which a schedule is stuck in a busy loop.
const MAX_STEPS: u64 = 200_000;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Plays one schedule; what happened in numbers, or the rule that broke with the story.
fn play(seed: u64) -> Result<BTreeMap<&'static str, u64>, String> {
    let mut world = prepared(seed);
    run(&mut world, STORM);
    world.calm_down();
    run(&mut world, STORM + SETTLE);
    if world.broken_rule.is_none() {
        world.check_end();
    }
    verdict(world)
}

/// Two nodes; in one schedule of five a second process claims to be the first node's daemon (a cloned disk, a Pod that will not go).
fn prepared(seed: u64) -> World {
    let nodes: &[&str] = if seed.is_multiple_of(5) { &["node1", "node2", "node1"] } else { &["node1", "node2"] };
    let mut world = World::new(seed, nodes);
    let launches = 1 + world.rng.below(14);
    for number in 0..usize::try_from(launches).expect("small") {
        let at = Duration::from_millis(world.rng.below(u64::try_from(STORM.as_millis()).expect("small")));
        world.after(at, Step::Caller(CallerStep::Launch(number)));
    }
    world.after(Duration::from_secs(1), Step::Caller(CallerStep::Look));
    world.after(Duration::from_secs(3), Step::Fault(Fault::Next));
    world
}

fn run(world: &mut World, until: Duration) {
    let mut version = 0;
    while world.broken_rule.is_none() && world.step(until) {
        if world.api.version() != version {
            version = world.api.version();
            world.check_step();
        }
        if world.steps.is_multiple_of(500) {
            world.check_logs();
        }
        if world.steps > MAX_STEPS {
            world.breaks(format!("I7: {MAX_STEPS} steps, and still busy"));
        }
    }
}

fn verdict(mut world: World) -> Result<BTreeMap<&'static str, u64>, String> {
    let steps = world.steps;
    *world.counts.entry("steps").or_default() += steps;
    match world.broken_rule.take() {
        None => Ok(world.counts),
        Some(rule) => {
            Err(format!("seed {}: {rule}\n--- the last of what happened\n{}", world.seed, world.story(setting("NYMPH_STORY").unwrap_or(80) as usize)))
        }
    }
}

/// Plays `count` schedules from `first` on, on as many threads as there are processors, and prints what they held.
fn play_all(first: u64, count: u64) {
    let next = AtomicU64::new(first);
    let (totals, failures) = (Mutex::new(BTreeMap::<&str, u64>::new()), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count || failures.lock().expect("no panic").len() >= 3 {
                        return;
                    }
                    let outcome = std::panic::catch_unwind(|| play(seed)).unwrap_or_else(|_| Err(format!("seed {seed}: it panicked")));
                    match outcome {
                        Ok(counts) => {
                            counts.into_iter().for_each(|(what, count)| *totals.lock().expect("no panic").entry(what).or_default() += count)
                        }
                        Err(story) => failures.lock().expect("no panic").push(story),
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    let totals = totals.into_inner().expect("no panic");
    println!("loopback: {count} schedules from seed {first}: {totals:?}");
    assert!(failures.is_empty(), "{} schedules broke a rule; NYMPH_SEED=N plays one again\n{}", failures.len(), failures.join("\n\n"));
    if let Ok(path) = std::env::var("NYMPH_LOOPBACK_ROW") {
        let row = serde_json::json!({"first_seed": first, "schedules": count, "held": totals});
        std::fs::write(&path, format!("{row}\n")).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

#[test]
fn a_seed_is_a_schedule() {
    let story = |seed| {
        let mut world = prepared(seed);
        run(&mut world, STORM);
        world.story(usize::MAX)
    };
    for seed in [3, 5] {
        assert_eq!(story(seed), story(seed), "seed {seed} plays the same twice");
    }
}

#[test]
fn schedules_of_faults_break_no_promise() {
    match setting("NYMPH_SEED") {
        Some(seed) => match play(seed) {
            Ok(counts) => println!("seed {seed}: {counts:?}"),
            Err(story) => panic!("{story}"),
        },
        None => play_all(setting("NYMPH_FIRST_SEED").unwrap_or(1), setting("NYMPH_SEEDS").unwrap_or(50)),
    }
}
