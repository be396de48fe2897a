//! What any store must do. Each test takes a store that is new, or a [`Kind`] that makes them; `suite!` runs them all on one.

pub(super) mod gone;
pub(super) mod identity;
pub(super) mod orders;
pub(super) mod restore;

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::*;
use crate::types::{Attempt, Observation, Placement, Reason, Role, State};
use crate::wire::{HeldItem, Hello, NodeFacts, Rejection, RejectionCode, ResumePoint};

/// A kind of store, which the suite starts, stops and copies. One value has one store; at most one handle of it is open.
pub(super) trait Kind {
    /// A new store, not yet open.
    fn new() -> Self;
    /// Opens it with what is in it.
    fn open(&self) -> Box<dyn Store>;
    /// Where a copy of it may be written.
    fn copy_path(&self) -> PathBuf;
    /// Puts a copy in its place, as an operator would, and opens that.
    fn open_copy(&self, copy: &Path) -> Box<dyn Store>;
}

fn hash(byte: u8) -> TokenHash {
    TokenHash([byte; 32])
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn node(name: &str) -> Placement {
    Placement::Node(name.parse().expect("a node name"))
}

fn place(name: &str) -> Place {
    Place { cluster: "c1".into(), placement: node(name) }
}

fn dispatch_id(number: u8) -> DispatchId {
    DispatchId::from_random([number; 16])
}

fn new_launch(number: u8) -> NewLaunch {
    NewLaunch {
        dispatch_id: dispatch_id(number),
        namespace: "default".into(),
        provider: "demo".into(),
        cluster: "c1".into(),
        candidates: vec![node("node1")],
        node_named: false,
        requested_by: "tester".into(),
        payload: vec![number],
        idempotency: None,
        now: now(),
    }
}

fn acceptance(number: u8) -> Acceptance {
    let kube_namespace = "nymph-runs".parse().expect("a namespace");
    Acceptance { dispatch_id: dispatch_id(number), attempt: Attempt(1), kube_namespace, now: now() }
}

fn report(number: u8, seq: u64, epoch: u64, state: State, reason: Reason) -> Box<Report> {
    let dispatch_id = dispatch_id(number);
    let instance = dispatch_id.instance_name(Attempt(1));
    let observation = Observation {
        state,
        reason,
        message: format!("report {seq}"),
        exit_code: None,
        uid: Some("uid".into()),
        node: None,
        created_at: None,
        started_at: None,
        finished_at: None,
        observed_at: now(),
        has_log: state != State::Starting,
    };
    Box::new(Report { dispatch_id, attempt: Attempt(1), instance, seq, epoch, observation })
}

fn rejection(code: RejectionCode) -> Rejection {
    Rejection { code, rule: "images".into(), message: "no".into() }
}

fn refusal(number: u8, attempt: u32, code: RejectionCode) -> Refusal {
    Refusal { dispatch_id: dispatch_id(number), attempt: Attempt(attempt), rejection: rejection(code), elsewhere: vec![], now: now() }
}

fn enrolment(id: &str, number: u8) -> NewEnrolment {
    NewEnrolment { id: id.into(), hash: hash(number), created_at: now(), expires_at: None }
}

async fn set_up(store: &dyn Store) {
    let cluster = Cluster { name: "c1".into(), install: "c1-00000000".into(), created_at: now() };
    assert_eq!(store.create_cluster(cluster, enrolment("e1", 1)).await.expect("it is stored"), Put::Done);
    let provider = Provider {
        namespace: "default".into(),
        name: "demo".into(),
        launcher: "Kube".into(),
        dispatch: "daemon".into(),
        cluster: "c1".into(),
        kwargs: serde_json::Map::new(),
    };
    assert_eq!(store.put_provider(provider, Write::Create, now()).await.expect("it is stored"), Put::Done);
}

async fn session(store: &dyn Store, name: &str) -> (Fence, OpenedSession) {
    session_with(store, name, vec![]).await
}

fn opening(name: &str, held: Vec<HeldItem>) -> OpenSession {
    let facts = NodeFacts {
        name: name.parse().expect("a node name"),
        uid: None,
        labels: [].into(),
        taints: vec![],
        allocatable: [].into(),
        conditions: vec![],
        unschedulable: false,
    };
    let hello = Hello {
        version: "0.1.0".into(),
        role: Role::Node,
        cluster_uid: None,
        boot_id: "b".into(),
        node: Some(facts),
        keys: None,
        policy_digest: "d".into(),
        capabilities: vec![],
        held,
    };
    OpenSession { place: place(name), hello: Box::new(hello), proof: None, now: now() }
}

/// A session of a daemon that holds objects.
async fn session_with(store: &dyn Store, name: &str, held: Vec<HeldItem>) -> (Fence, OpenedSession) {
    let opened = store.open_session(opening(name, held)).await.expect("it opens");
    (Fence { place: place(name), epoch: opened.epoch }, opened)
}

async fn launched(store: &dyn Store, number: u8) -> Instance {
    match store.launch(new_launch(number)).await.expect("it is stored") {
        Launched::New(row) => *row,
        other => panic!("a new launch: {other:?}"),
    }
}

async fn row(store: &dyn Store, number: u8) -> Instance {
    store.instance_of(dispatch_id(number)).await.expect("it is read").expect("it exists")
}

pub(super) async fn a_token_opens_its_own_door_only(store: &dyn Store) {
    set_up(store).await;
    assert_eq!(store.cluster_by_token(hash(1), now()).await.expect("it is read").map(|found| found.cluster.name).as_deref(), Some("c1"));
    assert!(store.cluster_by_token(hash(2), now()).await.expect("it is read").is_none());
    let token = TokenRow {
        id: "t1".into(),
        name: "t".into(),
        hash: hash(3),
        admin: false,
        bootstrap: false,
        namespaces: vec!["default".into()],
        created_at: now(),
    };
    assert_eq!(store.create_token(token.clone()).await.expect("it is stored"), Put::Done);
    let twin = TokenRow { id: "t2".into(), hash: hash(4), ..token.clone() };
    assert_eq!(store.create_token(twin.clone()).await.expect("it is read"), Put::Exists);
    let caller = store.caller_by_token(hash(3)).await.expect("it is read").expect("it is known");
    assert_eq!((caller.name.as_str(), caller.namespaces.as_slice()), ("t", ["default".to_owned()].as_slice()));
    assert!(store.caller_by_token(hash(1)).await.expect("it is read").is_none(), "an enrolment is no caller");
    assert!(store.revoke_token("t1".into(), now()).await.expect("it is stored"));
    assert!(!store.revoke_token("t1".into(), now()).await.expect("it is stored"));
    assert!(store.caller_by_token(hash(3)).await.expect("it is read").is_none());
    assert_eq!(store.create_token(twin).await.expect("it is stored"), Put::Done, "a revoked token's name is free");
}

pub(super) async fn a_dispatch_goes_one_way(store: &dyn Store) {
    set_up(store).await;
    let (fence, _) = session(store, "node1").await;
    let first = launched(store, 1).await;
    assert_eq!((first.phase, first.seen.reason, first.attempt), (Phase::Queued, Reason::Queued, Attempt(1)));
    let offers = store.queued(place("node1"), 0, 10, 10).await.expect("it is read");
    assert_eq!(offers.iter().map(|offer| offer.payload.as_slice()).collect::<Vec<_>>(), [[1]]);
    assert!(store.queued(place("node1"), offers[0].row, 10, 10).await.expect("it is read").is_empty(), "the next page");
    assert!(store.queued(place("node2"), 0, 10, 10).await.expect("it is read").is_empty());
    assert_eq!(store.accept(fence.clone(), acceptance(1)).await.expect("it is stored"), Accepted::Committed);
    assert!(store.offer(place("node1"), dispatch_id(1)).await.expect("it is read").is_none(), "what is accepted is never offered");
    assert_eq!(store.accept(fence.clone(), acceptance(1)).await.expect("it is read"), Accepted::Committed, "the same session hears it twice");
    let Reported::Stored(seen) = store.report(fence.clone(), report(1, 1, 1, State::Running, Reason::Running)).await.expect("it is stored") else {
        panic!("it is stored")
    };
    assert_eq!((seen.phase, seen.seen.state, seen.report_seq, seen.log.started), (Phase::Created, State::Running, 1, true));
    let Reported::Stored(again) = store.report(fence.clone(), report(1, 1, 1, State::Stopped, Reason::Lost)).await.expect("it is read") else {
        panic!("it is known")
    };
    assert_eq!(again.seen.state, State::Running, "a sequence that was taken changes nothing");
    let leap = store.report(fence.clone(), report(1, u64::MAX, 1, State::Running, Reason::Running)).await.expect("it is read");
    assert_eq!(leap, Reported::Leap, "no number would be left for the end");
    store.report(fence.clone(), report(1, 2, 1, State::Stopped, Reason::Completed)).await.expect("it is stored");
    store.report(fence.clone(), report(1, 3, 1, State::Stopped, Reason::Lost)).await.expect("it is read");
    let ended = row(store, 1).await;
    assert_eq!((ended.phase, ended.seen.reason, ended.report_seq), (Phase::Ended, Reason::Completed, 3));
    assert_eq!(store.accept(fence.clone(), acceptance(1)).await.expect("it is read"), Accepted::Unwanted { instance: first.name });
    let refused = store.refuse(fence, refusal(1, 1, RejectionCode::PolicyDenied)).await.expect("it is read");
    assert_eq!(refused, Refused::Ignored);
}

pub(super) async fn no_more_are_offered_than_may_be_open(store: &dyn Store) {
    set_up(store).await;
    let (fence, _) = session(store, "node1").await;
    for number in 1..=4 {
        launched(store, number).await;
    }
    let queued = async |after, max_open| {
        let offers = store.queued(place("node1"), after, 10, max_open).await.expect("it is read");
        offers.into_iter().map(|offer| (offer.row, offer.payload[0])).collect::<Vec<_>>()
    };
    let first = queued(0, 2).await;
    assert_eq!(first.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [1, 2]);
    let after = first[1].0;
    assert!(queued(after, 2).await.is_empty(), "two are under way");
    store.accept(fence.clone(), acceptance(1)).await.expect("it is stored");
    assert!(queued(after, 2).await.is_empty(), "one is open, one under way");
    store.report(fence, report(1, 1, 1, State::Stopped, Reason::Completed)).await.expect("it is stored");
    assert_eq!(queued(after, 2).await.iter().map(|(_, number)| *number).collect::<Vec<_>>(), [3]);
}

pub(super) async fn only_the_newest_session_of_the_place_is_heard(store: &dyn Store) {
    set_up(store).await;
    let (old, _) = session(store, "node1").await;
    launched(store, 1).await;
    launched(store, 2).await;
    assert_eq!(store.accept(old.clone(), acceptance(1)).await.expect("it is stored"), Accepted::Committed);
    let (new, opened) = session(store, "node1").await;
    assert_eq!((new.epoch, opened.open.len()), (2, 1), "the accepted one is open, the queued one is not");
    assert_eq!(store.accept(old.clone(), acceptance(2)).await.expect("it is read"), Accepted::Stale);
    assert_eq!(store.accept(new.clone(), acceptance(1)).await.expect("it is read"), Accepted::Earlier);
    assert_eq!(store.report(old.clone(), report(1, 1, 1, State::Running, Reason::Running)).await.expect("it is read"), Reported::Stale);
    assert_eq!(store.report(new.clone(), report(1, 1, 1, State::Running, Reason::Running)).await.expect("it is read"), Reported::Stale);
    let refused = store.refuse(old.clone(), refusal(2, 1, RejectionCode::Invalid)).await.expect("it is read");
    assert_eq!(refused, Refused::Stale);
    assert!(!store.commit_logs(old.clone(), vec![]).await.expect("it is read"));
    assert!(!store.end_log(old, dispatch_id(1), LogEndReason::Complete).await.expect("it is read"));
    let (stranger, _) = session(store, "node2").await;
    assert_eq!(store.accept(stranger.clone(), acceptance(2)).await.expect("it is read"), Accepted::Foreign);
    assert_eq!(store.report(stranger.clone(), report(1, 1, 1, State::Running, Reason::Running)).await.expect("it is read"), Reported::Foreign);
    let refused = store.refuse(stranger, refusal(2, 1, RejectionCode::Invalid)).await.expect("it is read");
    assert_eq!(refused, Refused::Foreign);
    assert_eq!((row(store, 1).await.phase, row(store, 2).await.phase), (Phase::Accepted, Phase::Queued));
}

pub(super) async fn a_taken_name_is_changed_only_while_nobody_was_told_it(store: &dyn Store) {
    set_up(store).await;
    let (fence, _) = session(store, "node1").await;
    let refuse = |number, attempt| store.refuse(fence.clone(), refusal(number, attempt, RejectionCode::NameTaken));
    launched(store, 1).await;
    assert_eq!(refuse(1, 1).await.expect("it is stored"), Refused::NextAttempt(place("node1")));
    let renamed = row(store, 1).await;
    assert_eq!((renamed.attempt, &renamed.name), (Attempt(2), &dispatch_id(1).instance_name(Attempt(2))));
    assert_eq!(refuse(1, 1).await.expect("it is read"), Refused::Ignored, "the answer to an older attempt");
    assert!(store.mark_answered(dispatch_id(1)).await.expect("it is stored").is_some());
    assert_eq!(refuse(1, 2).await.expect("it is stored"), Refused::Ended);
    let ended = row(store, 1).await;
    assert_eq!(
        (ended.attempt, ended.seen.reason, ended.rejection.map(|rejection| rejection.code)),
        (Attempt(2), Reason::Rejected, Some(RejectionCode::NameTaken))
    );
    launched(store, 2).await;
    assert_eq!(store.accept(fence.clone(), acceptance(2)).await.expect("it is stored"), Accepted::Committed);
    assert_eq!(refuse(2, 1).await.expect("it is stored"), Refused::Ended, "an accepted name stays");
}

pub(super) async fn a_node_that_cannot_take_work_passes_it_on_to_one_that_was_not_tried(store: &dyn Store) {
    set_up(store).await;
    let fences = [session(store, "node1").await.0, session(store, "node2").await.0, session(store, "node3").await.0];
    let elsewhere: Vec<_> = ["node1", "node2", "node3"].into_iter().map(node).collect();
    let refuse = |fence: &Fence, number, attempt, code| {
        store.refuse(fence.clone(), Refusal { elsewhere: elsewhere.clone(), ..refusal(number, attempt, code) })
    };
    let unavailable = RejectionCode::Unavailable;
    launched(store, 1).await;
    assert_eq!(refuse(&fences[0], 1, 1, unavailable).await.expect("it is stored"), Refused::NextAttempt(place("node2")));
    assert_eq!(refuse(&fences[0], 1, 1, unavailable).await.expect("it is read"), Refused::Foreign, "it is no longer there");
    assert_eq!(store.offer(place("node2"), dispatch_id(1)).await.expect("it is read").map(|offer| offer.attempt), Some(Attempt(2)));
    assert_eq!(refuse(&fences[1], 1, 2, unavailable).await.expect("it is stored"), Refused::NextAttempt(place("node3")));
    assert_eq!(refuse(&fences[2], 1, 3, unavailable).await.expect("it is stored"), Refused::Ended, "all were tried");
    store.launch(NewLaunch { node_named: true, ..new_launch(2) }).await.expect("it is stored");
    assert_eq!(refuse(&fences[0], 2, 1, unavailable).await.expect("it is stored"), Refused::Ended, "a named node is the caller's word");
    launched(store, 3).await;
    store.mark_answered(dispatch_id(3)).await.expect("it is stored");
    assert_eq!(refuse(&fences[0], 3, 1, unavailable).await.expect("it is stored"), Refused::Ended, "the caller was told the place");
    launched(store, 4).await;
    assert_eq!(refuse(&fences[0], 4, 1, RejectionCode::PolicyDenied).await.expect("it is stored"), Refused::Ended, "policy is the cluster's");
}

pub(super) async fn a_key_stands_for_one_body(store: &dyn Store) {
    set_up(store).await;
    let with = |number, key: &str, token: &str, body| {
        let idempotency = Idempotency { token: token.into(), key: key.into(), body_hash: [body; 32] };
        store.launch(NewLaunch { idempotency: Some(idempotency), ..new_launch(number) })
    };
    assert!(matches!(with(1, "k", "t1", 0).await.expect("it is stored"), Launched::New(_)));
    let Launched::Replayed(again) = with(2, "k", "t1", 0).await.expect("it is read") else { panic!("it is the same") };
    assert_eq!(again.dispatch_id, dispatch_id(1));
    assert_eq!(with(3, "k", "t1", 9).await.expect("it is read"), Launched::KeyReused);
    let before = |key: &str, body| {
        let used = Idempotency { token: "t1".into(), key: key.into(), body_hash: [body; 32] };
        store.launched_before("default".into(), "demo".into(), used)
    };
    assert!(matches!(before("k", 0).await.expect("it is read"), Some(Launched::Replayed(row)) if row.dispatch_id == dispatch_id(1)));
    assert_eq!(before("k", 9).await.expect("it is read"), Some(Launched::KeyReused));
    assert_eq!(before("other", 0).await.expect("it is read"), None);
    assert!(matches!(with(4, "k", "t2", 0).await.expect("it is stored"), Launched::New(_)), "another token's key");
    let nowhere = store.launch(NewLaunch { candidates: vec![], ..new_launch(5) }).await.expect("it is read");
    assert_eq!(nowhere, Launched::Nowhere);
    let gone = store.launch(NewLaunch { provider: "absent".into(), ..new_launch(6) }).await.expect("it is read");
    assert_eq!(gone, Launched::ProviderGone);
    assert_eq!(store.instances(InstanceFilter { namespace: "default".into(), provider: None }).await.expect("it is read").len(), 2);
}

pub(super) async fn a_wish_to_delete_is_kept_until_it_is_confirmed(store: &dyn Store) {
    set_up(store).await;
    let (fence, _) = session(store, "node1").await;
    let delete = |name: InstanceName| store.request_delete("default".into(), "demo".into(), name, now());
    let queued = launched(store, 1).await;
    assert!(matches!(delete(queued.name.clone()).await.expect("it is stored"), Deletion::EndedUnstarted(_)));
    assert_eq!(delete(queued.name).await.expect("it is read"), Deletion::AlreadyEnded);
    assert!(store.queued(place("node1"), 0, 10, 10).await.expect("it is read").is_empty());
    let created = launched(store, 2).await;
    store.accept(fence.clone(), acceptance(2)).await.expect("it is stored");
    assert!(matches!(delete(created.name.clone()).await.expect("it is stored"), Deletion::Requested(_)));
    assert_eq!(store.unconfirmed_deletions(place("node1")).await.expect("it is read"), std::slice::from_ref(&created.name));
    let (fence, opened) = session(store, "node1").await;
    assert!(opened.open[0].delete_requested);
    // Its daemon was away while another one of its node carried the wish out.
    store.report(fence, report(2, 1, 2, State::Stopped, Reason::DeletedByOther)).await.expect("it is stored");
    assert_eq!(row(store, 2).await.seen.reason, Reason::DeletedByRequest, "nobody but the caller wanted it gone");
    assert!(store.unconfirmed_deletions(place("node1")).await.expect("it is read").is_empty());
    assert_eq!(delete(created.name.clone()).await.expect("it is read"), Deletion::AlreadyEnded);
    let elsewhere = store.request_delete("default".into(), "other".into(), created.name, now()).await.expect("it is read");
    assert_eq!(elsewhere, Deletion::Elsewhere);
    assert_eq!(delete("lakeshore-00000000".parse().expect("a name")).await.expect("it is read"), Deletion::Unknown);
}

pub(super) async fn a_log_comes_back_with_the_next_session_until_it_has_ended(store: &dyn Store) {
    set_up(store).await;
    let (fence, _) = session(store, "node1").await;
    launched(store, 1).await;
    store.accept(fence.clone(), acceptance(1)).await.expect("it is stored");
    store.report(fence.clone(), report(1, 1, 1, State::Stopped, Reason::Completed)).await.expect("it is stored");
    let resume = ResumePoint { container: "c".into(), timestamp: "t".into(), lines: 2, partial: 3 };
    let progress = LogProgress { dispatch_id: dispatch_id(1), position: 100, stored: 60, resume: resume.clone() };
    assert!(store.commit_logs(fence, vec![progress]).await.expect("it is stored"));
    let (fence, opened) = session(store, "node1").await;
    assert!(opened.open.is_empty());
    let [log] = opened.logs.as_slice() else { panic!("one log: {:?}", opened.logs) };
    assert_eq!((log.log.position, log.log.stored, &log.log.resume, log.log_dropped(), log.log_done()), (100, 60, &resume, 40, false));
    assert!(store.end_log(fence, dispatch_id(1), LogEndReason::Complete).await.expect("it is stored"));
    assert!(row(store, 1).await.log_done());
    assert!(session(store, "node1").await.1.logs.is_empty());
}

/// Runs the suite on a [`Kind`].
macro_rules! suite {
    ($kind:ty) => {
        crate::control_plane::store::conformance::suite! { @ $kind, conformance:
            a_token_opens_its_own_door_only
            a_dispatch_goes_one_way
            no_more_are_offered_than_may_be_open
            only_the_newest_session_of_the_place_is_heard
            a_taken_name_is_changed_only_while_nobody_was_told_it
            a_node_that_cannot_take_work_passes_it_on_to_one_that_was_not_tried
            a_key_stands_for_one_body
            a_wish_to_delete_is_kept_until_it_is_confirmed
            a_log_comes_back_with_the_next_session_until_it_has_ended
        }
        crate::control_plane::store::conformance::suite! { @@@ $kind, conformance::identity:
            two_tokens_are_live_until_one_is_revoked_or_expires
            a_token_is_fresh_until_a_session_is_opened_with_it
            trust_is_recorded_over_what_was_read_only
            a_daemon_is_listed_with_what_its_last_session_proved
        }
        crate::control_plane::store::conformance::suite! { @@@ $kind, conformance::gone:
            the_clusters_session_ends_what_was_on_a_node_once_that_is_gone
            what_a_gone_node_had_not_taken_goes_elsewhere_or_ends
            another_node_of_the_same_name_has_nothing_to_do_with_it
            a_gone_node_is_looked_after_for_an_hour
        }
        crate::control_plane::store::conformance::suite! { @@ $kind, conformance::restore:
            an_old_session_is_never_as_new_as_one_after_a_restore
            what_was_open_in_a_copy_is_neither_offered_nor_created_again
            what_a_daemon_holds_and_a_copy_does_not_know_is_taken_over
            what_is_not_ours_is_not_taken_over
            only_what_a_restore_can_have_missed_is_taken_over
            a_later_attempt_takes_the_row_of_the_one_in_the_copy
            a_store_that_was_never_restored_takes_nothing_over
            a_copy_names_the_logs_that_go_with_it
        }
        #[test]
        fn no_order_of_events_breaks_the_invariants() {
            crate::control_plane::store::conformance::orders::check::<$kind>();
        }
    };
    (@ $kind:ty, $module:ident: $($test:ident)*) => {$(
        #[tokio::test]
        async fn $test() {
            let kind = <$kind as crate::control_plane::store::conformance::Kind>::new();
            let store = crate::control_plane::store::conformance::Kind::open(&kind);
            crate::control_plane::store::$module::$test(store.as_ref()).await;
        }
    )*};
    (@@@ $kind:ty, $module:ident::$sub:ident: $($test:ident)*) => {$(
        #[tokio::test]
        async fn $test() {
            let kind = <$kind as crate::control_plane::store::conformance::Kind>::new();
            let store = crate::control_plane::store::conformance::Kind::open(&kind);
            crate::control_plane::store::$module::$sub::$test(store.as_ref()).await;
        }
    )*};
    (@@ $kind:ty, $module:ident::$sub:ident: $($test:ident)*) => {$(
        #[tokio::test]
        async fn $test() {
            crate::control_plane::store::$module::$sub::$test(&<$kind as crate::control_plane::store::conformance::Kind>::new()).await;
        }
    )*};
}
pub(super) use suite;
