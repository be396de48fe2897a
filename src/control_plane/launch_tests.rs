use serde_json::json;

use super::*;

fn fields(value: Value) -> Fields {
    value.as_object().expect("an object").clone()
}

fn resolved(body: Value) -> Result<Resolved, Invalid> {
    resolve(&fields(body), None, &fields(json!({"image": "python:3", "dispatch": "daemon", "cluster": "c"})))
}

#[test]
fn the_launch_wins_over_the_mode_and_the_mode_over_the_provider_key_by_key() {
    let provider = fields(json!({"image": "p:1", "namespace": "from-provider", "env": {"A": "p", "B": "p"}, "workdir": "none"}));
    let mode = fields(json!({"image": "m:1", "env": {"A": "m"}}));
    let launch = fields(json!({"script": "x", "image": "l:1"}));
    let work = resolve(&launch, Some(&mode), &provider).expect("it is valid").work;
    assert_eq!((work.image.as_str(), work.namespace.as_deref(), work.workdir), ("l:1", Some("from-provider"), Workdir::None));
    assert_eq!(work.env, [EnvVar { name: "A".into(), value: "m".into() }], "env is replaced whole, not merged");
    let null = fields(json!({"script": "x", "image": null}));
    assert_eq!(resolve(&null, Some(&mode), &provider).expect("it is valid").work.image, "m:1", "null is not given");
}

#[test]
fn numbers_and_booleans_become_text_as_javascript_prints_them() {
    let text = r#"{"1":1.0,"2":1e21,"3":1e-7,"4":9007199254740993,"5":-0.0,"6":true,"7":"","8":0.1,"9":123456789.125,"10":1e20,"11":0.000001,"12":-2.5e-9,
        "13":1.5e300,"14":-12,"15":100.5,"16":123e18}"#;
    let numbers: BTreeMap<String, Value> = serde_json::from_str(text).expect("JSON");
    let shown = |key: &str| scalar(&numbers[key]).expect("a scalar");
    for (key, expected) in [
        ("1", "1"),
        ("2", "1e+21"),
        ("3", "1e-7"),
        ("4", "9007199254740993"),
        ("5", "0"),
        ("6", "true"),
        ("7", ""),
        ("8", "0.1"),
        ("9", "123456789.125"),
        ("10", "100000000000000000000"),
        ("11", "0.000001"),
        ("12", "-2.5e-9"),
        ("13", "1.5e+300"),
        ("14", "-12"),
        ("15", "100.5"),
        ("16", "123000000000000000000"),
    ] {
        assert_eq!(shown(key), expected);
    }
}

#[test]
fn env_values_that_are_no_scalars_are_skipped_and_a_secret_is_refused() {
    let env = |value: Value| resolved(json!({"script": "x", "env": value})).map(|resolved| resolved.work.env);
    let kept = env(json!({"KEPT": "v", "EMPTY": "", "NULL": null, "LIST": [1], "OBJECT": {"a": 1}})).expect("it is valid");
    let names: Vec<_> = kept.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(BTreeMap::from_iter(names.iter().map(|name| (*name, ()))).into_keys().collect::<Vec<_>>(), ["EMPTY", "KEPT"]);
    let refused = env(json!({"TOKEN": {"$secret": "name"}})).expect_err("a secret cannot be read here");
    assert_eq!(refused.field, "env.TOKEN");
    assert!(refused.cure.expect("a cure").contains("env_secrets"));
    for bad in ["1A", "", "A B", "A=B", "naïve", ".."] {
        assert!(env(json!({bad: "v"})).is_err(), "{bad:?}");
    }
    for good in ["A", "_a", "A.b-c", ".a", "a1"] {
        assert!(env(json!({good: "v"})).is_ok(), "{good:?}");
    }
}

