//! Table tests of [`super::Policy::judge`]'s verdicts.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::policy::{Policy, RejectionCode, parse_dispatch};

const POLICY: &str = r#"
version: 1
run_namespaces: [nymph-runs, extra]
default_namespace: extra
images: ["localhost/*", "docker.io/library/python:3*"]
workdir: {kinds: [host_path]}
"#;

fn dispatch(change: impl FnOnce(&mut LaunchDispatch)) -> Dispatch {
    let mut launch = LaunchDispatch {
        namespace: Some("nymph-runs".into()),
        image: "localhost/python:1".into(),
        script_base64: LaunchDispatch::encode_script("print(1)\n"),
        args: vec![],
        env: vec![],
        resources: None,
        labels: BTreeMap::new(),
        workdir: Workdir::HostPath,
    };
    change(&mut launch);
    let caller = Caller { namespace: "default".into(), provider: "My Provider".into(), user: "ada".into() };
    Dispatch { version: 1, caller, work: Work::Launch(launch) }
}

fn judge(dispatch: &Dispatch) -> Result<Admitted, Rejection> {
    Policy::parse(POLICY).expect("a good policy").judge(dispatch)
}

fn env(name: &str, value: &str) -> EnvVar {
    EnvVar { name: name.into(), value: value.into() }
}

#[test]
fn a_good_dispatch_is_admitted_with_its_image_in_full_and_its_namespace_filled_in() {
    let admitted = judge(&dispatch(|l| {
        l.namespace = None;
        l.image = "python:3.12".into();
        l.env = vec![env("A b", "$x"), env("EMPTY", "")];
        l.args = vec![String::new(), "-v".into()];
        l.labels.insert("team".into(), String::new());
        l.resources = Some(json!({"limits": {"nvidia.com/gpu": 1}, "bogus": true}));
    }))
    .expect("all of it is allowed");
    assert_eq!(admitted.namespace().as_str(), "extra");
    assert_eq!(admitted.image().as_str(), "docker.io/library/python:3.12");
    assert_eq!(admitted.env(), [("A b".to_owned(), "$x".to_owned()), ("EMPTY".to_owned(), String::new())]);
    assert_eq!(admitted.resources().expect("passed through")["bogus"], json!(true));
    assert_eq!(admitted.script(), "print(1)\n");
}

type Change = fn(&mut LaunchDispatch);

#[test]
fn each_rule_of_the_owner_refuses_and_names_itself_the_asked_the_allowed_and_who_can_change_it() {
    let table: [(Change, &str, &[&str]); 5] = [
        (|l| l.namespace = Some("kube-system".into()), "run_namespaces", &["\"kube-system\"", "\"nymph-runs\", \"extra\""]),
        (|l| l.image = "alpine".into(), "images", &["\"docker.io/library/alpine:latest\"", "\"localhost/*\""]),
        (|l| l.image = "python".into(), "images", &["\"docker.io/library/python:latest\""]),
        (|l| l.image = "evil.example/localhost/python:1".into(), "images", &["\"evil.example/localhost/python:1\""]),
        (|l| l.workdir = Workdir::None, "workdir.kinds", &["\"none\"", "\"host_path\""]),
    ];
    for (change, rule, words) in table {
        let rejection = judge(&dispatch(change)).expect_err(rule);
        assert_eq!((rejection.code, rejection.rule.as_str()), (RejectionCode::PolicyDenied, rule));
        for word in words.iter().chain(&["owner", "policy file", rule]) {
            assert!(rejection.message.contains(word), "{word} is missing in: {}", rejection.message);
        }
    }
}

