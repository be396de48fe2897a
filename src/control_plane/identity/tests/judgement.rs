//! Who gets in, what is recorded, and whose word changes the keys.

use secrecy::SecretString;

use super::*;
use crate::control_plane::identity::{Change, Circumstances, Claim, Recorded, Refusal, Rotation, Unproven, Verdict, after_hello, before_upgrade};
use crate::control_plane::store::{Place, Trust};
use crate::types::Role;
use crate::wire::Hello;

/// Nothing speaks against it, and nothing for it.
const QUIET: Circumstances<'static> =
    Circumstances { audience: "lakeshore", now: Timestamp::UNIX_EPOCH, fresh: false, proven_live: false, others_live: false };

fn circumstances(change: impl FnOnce(&mut Circumstances<'static>)) -> Circumstances<'static> {
    let mut circumstances = Circumstances { now: at(NOW), ..QUIET };
    change(&mut circumstances);
    circumstances
}

fn hello(keys: Option<ClusterKeys>, uid: Option<&str>) -> Hello {
    Hello {
        version: "0.1.0".into(),
        role: Role::Node,
        cluster_uid: uid.map(str::to_owned),
        boot_id: "b".into(),
        node: None,
        keys,
        policy_digest: "d".into(),
        capabilities: vec![],
        held: vec![],
    }
}

fn claim(placement: Placement, token: Option<String>) -> Claim {
    Claim { placement, token: token.map(SecretString::from) }
}

fn on(issuer: &Issuer, name: &str) -> Claim {
    claim(node(name), Some(issuer.token(&issuer.claims(name, NOW))))
}

/// The cluster's daemon, of an account and in a Kubernetes namespace.
fn of_cluster(issuer: &Issuer, namespace: &str, account: &str) -> Claim {
    let mut claims = issuer.claims("node1", NOW);
    claims["sub"] = json!(format!("system:serviceaccount:{namespace}:{account}"));
    claims["kubernetes.io"]["namespace"] = json!(namespace);
    claims["kubernetes.io"]["serviceaccount"]["name"] = json!(account);
    claim(Placement::Cluster, Some(issuer.token(&claims)))
}

fn told(issuer: &Issuer) -> Option<ClusterKeys> {
    Some(ClusterKeys { issuer: issuer.url.clone(), jwks: issuer.jwks() })
}

fn trust(issuer: &Issuer) -> Trust {
    Trust {
        cluster_uid: Some("uid".into()),
        issuer: issuer.url.clone(),
        jwks: issuer.jwks(),
        recorded_at: at(NOW - 1000),
        accounts: [(Role::Node, account())].into(),
    }
}

#[test]
fn the_first_proof_of_a_cluster_records_its_keys_uid_and_account() {
    let issuer = Issuer::new(URL, "k");
    let fresh = circumstances(|c| c.fresh = true);
    let claim = on(&issuer, "node1");
    assert_eq!(before_upgrade(&claim, None, &fresh), None, "hello brings the keys");
    match after_hello(&claim, None, &fresh, &hello(told(&issuer), Some("uid"))) {
        Verdict::Record { verified, trust: recorded, what: Recorded::First } => {
            assert_eq!(verified.account, account());
            assert_eq!(recorded, Trust { recorded_at: at(NOW), ..trust(&issuer) });
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_keys_a_cluster_is_unproven_and_says_why() {
    let issuer = Issuer::new(URL, "k");
    let fresh = circumstances(|c| c.fresh = true);
    let judged = |claim: &Claim, keys, circumstances: &_| match after_hello(claim, None, circumstances, &hello(keys, None)) {
        Verdict::Unproven(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(judged(&on(&issuer, "node1"), None, &fresh), Unproven::NoKeys);
    assert_eq!(judged(&claim(node("node1"), None), told(&issuer), &fresh), Unproven::Token(Refused::Missing));
    let foreign = ClusterKeys { issuer: URL.into(), jwks: Issuer::new(URL, "k").jwks() };
    assert_eq!(judged(&on(&issuer, "node1"), Some(foreign), &fresh), Unproven::Token(Refused::Signature));
    // A thief of a used token does not record keys of his own over daemons at work.
    let used = circumstances(|c| c.others_live = true);
    assert_eq!(judged(&on(&issuer, "node1"), told(&issuer), &used), Unproven::UsedToken);
    let quiet = circumstances(|_| ());
    assert!(matches!(after_hello(&on(&issuer, "node1"), None, &quiet, &hello(told(&issuer), None)), Verdict::Record { what: Recorded::First, .. }));
}

#[test]
fn once_keys_are_recorded_only_a_proof_by_them_gets_in_and_nothing_falls_back() {
    let (issuer, other) = (Issuer::new(URL, "k"), Issuer::new(URL, "k"));
    let (known, used) = (trust(&issuer), circumstances(|_| ()));
    let good = on(&issuer, "node1");
    assert!(matches!(before_upgrade(&good, Some(&known), &used), Some(Verdict::Proven(_))));
    assert!(matches!(after_hello(&good, Some(&known), &used, &hello(None, Some("uid"))), Verdict::Proven(_)));
    let stolen = claim(node("node2"), Some(issuer.token(&issuer.claims("node1", NOW))));
    let wrong_node = Refused::Node { found: "node1".into(), wanted: "node2".into() };
    for (claim, refused) in [
        (claim(node("node1"), None), Refused::Missing),
        (claim(node("node1"), Some("x".into())), Refused::Malformed("it has no three parts")),
        (on(&other, "node1"), Refused::Signature),
        (stolen, wrong_node),
    ] {
        let verdict = Verdict::Refused(Refusal::Proof(refused));
        assert_eq!(before_upgrade(&claim, Some(&known), &used), Some(verdict.clone()));
        assert_eq!(after_hello(&claim, Some(&known), &used, &hello(told(&other), Some("uid"))), verdict, "whatever keys it brings");
    }
}

#[test]
fn a_fresh_token_replaces_the_keys_only_while_nobody_who_proved_himself_is_connected() {
    let (old, new) = (Issuer::new(URL, "old"), Issuer::new("https://another", "new"));
    let known = trust(&old);
    let fresh = circumstances(|c| c.fresh = true);
    let claim = on(&new, "node1");
    assert_eq!(before_upgrade(&claim, Some(&known), &fresh), None);
    match after_hello(&claim, Some(&known), &fresh, &hello(told(&new), Some("uid"))) {
        Verdict::Record { trust, what: Recorded::Replaced, .. } => assert_eq!((trust.issuer.as_str(), trust.jwks), ("https://another", new.jwks())),
        other => panic!("{other:?}"),
    }
    let contested = circumstances(|c| (c.fresh, c.proven_live) = (true, true));
    let refused = Refused::UnknownKey("new".into());
    let verdict = after_hello(&claim, Some(&known), &contested, &hello(told(&new), Some("uid")));
    assert_eq!(verdict, Verdict::Refused(Refusal::Contested(refused.clone())));
    let verdict = after_hello(&claim, Some(&known), &fresh, &hello(None, Some("uid")));
    assert_eq!(verdict, Verdict::Refused(Refusal::Proof(refused)), "without keys nothing replaces them");
    assert!(matches!(after_hello(&on(&old, "node1"), Some(&known), &contested, &hello(None, None)), Verdict::Proven(_)));
}

#[test]
fn another_cluster_with_the_same_keys_is_refused() {
    let issuer = Issuer::new(URL, "k");
    let known = trust(&issuer);
    let other = hello(told(&issuer), Some("another"));
    let refusal = Refusal::OtherCluster { found: "another".into(), recorded: "uid".into() };
    let claim = on(&issuer, "node1");
    assert_eq!(after_hello(&claim, Some(&known), &circumstances(|_| ()), &other), Verdict::Refused(refusal.clone()));
    let contested = circumstances(|c| (c.fresh, c.proven_live) = (true, true));
    assert_eq!(after_hello(&claim, Some(&known), &contested, &other), Verdict::Refused(refusal));
    match after_hello(&claim, Some(&known), &circumstances(|c| c.fresh = true), &other) {
        Verdict::Record { trust, what: Recorded::Replaced, .. } => assert_eq!(trust.cluster_uid.as_deref(), Some("another")),
        other => panic!("{other:?}"),
    }
    // One that may not read its UID is not taken for another; one that may read it now has it recorded.
    assert!(matches!(after_hello(&claim, Some(&known), &circumstances(|_| ()), &hello(None, None)), Verdict::Proven(_)));
    let unknown = Trust { cluster_uid: None, ..known };
    match after_hello(&claim, Some(&unknown), &circumstances(|_| ()), &other) {
        Verdict::Record { trust, what: Recorded::More, .. } => assert_eq!(trust.cluster_uid.as_deref(), Some("another")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_second_role_records_its_account_in_the_namespace_of_the_first() {
    let issuer = Issuer::new(URL, "k");
    let (known, used) = (trust(&issuer), circumstances(|_| ()));
    let own = of_cluster(&issuer, "nymph-system", "nymph-cluster");
    assert!(matches!(before_upgrade(&own, Some(&known), &used), Some(Verdict::Proven(_))));
    let recorded = match after_hello(&own, Some(&known), &used, &hello(None, Some("uid"))) {
        Verdict::Record { trust, what: Recorded::More, .. } => trust,
        other => panic!("{other:?}"),
    };
    assert_eq!(recorded.accounts[&Role::Cluster].to_string(), "nymph-system/nymph-cluster");
    assert_eq!((recorded.accounts[&Role::Node].clone(), recorded.jwks.clone()), (account(), issuer.jwks()));
    let refused = |claim: &Claim, trust: &Trust| match before_upgrade(claim, Some(trust), &used) {
        Some(Verdict::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    let elsewhere = of_cluster(&issuer, "default", "nymph-cluster");
    assert!(matches!(refused(&elsewhere, &known), Refusal::OtherNamespace { .. }));
    // A stolen node's daemon does not become the cluster's.
    assert_eq!(refused(&of_cluster(&issuer, "nymph-system", "nymph"), &known), Refusal::OtherRole(account()));
    let second = of_cluster(&issuer, "nymph-system", "another");
    assert!(matches!(refused(&second, &recorded), Refusal::Proof(Refused::Account { .. })), "once recorded, it is the one");
}

#[test]
fn a_change_of_keys_counts_when_a_second_place_tells_the_same() {
    let (old, new, evil) = (Issuer::new(URL, "old"), Issuer::new(URL, "new"), Issuer::new(URL, "evil"));
    let known = trust(&old);
    let place = |name: &str| Place { cluster: "c1".into(), placement: node(name) };
    let set = |issuers: &[&Issuer]| said(issuers.iter().map(|issuer| issuer.jwk()).collect());
    let rotation = Rotation::default();
    let tell = |name: &str, keys: &ClusterKeys| rotation.told(&place(name), &known, keys, false, at(NOW));
    assert_eq!(tell("node1", &set(&[&old])), Change::None);
    // One stolen daemon may say what it likes, as often as it likes.
    for _ in 0..3 {
        assert!(matches!(tell("node1", &set(&[&old, &evil])), Change::Proposed | Change::StillProposed));
        assert_eq!(tell("node1", &set(&[&evil])), Change::Proposed);
    }
    let both = set(&[&old, &new]);
    assert_eq!(tell("node2", &both), Change::Proposed);
    assert_eq!(tell("node2", &both), Change::StillProposed, "the same place twice is one voice");
    assert_eq!(tell("node1", &set(&[&evil])), Change::StillProposed, "and does not drown what others say");
    let other_cluster = Place { cluster: "c2".into(), placement: node("node3") };
    assert_eq!(rotation.told(&other_cluster, &known, &both, false, at(NOW)), Change::Proposed, "another cluster is no second voice");
    let same_in_another_order = set(&[&new, &old]);
    match tell("node3", &same_in_another_order) {
        Change::Confirmed(changed) => assert_eq!(changed, Trust { jwks: same_in_another_order.jwks, recorded_at: at(NOW), ..known.clone() }),
        other => panic!("{other:?}"),
    }
    let alone = Rotation::default();
    assert!(matches!(alone.told(&place("node1"), &known, &set(&[&new]), true, at(NOW)), Change::Confirmed(_)), "a cluster of one place");
    let elsewhere = ClusterKeys { issuer: "https://another".into(), jwks: new.jwks() };
    assert!(matches!(alone.told(&place("node1"), &known, &elsewhere, true, at(NOW)), Change::Refused(_)), "the issuer stays");
    let useless = ClusterKeys { issuer: URL.into(), jwks: json!({"keys": []}) };
    assert!(matches!(alone.told(&place("node1"), &known, &useless, true, at(NOW)), Change::Refused(_)));
}
