//! A real database, its log as a crash of the machine would leave it, and the start after that.

use std::collections::HashSet;
use std::path::Path;

use jiff::Timestamp;

use super::*;
use crate::control_plane::store::Put;
use crate::control_plane::store::sqlite::engine::transact;
use crate::control_plane::store::sqlite::{DATABASE, ExclusiveStore, directory};

/// Files as they were when a commit had been acknowledged, and how much had been by then.
struct Shot {
    database: Vec<u8>,
    log: Vec<u8>,
    acknowledged: usize,
}

/// In memory where there is some: what a crash leaves is made by hand here, and a disk's syncs only cost time.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// Commits of one to seventeen rows each. With `checkpoint_after` pages the log begins anew now and then.
fn history(commits: usize, checkpoint_after: u32) -> Vec<Shot> {
    let folder = folder();
    let mut store = ExclusiveStore::open(folder.path()).expect("it opens");
    store.connection.pragma_update(None, "wal_autocheckpoint", checkpoint_after).expect("it is set");
    let mut acknowledged = 0;
    let mut shots = Vec::new();
    for commit in 0..commits {
        let rows = 1 + (commit * 7) % 17;
        transact(&mut store.connection, "test", |tx| {
            (0..rows).try_for_each(|row| {
                let put = directory::create_namespace(tx, &name(acknowledged + row), Timestamp::UNIX_EPOCH)?;
                assert_eq!(put, Put::Done);
                Ok(())
            })
        })
        .expect("it is committed");
        acknowledged += rows;
        let read = |name: &str| std::fs::read(folder.path().join(name)).expect("it is read");
        shots.push(Shot { database: read(DATABASE), log: read("lakeshore.db-wal"), acknowledged });
    }
    shots
}

fn name(number: usize) -> String {
    format!("{number}-{}", "n".repeat(80))
}

/// What a start finds, and says.
struct Found {
    rows: usize,
    notices: Vec<String>,
    restores: i64,
}

fn start(folder: &Path) -> Found {
    let store = ExclusiveStore::open(folder).expect("it opens");
    let names = directory::namespaces(&store.connection).expect("it is read");
    let names: HashSet<_> = names.into_iter().map(|(name, _)| name).collect();
    let rows = names.len() - 1; // `default`
    for number in 0..rows {
        assert!(names.contains(&name(number)), "row {number} of {rows}");
    }
    let sound: String = store.connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("it is checked");
    assert_eq!(sound, "ok");
    let restores = store.connection.query_row("SELECT count(*) FROM restores", [], |row| row.get(0)).expect("it is read");
    Found { rows, notices: store.notices().to_vec(), restores }
}

fn started_with(database: &[u8], log: &[u8]) -> Found {
    let folder = folder();
    std::fs::write(folder.path().join(DATABASE), database).expect("it is written");
    std::fs::write(folder.path().join("lakeshore.db-wal"), log).expect("it is written");
    let found = start(folder.path());
    let again = start(folder.path());
    assert_eq!((again.rows, again.notices.len()), (found.rows, 0), "a second start finds nothing more to say");
    found
}

/// Numbers that look random and come back with their seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % u64::try_from(limit).expect("small")).expect("small")
    }
}

fn seeds() -> u64 {
    if std::env::var("NYMPH_LONG").is_ok_and(|long| !long.is_empty()) { 3000 } else { 60 }
}

#[test]
fn a_torn_or_flipped_last_record_is_left_out_and_said_and_nothing_acknowledged_with_it() {
    let shots = history(25, 1_000_000);
    for seed in 0..seeds() {
        let mut dice = Dice(seed);
        let at = dice.below(shots.len() - 1);
        let (Some(before), Some(after)) = (shots.get(at), shots.get(at + 1)) else { panic!("seed {seed}") };
        assert!(after.log.starts_with(&before.log), "the log only grew");
        let synced = before.log.len();
        let mut log = after.log.clone();
        match dice.below(3) {
            0 => log.truncate(synced + 1 + dice.below(log.len() - synced - 1)),
            1 => {
                let bit = dice.below((log.len() - synced) * 8);
                log[synced + bit / 8] ^= 1 << (bit % 8);
            }
            _ => {
                // Sectors that never reached the disk: the file was extended with zeros.
                let sectors = (log.len() - synced).div_ceil(512);
                let one = dice.below(sectors);
                let lost: Vec<_> = (0..sectors).filter(|&sector| sector == one || dice.below(2) == 0).collect();
                for sector in lost {
                    let start = synced + sector * 512;
                    let end = (start + 512).min(log.len());
                    log[start..end].fill(0);
                }
            }
        }
        if log == after.log {
            continue; // what was lost held zeros
        }
        let found = started_with(&before.database, &log);
        assert_eq!((found.rows, found.restores), (before.acknowledged, 0), "seed {seed}");
        let [notice] = &found.notices[..] else { panic!("seed {seed}: {:?}", found.notices) };
        assert!(notice.contains("not written whole"), "seed {seed}: {notice}");
    }
}