#[test]
fn what_cannot_work_in_any_cluster_is_refused_with_the_fields_name() {
    let table: [(Change, &str, &str); 22] = [
        (|l| l.namespace = Some(String::new()), "namespace", "not a valid Kubernetes namespace"),
        (|l| l.namespace = Some("../etc".into()), "namespace", "not a valid Kubernetes namespace"),
        (|l| l.image = String::new(), "image", "not a valid image reference"),
        (|l| l.image = "a b".into(), "image", "not a valid image reference"),
        (|l| l.script_base64 = "?".into(), "script", "not base64"),
        (|l| l.script_base64 = "AA==".into(), "script", "NUL byte at offset 0"),
        (|l| l.script_base64 = "/w==".into(), "script", "not UTF-8"),
        (|l| l.args = vec!["a".into(), "b\0".into()], "args", "args[1] has a NUL byte"),
        (|l| l.args = vec!["x".repeat(MAX_ARGUMENT)], "args", "args[0] has 131072 bytes"),
        (|l| l.env = vec![env("", "x")], "env", "cannot name an environment variable"),
        (|l| l.env = vec![env("A=B", "x")], "env", "cannot name an environment variable"),
        (|l| l.env = vec![env("É", "x")], "env", "cannot name an environment variable"),
        (|l| l.env = vec![env("A\n", "x")], "env", "cannot name an environment variable"),
        (|l| l.env = vec![env("A", "x\0")], "env", "the value of A has a NUL byte"),
        (|l| l.env = vec![env("A", "1"), env("A", "2")], "env", "A is given twice"),
        (|l| l.env = vec![env("NAME", &"x".repeat(MAX_ARGUMENT - 5))], "env", "NAME and its value take 131072 bytes"),
        (|l| _ = l.labels.insert("lakeshore".into(), "x".into()), "labels", "reserved"),
        (|l| _ = l.labels.insert("lakeshore.provider".into(), "x".into()), "labels", "reserved"),
        (|l| _ = l.labels.insert("app.kubernetes.io/name".into(), "x".into()), "labels", "reserved"),
        (|l| _ = l.labels.insert("a b".into(), "x".into()), "labels", "not a label key"),
        (|l| _ = l.labels.insert("team".into(), "-x".into()), "labels", "not a label value"),
        (|l| l.resources = Some(json!(["limits"])), "resources", "must be an object"),
    ];
    for (change, field, words) in table {
        let rejection = judge(&dispatch(change)).expect_err(words);
        assert_eq!((rejection.code, rejection.rule.as_str()), (RejectionCode::Invalid, field), "{}", rejection.message);
        assert!(rejection.message.contains(words), "{words} is missing in: {}", rejection.message);
    }
}

#[test]
fn what_just_fits_into_the_kernels_limit_is_admitted() {
    let judged = judge(&dispatch(|l| {
        l.env = vec![env("NAME", &"x".repeat(MAX_ARGUMENT - 6))];
        l.args = vec!["x".repeat(MAX_ARGUMENT - 1)];
    }));
    assert!(judged.is_ok(), "{judged:?}");
}

#[test]
fn every_reserved_key_is_refused_and_a_lookalike_is_not() {
    for key in ["nymph.dev/x", "x.nymph.dev/y", "kubernetes.io/x", "topology.kubernetes.io/zone", "k8s.io/x", "lakeshore.anything"] {
        let rejection = judge(&dispatch(|l| _ = l.labels.insert(key.into(), "x".into()))).expect_err(key);
        assert!(rejection.message.contains("reserved"), "{}", rejection.message);
    }
    for key in ["lakeshore-team", "mykubernetes.io/x", "my-nymph.dev", "Lakeshore"] {
        assert!(judge(&dispatch(|l| _ = l.labels.insert(key.into(), "x".into()))).is_ok(), "{key}");
    }
}

#[test]
fn a_caller_that_no_label_can_tell_apart_is_refused() {
    for (namespace, provider, user, field) in [
        ("日本", "p", "u", "caller.namespace"),
        ("n", "", "u", "caller.provider"),
        ("n", "p\n", "u", "caller.provider"),
        ("n", "p", "", "caller.user"),
        ("n", "p", "a\nb", "caller.user"),
    ] {
        let mut dispatch = dispatch(|_| ());
        dispatch.caller = Caller { namespace: namespace.into(), provider: provider.into(), user: user.into() };
        assert_eq!(judge(&dispatch).expect_err(field).rule, field);
    }
}

