//! What each command asks of the control plane.

use serde_json::{Value, json};

use crate::covers::covers;
use crate::lakeshore::lakeshore;
use crate::play::{ID, Play, Script, instance};

/// Runs a command against a server that accepts everything; what it was asked last comes back.
fn asked(arguments: &[&str]) -> (String, Value) {
    let play = Play::start(Script { states: vec![instance("running", "running", "", None)], ..Script::default() });
    let ended = lakeshore(arguments).to(&play.url()).run();
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    let last = play.seen().pop().expect("a request");
    (last.line, last.body)
}

#[test]
fn a_provider_is_sent_with_its_kwargs() {
    covers!("S62", "S107", "S108");
    let (line, body) = asked(&[
        "providers",
        "add",
        "gpu",
        "--launcher",
        "Kube",
        "--kwarg",
        "dispatch=daemon",
        "--kwarg",
        "cluster=c=1",
        "--kwarg",
        "image=123",
        "--kwarg",
        "namespace=true",
        "--kwarg",
        r#"env={"A":"x=y","N":1}"#,
        "--kwarg",
        r#"resources={"limits":{"cpu":"500m"}}"#,
    ]);
    assert_eq!(line, "POST /v1/namespaces/default/providers");
    let kwargs = json!({"dispatch": "daemon", "cluster": "c=1", "image": "123", "namespace": "true", "env": {"A": "x=y", "N": 1}, "resources": {"limits": {"cpu": "500m"}}});
    assert_eq!(body, json!({"name": "gpu", "launcher": "Kube", "kwargs": kwargs}));
}

