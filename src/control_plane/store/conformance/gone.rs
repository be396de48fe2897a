//! Nodes that are gone: who speaks for what was there, and what becomes of it.

use super::*;
use crate::wire::{Loss, NodeItem};

async fn opened(store: &dyn Store, placement: Placement, uid: Option<&str>) -> (Fence, OpenedSession) {
    let facts = placement.node().map(|name| NodeFacts {
        name: name.clone(),
        uid: uid.map(str::to_owned),
        labels: [].into(),
        taints: vec![],
        allocatable: [].into(),
        conditions: vec![],
        unschedulable: false,
    });
    let hello = Hello {
        version: "0.1.0".into(),
        role: placement.role(),
        cluster_uid: None,
        boot_id: "b".into(),
        node: facts,
        keys: None,
        policy_digest: "d".into(),
        capabilities: vec![],
        held: vec![],
    };
    let place = Place { cluster: "c1".into(), placement };
    let opened = store.open_session(OpenSession { place: place.clone(), hello: Box::new(hello), proof: None, now: now() }).await.expect("it opens");
    (Fence { place, epoch: opened.epoch }, opened)
}

fn loss(fence: &Fence, uid: Option<&str>, elsewhere: &[&str]) -> GoneNode {
    GoneNode {
        fence: fence.clone(),
        node: "node1".parse().expect("a node name"),
        uid: uid.map(str::to_owned),
        why: Loss::Absent,
        elsewhere: elsewhere.iter().map(|name| node(name)).collect(),
        now: now(),
    }
}

/// The instances that are the session's to end, those that go elsewhere, and how many ended.
async fn declared(store: &dyn Store, gone: GoneNode) -> (Vec<DispatchId>, Vec<Place>, usize) {
    match store.declare_gone(gone).await.expect("it is stored") {
        Declared::Gone { open, moved, ended } => {
            (open.into_iter().map(|row| row.dispatch_id).collect(), moved.into_iter().map(|(_, place)| place).collect(), ended.len())
        }
        Declared::Stale => panic!("the session is the newest"),
    }
}

async fn accepted(store: &dyn Store, fence: &Fence, number: u8) {
    launched(store, number).await;
    assert_eq!(store.accept(fence.clone(), acceptance(number)).await.expect("it is stored"), Accepted::Committed);
}

async fn ends(store: &dyn Store, fence: &Fence, number: u8, seq: u64) -> Reported {
    store.report(fence.clone(), report(number, seq, fence.epoch, State::Stopped, Reason::NodeLost)).await.expect("it is stored")
}

fn item(name: &str, uid: Option<&str>, gone: bool) -> NodeItem {
    NodeItem { node: name.parse().expect("a node name"), uid: uid.map(str::to_owned), gone }
}

pub(in crate::control_plane::store) async fn the_clusters_session_ends_what_was_on_a_node_once_that_is_gone(store: &dyn Store) {
    set_up(store).await;
    let (node1, _) = opened(store, node("node1"), Some("u1")).await;
    let (cluster, open) = opened(store, Placement::Cluster, None).await;
    assert!(open.open.is_empty());
    accepted(store, &node1, 1).await;
    accepted(store, &node1, 2).await;
    store.report(node1.clone(), report(1, 1, node1.epoch, State::Running, Reason::Running)).await.expect("it is stored");
    assert_eq!(ends(store, &cluster, 1, 2).await, Reported::Foreign, "nobody said that the node is gone");
    let not_the_clusters = GoneNode { fence: node1.clone(), ..loss(&cluster, Some("u1"), &[]) };
    assert_eq!(store.declare_gone(not_the_clusters).await.expect("it is read"), Declared::Stale, "a node's session speaks of no node's end");
    for time in ["once", "again, by the next holder"] {
        assert_eq!(declared(store, loss(&cluster, Some("u1"), &[])).await, (vec![dispatch_id(1), dispatch_id(2)], vec![], 0), "{time}");
    }
    let Reported::Stored(row) = ends(store, &cluster, 1, 2).await else { panic!("it is the cluster's to end") };
    assert_eq!((row.phase, row.seen.reason, row.place), (Phase::Ended, Reason::NodeLost, place("node1")));
    assert!(super::row(store, 1).await.log_done(), "the rest of its log is on a node that is gone");
    // Its daemon still runs, and sees that the object was removed.
    let removed = report(2, 1, node1.epoch, State::Stopped, Reason::DeletedByOther);
    let Reported::Stored(row) = store.report(node1.clone(), removed).await.expect("it is stored") else { panic!("it is its own") };
    assert_eq!(row.seen.reason, Reason::NodeLost, "nobody else deleted it");
    // Its daemon comes back: what it says changes nothing.
    let (node1, open) = opened(store, node("node1"), Some("u1")).await;
    assert!(open.open.is_empty());
    let late = store.report(node1.clone(), report(1, 3, node1.epoch, State::Running, Reason::Running)).await.expect("it is stored");
    let Reported::Stored(row) = late else { panic!("it is acknowledged: {late:?}") };
    assert_eq!((row.phase, row.seen.reason, row.report_seq), (Phase::Ended, Reason::NodeLost, 3));
}

