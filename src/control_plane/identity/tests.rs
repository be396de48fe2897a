//! Proofs that hold, and every way in which one does not.

#[path = "../../../tests/support/issuer.rs"]
mod issuer;
mod judgement;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use issuer::Issuer;
use jiff::Timestamp;
use proptest::prelude::*;
use ring::hmac;
use serde_json::{Value, json};

use super::keys::{KeySet, KeysRefused};
use super::token::{Expected, Refused, Verified, verify};
use super::{MAX_TOKEN, SKEW};
use crate::control_plane::store::Account;
use crate::types::Placement;
use crate::wire::ClusterKeys;

const NOW: i64 = 1_780_000_000;
const URL: &str = "https://kubernetes.default.svc.cluster.local";

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn node(name: &str) -> Placement {
    Placement::Node(name.parse().expect("a node name"))
}

fn account() -> Account {
    Account { namespace: "nymph-system".into(), name: "nymph".into() }
}

fn said(keys: Value) -> ClusterKeys {
    ClusterKeys { issuer: URL.into(), jwks: json!({ "keys": keys }) }
}

fn keys(issuer: &Issuer) -> KeySet {
    KeySet::read(&ClusterKeys { issuer: issuer.url.clone(), jwks: issuer.jwks() }).expect("keys that can be used")
}

fn judge(token: &str, keys: &KeySet, placement: &Placement, now: i64) -> Result<Verified, Refused> {
    verify(token, keys, &Expected { audience: "lakeshore", account: Some(&account()), placement, now: at(now) })
}

/// A token on node1 with one claim changed; `null` takes it away.
fn changed(issuer: &Issuer, pointer: &str, value: Value) -> Value {
    let mut claims = issuer.claims("node1", NOW);
    let (parent, name) = pointer.rsplit_once('/').expect("a pointer");
    let parent = claims.pointer_mut(parent).expect("it is there").as_object_mut().expect("an object");
    match value {
        Value::Null => drop(parent.remove(name)),
        value => drop(parent.insert(name.into(), value)),
    }
    claims
}

#[test]
fn a_token_of_the_recorded_keys_says_who_its_bearer_is() {
    for issuer in [Issuer::new(URL, "k"), Issuer::rsa(URL, "k")] {
        let token = issuer.token(&issuer.claims("node1", NOW));
        let verified = judge(&token, &keys(&issuer), &node("node1"), NOW).expect("it holds");
        assert_eq!(verified.account, account());
        assert_eq!(
            (verified.node_uid.as_deref(), verified.pod.as_str(), verified.pod_uid.as_str()),
            (Some("uid-of-node1"), "nymph-node1", "pod-on-node1")
        );
        assert_eq!(verified.expires, at(NOW + 3600));
        let one = issuer.token(&changed(&issuer, "/aud", json!("lakeshore")));
        assert!(judge(&one, &keys(&issuer), &node("node1"), NOW).is_ok(), "an audience alone is a list of one");
        assert!(judge(&token, &keys(&issuer), &Placement::Cluster, NOW).is_ok(), "the cluster's daemon may run on any node");
    }
}