#[test]
fn tags_become_labels_and_can_never_set_a_reserved_one() {
    let labels = |value: Value| resolved(json!({"script": "x", "tags": value})).map(|resolved| resolved.work.labels);
    let made = labels(json!({
        "Team Name": "Data & Science", "n": 1.0, "flag": true, "empty": "",
        "lakeshore": "false", " Lakeshore": "false", "LAKESHORE.NAMESPACE": "x", "lakeshore.provider ": "x", "lakeshore.other": "x"
    }))
    .expect("it is valid");
    let expected = [("empty", ""), ("flag", "true"), ("n", "1"), ("team-name", "data-science")];
    assert_eq!(made, expected.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect());
    for (bad, field) in [
        (json!({"日本": "x"}), "tags.日本"),
        (json!({"k": "日本"}), "tags.k"),
        (json!({"k": null}), "tags.k"),
        (json!({"k": ["x"]}), "tags.k"),
        (json!(["k"]), "tags"),
    ] {
        assert_eq!(labels(bad).expect_err("it cannot be a label").field, field);
    }
    assert!(labels(json!({"a b": "1", "a-b": "2"})).expect_err("two tags, one label").message.contains("a-b"));
}

#[test]
fn each_mistake_is_told_with_its_field() {
    use InvalidCode::{FieldNotBuilt, InvalidField, MissingImage, MissingScript, UnknownField};
    for (body, code, field) in [
        (json!({}), MissingScript, "script"),
        (json!({"script": 1}), InvalidField, "script"),
        (json!({"script": "a\u{0}b"}), InvalidField, "script"),
        (json!({"script": "x".repeat(MAX_SCRIPT + 1)}), InvalidField, "script"),
        (json!({"script": "x", "image": ""}), MissingImage, "image"),
        (json!({"script": "x", "image": " \t"}), MissingImage, "image"),
        (json!({"script": "x", "image": 1}), InvalidField, "image"),
        (json!({"script": "x", "image": "a b"}), InvalidField, "image"),
        (json!({"script": "x", "namespace": "A"}), InvalidField, "namespace"),
        (json!({"script": "x", "namespace": 1}), InvalidField, "namespace"),
        (json!({"script": "x", "node": "A_"}), InvalidField, "node"),
        (json!({"script": "x", "node": []}), InvalidField, "node"),
        (json!({"script": "x", "env": []}), InvalidField, "env"),
        (json!({"script": "x", "env": {"A": "\u{0}"}}), InvalidField, "env.A"),
        (json!({"script": "x", "args": "x"}), InvalidField, "args"),
        (json!({"script": "x", "args": ["a", 1]}), InvalidField, "args.1"),
        (json!({"script": "x", "args": ["\u{0}"]}), InvalidField, "args.0"),
        (json!({"script": "x", "resources": "1Gi"}), InvalidField, "resources"),
        (json!({"script": "x", "workdir": "hostPath"}), InvalidField, "workdir"),
        (json!({"script": "x", "privileged": true}), UnknownField, "privileged"),
        (json!({"script": "x", "cluster": "other"}), UnknownField, "cluster"),
        (json!({"script": "x", "kubeconfig": "/etc/x"}), FieldNotBuilt, "kubeconfig"),
    ] {
        let error = resolved(body.clone()).expect_err(&body.to_string());
        assert_eq!((error.code, error.field.as_str()), (code, field));
    }
    let no_image = resolve(&fields(json!({"script": "x"})), None, &Fields::new()).expect_err("no image anywhere");
    assert_eq!(no_image.code, MissingImage);
}

#[test]
fn a_provider_or_mode_is_checked_when_it_is_stored() {
    assert!(check(Origin::Provider, &fields(json!({"dispatch": "daemon", "cluster": "c", "image": "a:1", "name": "unread"}))).is_ok());
    for (origin, value, field) in [
        (Origin::Provider, json!({"args": []}), "args"),
        (Origin::Provider, json!({"script": "x"}), "script"),
        (Origin::Mode, json!({"cluster": "c"}), "cluster"),
        (Origin::Mode, json!({"env": "A=1"}), "env"),
        (Origin::Mode, json!({"tolerations": []}), "tolerations"),
    ] {
        assert_eq!(check(origin, &fields(value)).expect_err("it cannot be used").field, field);
    }
}

#[test]
fn resources_pass_through_untouched() {
    let resources = json!({"limits": {"nvidia.com/gpu": 1, "memory": "1Gi"}, "bogus": {"deep": [1, 2.5, null]}});
    let work = resolved(json!({"script": "x", "resources": resources})).expect("it is valid").work;
    assert_eq!(work.resources, Some(resources));
}
