//! Copies that come back in every way, on real files.

use super::*;
use crate::control_plane::store::sqlite::engine::transact;
use crate::control_plane::store::sqlite::{DATABASE, ExclusiveStore, directory};

fn namespaces(store: &ExclusiveStore) -> Vec<String> {
    directory::namespaces(&store.connection).expect("it is read").into_iter().map(|(name, _)| name).collect()
}

fn add(store: &mut ExclusiveStore, name: &str) {
    transact(&mut store.connection, "test", |tx| directory::create_namespace(tx, name, Timestamp::UNIX_EPOCH)).expect("it is stored");
}

#[test]
fn a_copy_put_over_a_database_whose_server_was_killed_is_not_mixed_with_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(DATABASE);
    let mut store = ExclusiveStore::open(folder.path()).expect("it opens");
    add(&mut store, "before");
    let copy = folder.path().join("copy");
    store.copy(&copy).expect("it is copied");
    for number in 0..200 {
        add(&mut store, &format!("after-{number}"));
    }
    let log = std::fs::read(beside(&file, "-wal")).expect("it is read");
    drop(store);
    std::fs::write(beside(&file, "-wal"), &log).expect("as kill -9 leaves it");
    std::fs::copy(&copy, &file).expect("cp");
    let store = ExclusiveStore::open(folder.path()).expect("it opens");
    assert_eq!(namespaces(&store), ["before", "default"]);
    assert!(store.notices()[0].contains("came back from a copy"), "{:?}", store.notices());
    let aside = std::fs::read(beside(&file, "-wal.before-restore")).expect("the log is put aside, not thrown away");
    assert!(aside == log);
}

#[test]
fn a_restore_that_a_crash_ended_is_begun_again_and_one_that_is_done_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(DATABASE);
    let store = ExclusiveStore::open(folder.path()).expect("it opens");
    let copy = folder.path().join("copy");
    store.copy(&copy).expect("it is copied");
    drop(store);
    std::fs::copy(&copy, &file).expect("cp");
    std::fs::write(beside(&file, ".restoring"), "half a database").expect("left by the crash");
    std::fs::write(beside(&file, ".restoring-wal"), "its log").expect("left by the crash");
    for (restores, notices) in [(1, 1), (1, 0)] {
        let mut store = ExclusiveStore::open(folder.path()).expect("it opens");
        let count: i64 = store.connection.query_row("SELECT count(*) FROM restores", [], |row| row.get(0)).expect("it is read");
        assert_eq!((count, store.notices().len()), (restores, notices));
        add(&mut store, &format!("kept-{notices}"));
    }
    assert_eq!(namespaces(&ExclusiveStore::open(folder.path()).expect("it opens")), ["default", "kept-0", "kept-1"]);
}

#[test]
fn a_copy_is_readable_by_its_owner_only_and_is_no_copy_of_a_copy_when_it_is_restored() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let store = ExclusiveStore::open(folder.path()).expect("it opens");
    let copy = folder.path().join("copy");
    store.copy(&copy).expect("it is copied");
    assert_eq!(std::fs::metadata(&copy).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(is_copy(&copy).expect("it is read"));
    assert!(!is_copy(&folder.path().join(DATABASE)).expect("it is read"), "the original is none");
}
