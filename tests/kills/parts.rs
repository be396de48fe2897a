//! Parts of the test: a round of kills of one kind each, with its result kept, so that a run that was cut off goes on where it was.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::judge::Verdict;
use crate::point::{Kind, ROUND};
use crate::scene::Scene;
use crate::shell::run;

/// Rounds of each kind: 20 kills in the short form, 300 in the long one.
fn rounds() -> u64 {
    if std::env::var_os("NYMPH_LONG").is_some_and(|long| !long.is_empty()) { 15 } else { 1 }
}

/// Runs the rounds of a kind that have not been run yet on these sources, and fails with the first that is not clean.
pub(crate) fn run_all(kind: Kind) {
    let mut total = Value::Null;
    for round in 1..=rounds() {
        let row = done(kind, round).unwrap_or_else(|| {
            let row = one(kind, round);
            keep(&row);
            row
        });
        total = sum(&total, &row);
    }
    show(&total);
    detail(&total);
}

fn one(kind: Kind, round: u64) -> Value {
    let seed = round * 10 + kind as u64;
    let started = std::time::UNIX_EPOCH.elapsed().expect("a clock that is set");
    eprintln!("kills of {}: round {round}, seed {seed}", kind.name());
    let mut scene = Scene::new(seed);
    for (number, point) in ROUND.into_iter().enumerate() {
        scene.strike(kind, point);
        eprintln!("  {:>3}/{} {:<18} {}", number + 1, ROUND.len(), point.0, scene.progress());
    }
    let verdict = scene.evidence().judge();
    let took = std::time::UNIX_EPOCH.elapsed().expect("a clock that is set").saturating_sub(started);
    let row = row(kind, round, &verdict, took);
    show(&row);
    assert!(verdict.is_clean(), "seed {seed}\n{}", told(&scene, &verdict));
    row
}

/// What is wrong, with what both programs wrote about the first few.
fn told(scene: &Scene, verdict: &Verdict) -> String {
    let mut text = String::new();
    for (what, all) in [("missing", &verdict.missing), ("doubled", &verdict.doubled), ("wrong", &verdict.wrong)] {
        for (number, one) in all.iter().enumerate() {
            text.push_str(&format!("{what}: {one}\n"));
            if number < 3 {
                text.push_str(&scene.story(one.split(' ').next().unwrap_or_default()));
            }
        }
    }
    text
}

fn row(kind: Kind, round: u64, verdict: &Verdict, took: Duration) -> Value {
    json!({
        "sources": sources(), "kind": kind.name(), "round": round, "kills": ROUND.len(), "launches": verdict.launches, "answered": verdict.answered,
        "ends": verdict.ends, "missing": verdict.missing.len(), "doubled": verdict.doubled.len(), "wrong": verdict.wrong.len(), "seconds": took.as_secs(),
        "kubernetes": kubernetes(),
    })
}

/// The sum of rows of one kind.
fn sum(total: &Value, row: &Value) -> Value {
    let mut sum = row.clone();
    if let Some(object) = sum.as_object_mut() {
        object.remove("round");
    }
    for field in ["kills", "launches", "answered", "missing", "doubled", "wrong", "seconds"] {
        sum[field] = json!(total[field].as_u64().unwrap_or(0) + row[field].as_u64().unwrap_or(0));
    }
    let mut ends: BTreeMap<String, u64> = serde_json::from_value(total["ends"].clone()).unwrap_or_default();
    for (reason, count) in row["ends"].as_object().into_iter().flatten() {
        *ends.entry(reason.clone()).or_default() += count.as_u64().unwrap_or(0);
    }
    sum["ends"] = json!(ends);
    sum
}

fn show(row: &Value) {
    let ends: Vec<String> = row["ends"].as_object().into_iter().flatten().map(|(reason, count)| format!("{reason} {count}")).collect();
    println!(
        "{:<14} {:>5} {:>8} {:>6} {:>7} {:>7} {:>5} {:>7}  ends",
        "kills of", "kills", "launches", "202s", "missing", "doubled", "wrong", "seconds"
    );
    println!(
        "{:<14} {:>5} {:>8} {:>6} {:>7} {:>7} {:>5} {:>7}  {}",
        row["kind"].as_str().unwrap_or_default(),
        row["kills"],
        row["launches"],
        row["answered"],
        row["missing"],
        row["doubled"],
        row["wrong"],
        row["seconds"],
        ends.join(", ")
    );
}

/// The sources under test, by git's hash of them: results of others are not added to.
fn sources() -> String {
    run("git", &["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD:src"], None).text().trim().to_owned()
}

fn kubernetes() -> String {
    let version = run("kubectl", &["version", "-o", "json"], None).json();
    version["serverVersion"]["gitVersion"].as_str().unwrap_or_default().to_owned()
}

fn kept() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/kills.jsonl")
}

/// The result of a round of the long form that was run before.
fn done(kind: Kind, round: u64) -> Option<Value> {
    if rounds() == 1 {
        return None;
    }
    let sources = sources();
    let rows = fs::read_to_string(kept()).ok()?;
    let mut rows = rows.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    rows.find(|row| row["sources"] == sources.as_str() && row["kind"] == kind.name() && row["round"] == round)
}

fn keep(row: &Value) {
    append(&kept(), row);
}

/// Gives the row to `tests/run --long`, which writes it into the ring's result.
fn detail(row: &Value) {
    if let Some(folder) = std::env::var_os("NYMPH_DETAILS_DIR") {
        append(&PathBuf::from(folder).join("kills.jsonl"), row);
    }
}

fn append(path: &PathBuf, row: &Value) {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| writeln!(file, "{row}")).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