#[test]
fn each_wrong_claim_is_refused_for_what_it_is() {
    let issuer = Issuer::new(URL, "k");
    let other = Account { namespace: "nymph-system".into(), name: "default".into() };
    let stranger =
        json!({"namespace": "nymph-system", "serviceaccount": {"name": "default"}, "pod": {"name": "p", "uid": "u"}, "node": {"name": "node1"}});
    let mut anybodys = changed(&issuer, "/kubernetes.io", stranger);
    anybodys["sub"] = json!("system:serviceaccount:nymph-system:default");
    for (claims, refused) in [
        (changed(&issuer, "/aud", json!(["https://kubernetes.default.svc"])), Refused::Audience("https://kubernetes.default.svc".into())),
        (changed(&issuer, "/aud", json!([])), Refused::Audience(String::new())),
        (changed(&issuer, "/iss", json!("https://another")), Refused::Issuer("https://another".into())),
        (changed(&issuer, "/exp", json!(NOW - SKEW)), Refused::Expired(at(NOW - SKEW))),
        (changed(&issuer, "/nbf", json!(NOW + SKEW + 1)), Refused::NotYet(at(NOW + SKEW + 1))),
        (changed(&issuer, "/iat", json!(NOW + SKEW + 1)), Refused::NotYet(at(NOW + SKEW + 1))),
        (changed(&issuer, "/exp", json!(i64::MAX)), Refused::Malformed("its times")),
        (changed(&issuer, "/exp", json!("soon")), Refused::Malformed("its claims")),
        (changed(&issuer, "/exp", Value::Null), Refused::Malformed("its claims")),
        (changed(&issuer, "/aud", Value::Null), Refused::Malformed("its claims")),
        (changed(&issuer, "/kubernetes.io", Value::Null), Refused::Malformed("its claims")),
        (
            changed(&issuer, "/sub", json!("system:serviceaccount:nymph-system:other")),
            Refused::Malformed("its subject is not the ServiceAccount that it names"),
        ),
        (anybodys, Refused::Account { found: other, wanted: account() }),
        (changed(&issuer, "/kubernetes.io/pod", Value::Null), Refused::NoPod),
        (changed(&issuer, "/kubernetes.io/pod", json!({"name": "p"})), Refused::NoPod),
        (changed(&issuer, "/kubernetes.io/node", Value::Null), Refused::Node { found: String::new(), wanted: "node1".into() }),
        (changed(&issuer, "/kubernetes.io/node/name", json!("node2")), Refused::Node { found: "node2".into(), wanted: "node1".into() }),
    ] {
        assert_eq!(judge(&issuer.token(&claims), &keys(&issuer), &node("node1"), NOW), Err(refused), "{claims}");
    }
}

#[test]
fn clocks_may_differ_by_a_minute() {
    let issuer = Issuer::new(URL, "k");
    let token = issuer.token(&issuer.claims("node1", NOW));
    for (now, holds) in [(NOW - SKEW - 1, false), (NOW - SKEW, true), (NOW + 3600 + SKEW - 1, true), (NOW + 3600 + SKEW, false)] {
        assert_eq!(judge(&token, &keys(&issuer), &node("node1"), now).is_ok(), holds, "{now}");
    }
}

#[test]
fn a_signature_of_another_kind_or_key_is_none() {
    let (issuer, other) = (Issuer::new(URL, "k"), Issuer::new(URL, "k"));
    let claims = issuer.claims("node1", NOW);
    let refused = |token: &str| judge(token, &keys(&issuer), &node("node1"), NOW).expect_err("it does not hold");
    assert_eq!(refused(&other.token(&claims)), Refused::Signature, "another cluster's key under the same name");
    assert_eq!(refused(&Issuer::new(URL, "x").token(&claims)), Refused::UnknownKey("x".into()));
    for alg in ["none", "None", "HS256", "RS256", "ES384", "PS256", "EdDSA", ""] {
        assert_eq!(refused(&issuer.sign(&json!({"alg": alg, "kid": "k"}), &claims)), Refused::Algorithm(alg.into()));
    }
    assert_eq!(refused(&issuer.sign(&json!({"alg": "ES256"}), &claims)), Refused::Malformed("its header"), "no key is named");
    assert_eq!(
        refused(&issuer.sign(&json!({"alg": "ES256", "kid": "k", "crit": ["x"]}), &claims)),
        Refused::Malformed("its header wants an extension")
    );
    // What the header brings along is never used.
    let brought = json!({"alg": "ES256", "kid": "k", "jwk": other.jwk(), "jku": "https://evil.example/jwks", "x5u": "https://evil.example"});
    assert_eq!(refused(&other.sign(&brought, &claims)), Refused::Signature);
}

