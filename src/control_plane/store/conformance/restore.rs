//! A store that comes back from a copy: what it must not do again, and what it takes over.

use super::*;

/// An object as its daemon lists it.
fn held(number: u8, attempt: u32) -> HeldItem {
    let (dispatch_id, attempt) = (dispatch_id(number), Attempt(attempt));
    HeldItem {
        instance: dispatch_id.instance_name(attempt),
        dispatch_id,
        attempt,
        uid: Some("uid".into()),
        install: Some("c1-00000000".into()),
        namespace: Some("nymph-runs".into()),
        caller_namespace: Some("default".into()),
        provider: Some("demo".into()),
        requested_by: Some("default/tester".into()),
    }
}

async fn copied(kind: &impl Kind, store: &dyn Store) -> PathBuf {
    let copy = kind.copy_path();
    store.copy(copy.clone()).await.expect("it is copied");
    copy
}

/// A store with an open session of `node1`, restored from a copy that was taken of it.
async fn restored(kind: &impl Kind) -> Box<dyn Store> {
    let store = kind.open();
    set_up(store.as_ref()).await;
    session(store.as_ref(), "node1").await;
    let copy = copied(kind, store.as_ref()).await;
    drop(store);
    kind.open_copy(&copy)
}

pub(in crate::control_plane::store) async fn an_old_session_is_never_as_new_as_one_after_a_restore(kind: &impl Kind) {
    let store = kind.open();
    set_up(store.as_ref()).await;
    session(store.as_ref(), "node1").await;
    let copy = copied(kind, store.as_ref()).await;
    let (mut known, _) = session(store.as_ref(), "node1").await;
    let (mut new, _) = session(store.as_ref(), "node2").await;
    drop(store);
    for time in ["first", "second"] {
        let store = kind.open_copy(&copy);
        launched(store.as_ref(), 1).await;
        for old in [&known, &new] {
            let accepted = store.accept(old.clone(), acceptance(1)).await.expect("it is read");
            assert_eq!(accepted, Accepted::Stale, "an old session, the {time} time");
        }
        for (old, node) in [(&mut known, "node1"), (&mut new, "node2")] {
            session(store.as_ref(), node).await;
            let (fence, _) = session(store.as_ref(), node).await;
            assert!(fence.epoch > old.epoch, "the {time} time: {} after {}", fence.epoch, old.epoch);
            *old = fence;
        }
    }
}

pub(in crate::control_plane::store) async fn what_was_open_in_a_copy_is_neither_offered_nor_created_again(kind: &impl Kind) {
    let store = kind.open();
    set_up(store.as_ref()).await;
    let (fence, _) = session(store.as_ref(), "node1").await;
    for number in 1..=4 {
        launched(store.as_ref(), number).await;
    }
    for number in 2..=4 {
        assert_eq!(store.accept(fence.clone(), acceptance(number)).await.expect("it is stored"), Accepted::Committed);
    }
    store.report(fence.clone(), report(3, 1, 1, State::Running, Reason::Running)).await.expect("it is stored");
    store.report(fence, report(4, 1, 1, State::Stopped, Reason::Completed)).await.expect("it is stored");
    let ended = row(store.as_ref(), 4).await;
    let copy = copied(kind, store.as_ref()).await;
    drop(store);

    let store = kind.open_copy(&copy);
    assert_eq!(row(store.as_ref(), 4).await, ended);
    assert!(store.queued(place("node1"), 0, 10, 10).await.expect("it is read").is_empty());
    assert_eq!(store.offer(place("node1"), dispatch_id(1)).await.expect("it is read"), None);
    let (fence, opened) = session(store.as_ref(), "node1").await;
    let open: Vec<_> = opened.open.iter().map(|row| (row.dispatch_id.clone(), row.phase, row.seen.state, row.seen.reason)).collect();
    let unknown = |number, phase| (dispatch_id(number), phase, State::Unknown, Reason::DaemonUnreachable);
    assert_eq!(open, [unknown(1, Phase::Accepted), unknown(2, Phase::Accepted), unknown(3, Phase::Created)]);
    for number in 1..=3 {
        let accepted = store.accept(fence.clone(), acceptance(number)).await.expect("it is read");
        assert_eq!(accepted, Accepted::Earlier, "dispatch {number} may have been created already");
    }
    let epoch = fence.epoch;
    for (number, seq, state, reason) in
        [(1, 1, State::Stopped, Reason::Lost), (2, 7, State::Starting, Reason::Scheduling), (3, 2, State::Running, Reason::Running)]
    {
        store.report(fence.clone(), report(number, seq, epoch, state, reason)).await.expect("it is stored");
        let row = row(store.as_ref(), number).await;
        assert_eq!((row.seen.state, row.seen.reason, row.report_seq), (state, reason, seq));
    }
    let refused =
        store.refuse(fence, Refusal { elsewhere: vec![node("node2")], ..refusal(2, 1, RejectionCode::Unavailable) }).await.expect("it is stored");
    assert_eq!(refused, Refused::Ended, "no other node gets it");
}

