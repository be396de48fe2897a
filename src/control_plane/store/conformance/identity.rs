//! Enrolment tokens, and what proofs are checked against.

use std::time::Duration;

use serde_json::json;

use super::*;

fn trust(kid: &str, recorded_at: Timestamp) -> Trust {
    let account = |name: &str| Account { namespace: "nymph-system".into(), name: name.into() };
    Trust {
        cluster_uid: Some("uid".into()),
        issuer: "https://issuer".into(),
        jwks: json!({"keys": [{"kid": kid, "n": 1}]}),
        recorded_at,
        accounts: [(Role::Node, account("nymph")), (Role::Cluster, account("nymph-cluster"))].into(),
    }
}

async fn found(store: &dyn Store, number: u8, now: Timestamp) -> Option<Enrolled> {
    store.cluster_by_token(hash(number), now).await.expect("it is read")
}

pub(in crate::control_plane::store) async fn two_tokens_are_live_until_one_is_revoked_or_expires(store: &dyn Store) {
    set_up(store).await;
    let soon = now() + Duration::from_secs(60);
    let with = |id: &str, number, expires_at| NewEnrolment { expires_at, ..enrolment(id, number) };
    let add = |cluster: &str, enrolment| store.add_enrolment(cluster.into(), enrolment);
    assert_eq!(add("absent", enrolment("e9", 9)).await.expect("it is read"), Added::Unknown);
    assert_eq!(add("c1", with("e2", 2, Some(soon))).await.expect("it is stored"), Added::Done);
    assert_eq!(add("c1", enrolment("e3", 3)).await.expect("it is read"), Added::Full(vec!["e1".into(), "e2".into()]));
    assert!(found(store, 3, now()).await.is_none());
    for number in [1, 2] {
        assert_eq!(found(store, number, now()).await.expect("it is live").cluster.name, "c1");
    }
    assert!(found(store, 2, soon).await.is_none(), "it expires at its time, not after");
    assert!(!store.use_enrolment("e2".into(), soon).await.expect("it is read"), "nor is it used any more");
    let later = NewEnrolment { created_at: soon, ..enrolment("e3", 3) };
    assert_eq!(add("c1", later).await.expect("it is stored"), Added::Done, "an expired one leaves room");
    assert!(!store.revoke_enrolment("c2".into(), "e1".into(), now()).await.expect("it is read"), "another cluster's");
    assert!(store.revoke_enrolment("c1".into(), "e1".into(), now()).await.expect("it is stored"));
    assert!(!store.revoke_enrolment("c1".into(), "e1".into(), now()).await.expect("it is read"));
    assert!(found(store, 1, now()).await.is_none() && !store.use_enrolment("e1".into(), now()).await.expect("it is read"));
    let rows = store.clusters().await.expect("it is read");
    assert_eq!(rows[0].enrolments.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), ["e2", "e3"]);
}

pub(in crate::control_plane::store) async fn a_token_is_fresh_until_a_session_is_opened_with_it(store: &dyn Store) {
    set_up(store).await;
    assert_eq!(found(store, 1, now()).await.expect("it is live").enrolment.last_used_at, None, "being looked up is no use");
    let used = now();
    assert!(store.use_enrolment("e1".into(), used).await.expect("it is stored"));
    assert_eq!(found(store, 1, now()).await.expect("it is live").enrolment.last_used_at, Some(used));
}

pub(in crate::control_plane::store) async fn trust_is_recorded_over_what_was_read_only(store: &dyn Store) {
    set_up(store).await;
    assert_eq!(store.trust("c1".into()).await.expect("it is read"), None);
    let (first, second) = (trust("one", now()), trust("two", now() + Duration::from_secs(1)));
    let record = |known, trust: &Trust| store.record_trust("c1".into(), known, trust.clone());
    assert!(!record(Some(now()), &first).await.expect("it is read"), "there is nothing yet");
    assert!(record(None, &first).await.expect("it is stored"));
    assert!(!record(None, &second).await.expect("it is read"), "it was recorded meanwhile");
    assert_eq!(store.trust("c1".into()).await.expect("it is read"), Some(first.clone()));
    let mut second = second;
    second.accounts.remove(&Role::Cluster);
    second.cluster_uid = None;
    assert!(record(Some(first.recorded_at), &second).await.expect("it is stored"));
    assert_eq!(found(store, 1, now()).await.expect("it is live").trust, Some(second.clone()));
    assert_eq!(store.clusters().await.expect("it is read")[0].trust, Some(second));
    assert!(!store.record_trust("absent".into(), None, first).await.expect("it is read"));
    assert_eq!(store.trust("absent".into()).await.expect("it is read"), None);
}

pub(in crate::control_plane::store) async fn a_daemon_is_listed_with_what_its_last_session_proved(store: &dyn Store) {
    set_up(store).await;
    session(store, "node1").await;
    let row = async || store.daemon("c1".into(), "node1".into()).await.expect("it is read").expect("it is there");
    assert_eq!((row().await.identity, row().await.pod_uid), (None, None));
    let account = Account { namespace: "nymph-system".into(), name: "nymph".into() };
    let proof = Proof { account, node_uid: Some("n".into()), pod: "nymph-1".into(), pod_uid: "p".into() };
    store.open_session(OpenSession { proof: Some(proof), ..opening("node1", vec![]) }).await.expect("it opens");
    let proven = row().await;
    assert_eq!(
        (proven.identity.as_deref(), proven.node_uid.as_deref(), proven.pod_uid.as_deref()),
        (Some("nymph-system/nymph"), Some("n"), Some("p"))
    );
    session(store, "node1").await;
    assert_eq!(row().await.identity, None, "what is proved is proved anew with each session");
}