#[test]
fn a_mode_is_sent_with_its_provider_beside_its_fields() {
    covers!("S108", "S109");
    let (line, body) =
        asked(&["-n", "team a", "modes", "add", "py", "--field", "provider=gpu", "--field", "image=x", "--field", r#"tags={"team":"a"}"#]);
    assert_eq!(line, "POST /v1/namespaces/team%20a/modes");
    assert_eq!(body, json!({"name": "py", "provider": "gpu", "fields": {"image": "x", "tags": {"team": "a"}}}));
}

#[test]
fn a_wrong_field_is_refused_before_anything_is_sent() {
    covers!("S107", "S108", "S109", "S121");
    let play = Play::start(Script::default());
    for (arguments, expected) in [
        (&["providers", "add", "p", "--launcher", "Kube", "--kwarg", "image"][..], r#"--kwarg "image" has no `=`"#),
        (&["providers", "add", "p", "--launcher", "Kube", "--kwarg", "image=a", "--kwarg", "image=b"], "--kwarg image is given more than once"),
        (&["providers", "add", "p", "--launcher", "Kube", "--kwarg", "env={"], "--kwarg env must be a JSON object"),
        (&["modes", "add", "m", "--field", "provider=p", "--field", "node_selector=gpu"], "--field node_selector must be a JSON object"),
        (&["modes", "add", "m", "--field", "image=x"], "mode m names no provider: add --field provider=NAME"),
        (&["tokens", "create", "--name", "ci"], "--namespace NAME, or --admin"),
        (&["instances", "-n", "a", "-n", "b"], "--namespace is given more than once"),
    ] {
        let ended = lakeshore(arguments).to(&play.url()).run();
        assert_eq!(ended.code, Some(2), "{arguments:?}");
        assert!(ended.stderr.contains(expected), "{arguments:?}: {}", ended.stderr);
    }
    assert!(play.seen().is_empty(), "{:?}", play.seen());
}

#[test]
fn each_command_asks_for_its_own_thing() {
    covers!("S93", "S94", "S95", "S110", "S111");
    let delete = format!("DELETE /v1/namespaces/default/providers/demo%20provider/instances/{ID}");
    for (arguments, expected) in [
        (&["providers", "list"][..], "GET /v1/namespaces/default/providers"),
        (&["providers", "show", "a.b"], "GET /v1/namespaces/default/providers/a.b"),
        (&["providers", "remove", "a b"], "DELETE /v1/namespaces/default/providers/a%20b"),
        (&["providers", "instances", "gpu"], "GET /v1/namespaces/default/providers/gpu/instances"),
        (&["instances", "--provider", "gpu"], "GET /v1/namespaces/default/providers/gpu/instances"),
        (&["instances"], "GET /v1/namespaces/default/instances"),
        (&["modes", "list"], "GET /v1/namespaces/default/modes"),
        (&["modes", "show", "py"], "GET /v1/namespaces/default/modes/py"),
        (&["modes", "remove", "py"], "DELETE /v1/namespaces/default/modes/py"),
        (&["namespaces", "list"], "GET /v1/namespaces"),
        (&["namespaces", "create", "b"], "POST /v1/namespaces"),
        (&["clusters", "list"], "GET /v1/clusters"),
        (&["clusters", "revoke", "a b", "x"], "DELETE /v1/clusters/a%20b/tokens/x"),
        (&["daemons"], "GET /v1/daemons"),
        (&["tokens", "list"], "GET /v1/tokens"),
        (&["tokens", "revoke", "a/b"], "DELETE /v1/tokens/a%2Fb"),
        (&["stop", ID], &delete),
        (&["stop", ID, "--provider", "demo provider"], &delete),
    ] {
        assert_eq!(asked(arguments).0, expected, "{arguments:?}");
    }
}

#[test]
fn a_provider_that_exists_is_replaced_only_with_force() {
    covers!("A28");
    let conflict = json!({"code": "already_exists", "detail": "provider \"gpu\" exists already"});
    let play = Play::start(Script { answer: Some((409, conflict)), ..Script::default() });
    let ended = lakeshore(&["providers", "add", "gpu", "--launcher", "Kube"]).to(&play.url()).run();
    assert_eq!(ended.code, Some(1));
    assert_eq!(ended.stderr, "error: provider \"gpu\" exists already\n  cure: --force replaces it\n");
    assert!(play.lines("PUT").is_empty());
    lakeshore(&["providers", "add", "gpu", "--launcher", "Kube", "--force"]).to(&play.url()).run();
    assert_eq!(play.lines("PUT"), ["PUT /v1/namespaces/default/providers/gpu"]);
}

#[test]
fn an_empty_list_is_no_failure_and_says_so_beside_stdout() {
    covers!("S111");
    let play = Play::start(Script::default());
    let ended = lakeshore(&["providers", "instances", "gpu"]).to(&play.url()).run();
    assert_eq!((ended.code, ended.stdout(), ended.stderr.as_str()), (Some(0), "", "no instances\n"));
    for (format, expected) in [("json", "[]\n"), ("yaml", "[]\n")] {
        let ended = lakeshore(&["providers", "instances", "gpu", "-o", format]).to(&play.url()).run();
        assert_eq!((ended.code, ended.stdout()), (Some(0), expected));
    }
}

#[test]
fn a_list_is_shown_as_table_json_or_yaml() {
    covers!("S111");
    let rows = json!([instance("stopped", "exit_code", "evil \u{1b}[2J", Some(3)), instance("running", "running", "", None)]);
    let play = Play::start(Script { answer: Some((200, rows.clone())), ..Script::default() });
    let show = |format: &str| lakeshore(&["instances", "-o", format]).to(&play.url()).run();
    insta::assert_snapshot!("instances_table", show("table").stdout());
    insta::assert_snapshot!("instances_yaml", show("yaml").stdout());
    assert_eq!(serde_json::from_slice::<Value>(&show("json").stdout).expect("is JSON"), rows);
}

#[test]
fn a_test_of_a_provider_fails_when_a_check_does_or_nobody_is_there() {
    covers!("S110", "A29");
    let test = |answer: Value| {
        let play = Play::start(Script { answer: Some((200, answer)), ..Script::default() });
        let ended = lakeshore(&["providers", "test", "gpu"]).to(&play.url()).run();
        (ended.code.expect("an exit code"), format!("{}{}", ended.stdout(), ended.stderr))
    };
    let check = |ok: bool| json!({"name": "create pods", "ok": ok, "message": if ok { "" } else { "the Role lacks the verb" }});
    let (code, text) = test(json!({"ok": true, "daemons": [{"node": "n1", "connected": true, "ok": true, "items": [check(true)]}]}));
    assert_eq!(code, 0, "{text}");
    let (code, text) = test(
        json!({"ok": false, "daemons": [{"node": "n1", "role": "node", "connected": true, "ok": false, "items": [check(true), check(false)]}, {"node": null, "role": "cluster", "connected": false, "ok": false, "items": []}]}),
    );
    assert_eq!(code, 1);
    insta::assert_snapshot!("providers_test_failed", text);
    for nobody in [json!([]), json!([{"node": "n1", "connected": false, "ok": false, "items": []}])] {
        let (code, text) = test(json!({"ok": false, "daemons": nobody}));
        assert_eq!(code, 1);
        assert!(text.contains("no daemon of its cluster is connected"), "{text}");
    }
}

#[test]
fn an_enrolment_token_is_asked_for_with_its_end() {
    let token = json!({"id": "1", "name": "c1", "token": "the-new-one"});
    for (arguments, line, body) in [
        (&["clusters", "enroll", "c1"][..], "POST /v1/clusters", json!({"name": "c1", "expiresIn": null})),
        (&["clusters", "enroll", "c1", "--expires", "30d"], "POST /v1/clusters", json!({"name": "c1", "expiresIn": "30d"})),
        (&["clusters", "rotate", "c1", "--expires", "12h"], "POST /v1/clusters/c1/tokens", json!({"expiresIn": "12h"})),
    ] {
        let play = Play::start(Script { answer: Some((201, token.clone())), ..Script::default() });
        let ended = lakeshore(arguments).to(&play.url()).run();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let asked = play.seen().pop().expect("a request");
        assert_eq!((asked.line.as_str(), asked.body), (line, body));
    }
    let ended = lakeshore(&["clusters", "enroll", "c1", "--expires", "soon"]).run();
    assert!(ended.code == Some(2) && ended.stderr.contains("\"soon\" is not a time"), "{}", ended.stderr);
}

#[test]
fn a_new_token_is_alone_on_stdout() {
    for arguments in [&["clusters", "enroll", "c1"][..], &["clusters", "rotate", "c1"], &["tokens", "create", "--name", "ci", "-n", "a", "-n", "b"]] {
        let play = Play::start(Script { answer: Some((201, json!({"id": "1", "name": "x", "token": "the-new-one"}))), ..Script::default() });
        let ended = lakeshore(arguments).to(&play.url()).run();
        assert_eq!((ended.code, ended.stdout()), (Some(0), "the-new-one\n"), "{}", ended.stderr);
        assert!(ended.stderr.contains("shown only now"), "{}", ended.stderr);
    }
}