pub(in crate::control_plane::store) async fn what_a_daemon_holds_and_a_copy_does_not_know_is_taken_over(kind: &impl Kind) {
    let store = restored(kind).await;
    let gone = HeldItem { caller_namespace: Some("team-a".into()), provider: Some("gone".into()), ..held(2, 1) };
    let promised = HeldItem { uid: None, ..held(3, 1) };
    let all = vec![held(1, 1), gone, promised];
    let (fence, opened) = session_with(store.as_ref(), "node1", all.clone()).await;
    let taken = |item: &HeldItem, namespace: &str, provider: &str, provider_known| Adoption {
        instance: item.instance.clone(),
        outcome: Adopted::Taken { namespace: namespace.into(), provider: provider.into(), provider_known },
    };
    let expected = [taken(&all[0], "default", "demo", true), taken(&all[1], "team-a", "gone", false), taken(&all[2], "default", "demo", true)];
    assert_eq!(opened.unknown, expected);
    assert_eq!(opened.open.len(), 3, "the daemon hears of them, and reports");
    let first = row(store.as_ref(), 1).await;
    let shown = (first.attempt, first.phase, first.seen.state, first.requested_by.as_str(), first.kube_namespace.as_deref());
    assert_eq!(shown, (Attempt(1), Phase::Created, State::Unknown, "tester", Some("nymph-runs")));
    assert_eq!((row(store.as_ref(), 3).await.phase, first.place), (Phase::Accepted, place("node1")));
    assert_eq!(store.instances(InstanceFilter { namespace: "team-a".into(), provider: None }).await.expect("it is read").len(), 1);
    assert!(store.queued(place("node1"), 0, 10, 10).await.expect("it is read").is_empty(), "nothing is started again");
    store.report(fence.clone(), report(1, 9, fence.epoch, State::Running, Reason::Running)).await.expect("it is stored");
    store.report(fence.clone(), report(2, 4, fence.epoch, State::Stopped, Reason::Completed)).await.expect("it is stored");
    let (_, again) = session_with(store.as_ref(), "node1", all).await;
    assert_eq!((again.unknown.len(), again.open.len()), (0, 2), "they are known now");
    assert_eq!(row(store.as_ref(), 1).await.seen.state, State::Running);
}

pub(in crate::control_plane::store) async fn what_is_not_ours_is_not_taken_over(kind: &impl Kind) {
    let store = restored(kind).await;
    let other = Cluster { name: "c2".into(), install: "c2-00000000".into(), created_at: now() };
    assert_eq!(store.create_cluster(other, enrolment("e2", 2)).await.expect("it is stored"), Put::Done);
    let provider = store.provider("default".into(), "demo".into()).await.expect("it is read").expect("it exists");
    let foreign = Provider { name: "theirs".into(), cluster: "c2".into(), ..provider };
    assert_eq!(store.put_provider(foreign, Write::Create, now()).await.expect("it is stored"), Put::Done);
    let wrong = [
        HeldItem { install: Some("c2-00000000".into()), ..held(1, 1) },
        HeldItem { install: None, ..held(2, 1) },
        HeldItem { instance: dispatch_id(9).instance_name(Attempt(1)), ..held(3, 1) },
        HeldItem { provider: Some("theirs".into()), ..held(4, 1) },
        HeldItem { provider: None, ..held(5, 1) },
        HeldItem { caller_namespace: Some("No Slug".into()), ..held(6, 1) },
        HeldItem { requested_by: Some("x".repeat(1000)), ..held(7, 1) },
    ];
    let (_, opened) = session_with(store.as_ref(), "node1", wrong.to_vec()).await;
    assert!(opened.open.is_empty(), "{:?}", opened.open);
    assert_eq!(opened.unknown.len(), wrong.len());
    assert!(opened.unknown.iter().all(|adoption| matches!(adoption.outcome, Adopted::Left(_))), "{:?}", opened.unknown);
}