#[test]
fn the_public_key_as_a_shared_secret_signs_nothing() {
    let issuer = Issuer::rsa(URL, "k");
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let jwk = issuer.jwk();
    let modulus = URL_SAFE_NO_PAD.decode(jwk["n"].as_str().expect("text")).expect("base64");
    for secret in [jwk.to_string().into_bytes(), issuer.jwks().to_string().into_bytes(), modulus, Vec::new()] {
        for alg in ["HS256", "RS256"] {
            let message = format!("{}.{}", encode(&json!({"alg": alg, "kid": "k"})), encode(&issuer.claims("node1", NOW)));
            let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), message.as_bytes());
            let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag));
            let wanted = if alg == "HS256" { Refused::Algorithm("HS256".into()) } else { Refused::Signature };
            assert_eq!(judge(&token, &keys(&issuer), &node("node1"), NOW), Err(wanted));
        }
    }
    let unsigned = format!("{}.{}.", encode(&json!({"alg": "none", "kid": "k"})), encode(&issuer.claims("node1", NOW)));
    assert_eq!(judge(&unsigned, &keys(&issuer), &node("node1"), NOW), Err(Refused::Algorithm("none".into())));
}

#[test]
fn what_is_too_long_is_not_even_decoded() {
    let issuer = Issuer::new(URL, "k");
    let long = issuer.token(&changed(&issuer, "/jti", json!("x".repeat(MAX_TOKEN))));
    assert_eq!(judge(&long, &keys(&issuer), &node("node1"), NOW), Err(Refused::TooLong));
    let set = said(json!([issuer.jwk(), {"kid": "x".repeat(super::MAX_KEYS)}]));
    assert_eq!(KeySet::read(&set), Err(KeysRefused::TooLong));
}

#[test]
fn a_key_set_has_a_key_that_can_be_used_and_no_name_twice() {
    let (one, two) = (Issuer::new(URL, "one"), Issuer::rsa(URL, "two"));
    let read = |keys| KeySet::read(&said(keys));
    assert_eq!(read(json!([one.jwk(), two.jwk()])).expect("both").names(), ["one", "two"]);
    assert_eq!(read(json!([two.jwk(), one.jwk()])), read(json!([one.jwk(), two.jwk()])), "the order says nothing");
    assert_ne!(read(json!([one.jwk()])), read(json!([one.jwk(), two.jwk()])));
    assert_ne!(read(json!([one.jwk()])), read(json!([Issuer::new(URL, "one").jwk()])), "another key of the same name");
    assert_eq!(read(json!([one.jwk(), Issuer::new(URL, "one").jwk()])), Err(KeysRefused::SharedName));
    let with = |name: &str, value: Value| {
        let mut jwk = two.jwk();
        jwk[name] = value;
        jwk
    };
    let short = URL_SAFE_NO_PAD.encode([0xff; 128]);
    for unusable in [
        json!({"kty": "oct", "kid": "k", "k": "AAAA", "alg": "HS256"}),
        with("use", json!("enc")),
        with("alg", json!("HS256")),
        with("alg", json!("none")),
        with("n", json!(short)),
        with("n", json!("no base64!")),
        with("kid", json!("")),
        json!({"kty": "EC", "crv": "P-521", "kid": "k", "x": "AA", "y": "AA"}),
        json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": "AA", "y": "AA"}),
    ] {
        assert_eq!(read(json!([unusable])), Err(KeysRefused::NoneUsable), "{unusable}");
        assert_eq!(read(json!([unusable, one.jwk()])).expect("the other").names(), ["one"]);
    }
    assert_eq!(read(json!([])), Err(KeysRefused::NoneUsable));
    assert_eq!(KeySet::read(&ClusterKeys { issuer: URL.into(), jwks: json!({"keys": "x"}) }), Err(KeysRefused::Malformed));
    assert_eq!(KeySet::read(&ClusterKeys { issuer: String::new(), jwks: one.jwks() }), Err(KeysRefused::Issuer));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic_or_holds(token in "[A-Za-z0-9_.{}\":=-]{0,200}") {
        let issuer = Issuer::new(URL, "k");
        prop_assert!(judge(&token, &keys(&issuer), &node("node1"), NOW).is_err());
    }

    #[test]
    fn a_changed_byte_makes_it_worthless(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let issuer = Issuer::new(URL, "k");
        let token = issuer.token(&issuer.claims("node1", NOW));
        let mut changed = token.clone().into_bytes();
        let place = place.index(changed.len());
        changed[place] = byte;
        let changed = String::from_utf8_lossy(&changed).into_owned();
        prop_assert_eq!(judge(&changed, &keys(&issuer), &node("node1"), NOW).is_ok(), changed == token);
    }
}