#[test]
fn frames_behind_a_header_of_zeros_are_damage_and_an_empty_header_is_not() {
    let shots = history(6, 1_000_000);
    let last = shots.last().expect("there are some");
    for zeros in [HEADER, 512, 4096] {
        let mut log = last.log.clone();
        log[..zeros].fill(0);
        let found = started_with(&last.database, &log);
        assert!(found.restores == 1 && found.notices[0].contains("is damaged"), "{zeros}: {:?}", found.notices);
    }
    let found = started_with(&last.database, &vec![0; last.log.len()]);
    assert!(found.restores == 0 && found.notices[0].contains("not written whole"), "{:?}", found.notices);
}

#[test]
fn a_database_that_is_gone_from_beside_its_log_is_not_begun_anew() {
    let shots = history(3, 1_000_000);
    let log = &shots.last().expect("there are some").log;
    let refused = |prepare: &dyn Fn(&Path)| {
        let folder = folder();
        prepare(folder.path());
        let error = ExclusiveStore::open(folder.path()).expect_err("what it held would be hidden").to_string();
        assert!(error.contains("is missing or empty") && error.contains("unpack a backup"), "{error}");
    };
    refused(&|folder| std::fs::write(folder.join("lakeshore.db-wal"), log).expect("it is written"));
    refused(&|folder| {
        std::fs::write(folder.join("lakeshore.db-wal"), log).expect("it is written");
        std::fs::write(folder.join(DATABASE), "").expect("it is written");
    });
    refused(&|folder| std::fs::create_dir_all(folder.join("logs/lakeshore-00112233")).expect("it is made"));
    let folder = folder();
    std::fs::create_dir(folder.path().join("logs")).expect("it is made");
    std::fs::write(folder.path().join("lakeshore.db-wal"), "").expect("it is written");
    ExclusiveStore::open(folder.path()).expect("nothing was there");
}

#[test]
fn in_a_log_that_begins_anew_nothing_acknowledged_is_lost_either() {
    let shots = history(40, 20);
    let anew = shots.windows(2).filter(|pair| pair[0].log[..HEADER] != pair[1].log[..HEADER]).count();
    assert!(anew > 5, "the log began anew {anew} times");
    for shot in &shots {
        let found = started_with(&shot.database, &shot.log);
        assert_eq!((found.rows, found.notices.len()), (shot.acknowledged, 0), "{:?}", found.notices);
    }
    for seed in 0..seeds() {
        let mut dice = Dice(seed);
        let at = dice.below(shots.len() - 1);
        let (Some(before), Some(after)) = (shots.get(at), shots.get(at + 1)) else { panic!("seed {seed}") };
        // Any sectors of what the last commit wrote; a new header is synced before the frames behind it.
        let mut log = before.log.clone();
        log.resize(log.len().max(after.log.len()), 0);
        log[..HEADER].copy_from_slice(&after.log[..HEADER]);
        for start in (HEADER..after.log.len()).step_by(512).filter(|_| dice.below(2) == 0) {
            let end = (start + 512).min(after.log.len());
            log[start..end].copy_from_slice(&after.log[start..end]);
        }
        let found = started_with(&before.database, &log);
        let whole = found.rows == after.acknowledged;
        assert!(found.rows == before.acknowledged || whole, "seed {seed}: {} of {} rows", found.rows, before.acknowledged);
        assert_eq!(found.restores, 0, "seed {seed}: what was not synced is no damage");
    }
}

#[test]
fn damage_in_what_was_acknowledged_is_said_as_a_loss_and_taken_as_a_restore() {
    let shots = history(12, 1_000_000);
    let (Some(hit), Some(before), Some(last)) = (shots.get(4), shots.get(3), shots.last()) else { panic!("twelve commits") };
    let mut log = last.log.clone();
    log[before.log.len() + FRAME_HEADER + 1000] ^= 4;
    let found = started_with(&last.database, &log);
    assert_eq!((found.rows, found.restores), (before.acknowledged, 1));
    assert!(found.rows < hit.acknowledged);
    assert!(found.notices[0].contains("is damaged") && found.notices[0].contains("is lost"), "{:?}", found.notices);
    assert!(found.notices[1].contains("came back from a copy"), "{:?}", found.notices);
    let mut log = last.log.clone();
    log[17] ^= 1;
    let found = started_with(&last.database, &log);
    assert_eq!(found.restores, 1, "a header that cannot be used: {:?}", found.notices);
}

#[test]
fn a_process_that_was_killed_leaves_nothing_to_say() {
    for shot in history(10, 30) {
        assert_eq!(scan(shot.log.as_slice(), shot.log.len() as u64).expect("it is read"), None);
    }
    assert_eq!(inspect(Path::new("/nowhere/lakeshore.db-wal")).expect("there is no log"), None);
    assert_eq!(scan(&b""[..], 0).expect("it is read"), None);
}