pub(in crate::control_plane::store) async fn only_what_a_restore_can_have_missed_is_taken_over(kind: &impl Kind) {
    let store = restored(kind).await;
    let later = Cluster { name: "c2".into(), install: "c2-00000000".into(), created_at: now() };
    assert_eq!(store.create_cluster(later, enrolment("e2", 2)).await.expect("it is stored"), Put::Done);
    let theirs = HeldItem { install: Some("c2-00000000".into()), ..held(1, 1) };
    let place = Place { cluster: "c2".into(), ..place("node1") };
    let opened = store.open_session(OpenSession { place, ..opening("node1", vec![theirs]) }).await.expect("it opens");
    assert!(opened.open.is_empty(), "its cluster was enrolled after the restore, and all of its instances are known: {:?}", opened.open);
    let made_up = |number: u8| HeldItem { caller_namespace: Some(format!("made-up-{number}")), ..held(number, 1) };
    let (_, opened) = session_with(store.as_ref(), "node1", (0..150).map(made_up).collect()).await;
    assert_eq!(opened.open.len(), 100, "no daemon fills the store with namespaces");
}

pub(in crate::control_plane::store) async fn a_later_attempt_takes_the_row_of_the_one_in_the_copy(kind: &impl Kind) {
    let store = kind.open();
    set_up(store.as_ref()).await;
    let (fence, _) = session(store.as_ref(), "node1").await;
    launched(store.as_ref(), 1).await;
    launched(store.as_ref(), 2).await;
    assert_eq!(store.accept(fence, acceptance(2)).await.expect("it is stored"), Accepted::Committed);
    let copy = copied(kind, store.as_ref()).await;
    drop(store);
    let store = kind.open_copy(&copy);
    // After the copy, `node1` could not take the first, and `node2` did.
    let (fence, _) = session(store.as_ref(), "node1").await;
    store.report(fence.clone(), report(1, 1, fence.epoch, State::Stopped, Reason::Lost)).await.expect("it is stored");
    let (_, opened) = session_with(store.as_ref(), "node2", vec![held(1, 2), held(2, 2)]).await;
    let moved = row(store.as_ref(), 1).await;
    assert_eq!((moved.attempt, moved.phase, moved.place, moved.report_seq), (Attempt(2), Phase::Created, place("node2"), 0));
    assert_eq!(opened.open.len(), 1);
    let stays = row(store.as_ref(), 2).await;
    assert_eq!((stays.attempt, stays.place), (Attempt(1), place("node1")), "an accepted attempt has no later one");
    assert!(matches!(opened.unknown[1].outcome, Adopted::Left(_)));
}

pub(in crate::control_plane::store) async fn a_store_that_was_never_restored_takes_nothing_over(kind: &impl Kind) {
    let store = kind.open();
    set_up(store.as_ref()).await;
    let (_, opened) = session_with(store.as_ref(), "node1", vec![held(1, 1)]).await;
    assert!(opened.open.is_empty() && opened.unknown.is_empty(), "{opened:?}");
    assert_eq!(store.instance_of(dispatch_id(1)).await.expect("it is read"), None);
}

pub(in crate::control_plane::store) async fn a_copy_names_the_logs_that_go_with_it(kind: &impl Kind) {
    let store = kind.open();
    set_up(store.as_ref()).await;
    let (fence, _) = session(store.as_ref(), "node1").await;
    for number in 1..=2 {
        launched(store.as_ref(), number).await;
        store.accept(fence.clone(), acceptance(number)).await.expect("it is stored");
        store.report(fence.clone(), report(number, 1, 1, State::Running, Reason::Running)).await.expect("it is stored");
    }
    let progress = LogProgress { dispatch_id: dispatch_id(1), position: 100, stored: 60, resume: ResumePoint::default() };
    assert!(store.commit_logs(fence, vec![progress]).await.expect("it is stored"));
    let stored = store.copy(kind.copy_path()).await.expect("it is copied");
    assert_eq!(stored, [StoredLog { instance: dispatch_id(1).instance_name(Attempt(1)), bytes: 60 }]);
    let again = store.copy(kind.copy_path()).await.expect("it is copied over the older one");
    assert_eq!(again, stored);
}