#[test]
fn a_refusal_and_a_debug_print_never_hold_a_value() {
    let canary = "canary-secret";
    let rejections = [
        judge(&dispatch(|l| l.env = vec![env("A", &format!("{canary}\0"))])),
        judge(&dispatch(|l| l.args = vec![format!("{canary}\0")])),
        judge(&dispatch(|l| l.env = vec![env("A", &canary.repeat(20_000))])),
        judge(&dispatch(|l| l.resources = Some(json!(canary)))),
    ];
    for rejection in rejections {
        assert!(!rejection.expect_err("all are refused").message.contains(canary));
    }
    let admitted = judge(&dispatch(|l| {
        l.env = vec![env("A", canary)];
        l.args = vec![canary.into()];
        l.script_base64 = LaunchDispatch::encode_script(canary);
    }))
    .expect("allowed");
    assert!(!format!("{admitted:?}").contains(canary));
}

/// Texts near what is valid, and far from it.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9]{1,9}", "[a-z0-9./:@_-]{0,20}", ".{0,20}", "(lakeshore|nymph\\.dev|kubernetes\\.io)[./]?[a-z]{0,4}", Just("\0".to_owned())]
}

fn dispatches() -> impl Strategy<Value = Dispatch> {
    let env = proptest::collection::vec((texts(), texts()).prop_map(|(name, value)| EnvVar { name, value }), 0..3);
    let labels = proptest::collection::btree_map(texts(), texts(), 0..3);
    let script = prop_oneof![texts().prop_map(|text| LaunchDispatch::encode_script(&text)), texts()];
    let resources = prop_oneof![Just(None), Just(Some(json!({"limits": {"cpu": 1}}))), Just(Some(json!(1)))];
    let workdir = prop_oneof![Just(Workdir::HostPath), Just(Workdir::None)];
    let launch = (proptest::option::of(texts()), texts(), script, proptest::collection::vec(texts(), 0..3), env, resources, labels, workdir);
    let caller = (texts(), texts(), texts());
    (caller, launch).prop_map(|((namespace, provider, user), (kns, image, script_base64, args, env, resources, labels, workdir))| Dispatch {
        version: 1,
        caller: Caller { namespace, provider, user },
        work: Work::Launch(LaunchDispatch { namespace: kns, image, script_base64, args, env, resources, labels, workdir }),
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_sent_only_what_keeps_every_rule_is_admitted(dispatch in dispatches()) {
        let open = "version: 1\nrun_namespaces: [nymph-runs, extra]\nimages: [\"*\"]\n";
        for policy in [POLICY, open] {
            let policy = Policy::parse(policy).expect("a good policy");
            let Ok(admitted) = policy.judge(&dispatch) else { continue };
            prop_assert!(policy.run_namespaces().contains(admitted.namespace()));
            prop_assert!(admitted.image().as_str().contains('/'));
            prop_assert!(!admitted.script().contains('\0') && !admitted.args().iter().any(|arg| arg.contains('\0')));
            prop_assert!(admitted.env().iter().all(|(name, value)| !name.contains(['=', '\0']) && !value.contains('\0')));
            for key in admitted.labels().keys() {
                prop_assert!(key != "lakeshore" && !key.contains("nymph.dev/") && !key.contains("kubernetes.io/") && !key.starts_with("lakeshore."), "{}", key);
            }
            prop_assert!(!slug(admitted.provider().as_str()).is_empty() && !slug(admitted.caller_namespace().as_str()).is_empty());
        }
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), dispatch in dispatches(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        prop_assert!(parse_dispatch(&bytes).is_err());
        let mut encoded = dispatch.encode();
        prop_assert_eq!(parse_dispatch(&encoded).expect("it was encoded"), dispatch);
        let at = at.index(encoded.len());
        encoded[at] = byte;
        if let Err(rejection) = parse_dispatch(&encoded) {
            prop_assert_eq!(rejection.rule, "dispatch");
        }
    }
}

#[test]
fn a_deep_or_endless_dispatch_is_refused() {
    for bytes in ["[".repeat(1 << 20), format!(r#"{{"version":1,"work":{}"#, r#"{"a":"#.repeat(100_000)), "9".repeat(1 << 20), String::new()] {
        assert_eq!(parse_dispatch(bytes.as_bytes()).expect_err("no dispatch").rule, "dispatch");
    }
}