pub(in crate::control_plane::store) async fn what_a_gone_node_had_not_taken_goes_elsewhere_or_ends(store: &dyn Store) {
    set_up(store).await;
    let (node1, _) = opened(store, node("node1"), Some("u1")).await;
    opened(store, node("node2"), Some("u2")).await;
    let (cluster, _) = opened(store, Placement::Cluster, None).await;
    launched(store, 1).await;
    launched(store, 2).await;
    store.mark_answered(dispatch_id(2)).await.expect("it is stored");
    let named = NewLaunch { node_named: true, ..new_launch(3) };
    assert!(matches!(store.launch(named).await.expect("it is stored"), Launched::New(_)));
    assert_eq!(declared(store, loss(&cluster, Some("u1"), &["node2"])).await, (vec![], vec![place("node2")], 2));
    let moved = row(store, 1).await;
    assert_eq!((moved.phase, moved.attempt, moved.place), (Phase::Queued, Attempt(2), place("node2")));
    assert_eq!(store.accept(node1, acceptance(1)).await.expect("it is read"), Accepted::Foreign, "a late yes of the first place");
    for number in [2, 3] {
        let ended = row(store, number).await;
        assert_eq!(
            (ended.phase, ended.seen.reason, ended.attempt),
            (Phase::Ended, Reason::NodeLost, Attempt(1)),
            "answered, or the caller's own choice"
        );
    }
    assert_eq!(store.launch(new_launch(4)).await.expect("it is read"), Launched::Nowhere, "nothing new goes to a node that is gone");
    assert!(store.node_back(cluster, "node1".parse().expect("a name"), Some("u1".into())).await.expect("it is stored"));
    launched(store, 4).await;
}

pub(in crate::control_plane::store) async fn another_node_of_the_same_name_has_nothing_to_do_with_it(store: &dyn Store) {
    set_up(store).await;
    let (old, _) = opened(store, node("node1"), None).await;
    let facts = NodeFacts {
        name: "node1".parse().expect("a node name"),
        uid: Some("u1".into()),
        labels: [].into(),
        taints: vec![],
        allocatable: [].into(),
        conditions: vec![],
        unschedulable: false,
    };
    assert!(store.note_facts(old.clone(), facts.clone()).await.expect("it is stored"), "read after hello");
    accepted(store, &old, 1).await;
    let (_, open) = opened(store, node("node1"), Some("u2")).await;
    assert_eq!(open.open.len(), 1, "without a daemon of role cluster the new node's daemon answers for it");
    assert!(!store.note_facts(old, facts).await.expect("it is read"), "an older session");
    let (cluster, _) = opened(store, Placement::Cluster, None).await;
    let (new, open) = opened(store, node("node1"), Some("u2")).await;
    assert!(open.open.is_empty());
    accepted(store, &new, 2).await;
    assert_eq!(store.nodes("c1".into(), now()).await.expect("it is read"), [item("node1", Some("u1"), false), item("node1", Some("u2"), false)]);
    assert_eq!(declared(store, loss(&cluster, Some("u1"), &[])).await, (vec![dispatch_id(1)], vec![], 0));
    assert_eq!(ends(store, &cluster, 2, 1).await, Reported::Foreign, "accepted on the new node");
    assert!(matches!(ends(store, &cluster, 1, 1).await, Reported::Stored(_)));
    launched(store, 3).await; // the name is not gone
    assert_eq!(store.nodes("c1".into(), now()).await.expect("it is read"), [item("node1", Some("u2"), false)]);
}

pub(in crate::control_plane::store) async fn a_gone_node_is_looked_after_for_an_hour(store: &dyn Store) {
    set_up(store).await;
    opened(store, node("node1"), Some("u1")).await;
    opened(store, node("node2"), None).await;
    let (cluster, _) = opened(store, Placement::Cluster, None).await;
    let later = |minutes: i64| now().checked_add(jiff::SignedDuration::from_mins(minutes)).expect("in range");
    declared(store, loss(&cluster, Some("u1"), &[])).await;
    for (minutes, expected) in [(59, vec![item("node1", Some("u1"), true), item("node2", None, false)]), (61, vec![item("node2", None, false)])] {
        assert_eq!(store.nodes("c1".into(), later(minutes)).await.expect("it is read"), expected, "after {minutes} min");
    }
}
