//! Where server, token and namespace come from, and what is said when they are wrong.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::covers::covers;
use crate::lakeshore::{Lakeshore, TOKEN, lakeshore};
use crate::play::{Play, Script};

const FILE: &str = ".config/lakeshore/config.yaml";

#[test]
fn flag_environment_and_file_are_asked_in_this_order() {
    let play = Play::start(Script::default());
    let file = format!("server: {}\nnamespace: file\ntoken: lakeshore_file\n", play.url());
    let call = |call: Lakeshore| {
        let ended = call.file(FILE, &file).file("token", "lakeshore_flag\n").run();
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let last = play.seen().pop().expect("a request");
        (last.line, last.authorization.expect("a token"))
    };
    let expect = |namespace: &str, token: &str| (format!("GET /v1/namespaces/{namespace}/instances"), format!("Bearer lakeshore_{token}"));
    let env = |call: Lakeshore| call.env("LAKESHORE_NAMESPACE", "env").env("LAKESHORE_TOKEN", "lakeshore_env");
    assert_eq!(call(lakeshore(&["instances"])), expect("file", "file"));
    assert_eq!(call(env(lakeshore(&["instances"]))), expect("env", "env"));
    assert_eq!(call(env(lakeshore(&["instances", "-n", "flag", "--token-file", "token"]))), expect("flag", "flag"));
    // A variable that is set and empty is as good as not set.
    assert_eq!(call(lakeshore(&["instances"]).env("LAKESHORE_NAMESPACE", "").env("LAKESHORE_TOKEN", "")), expect("file", "file"));
}

#[test]
fn a_fault_in_the_configuration_file_names_file_and_key() {
    for (name, file) in
        [("unknown key", "sever: http://x\n"), ("wrong type", "token: [a, b]\n"), ("not yaml", "server: 'x\n"), ("a list", "- server\n")]
    {
        let call = lakeshore(&["daemons"]).file(FILE, file);
        let home = call.path("");
        let ended = call.run();
        assert_eq!(ended.code, Some(2), "{name}");
        let text = ended.stderr.replace(home.to_str().expect("is text"), "HOME/");
        insta::assert_snapshot!(format!("config {name}").replace(' ', "_"), text);
    }
}

#[test]
fn a_token_that_others_can_read_is_warned_about() {
    let play = Play::start(Script::default());
    let call = lakeshore(&["daemons"]).file(FILE, format!("server: {}\ntoken: {TOKEN}\n", play.url()));
    std::fs::set_permissions(call.path(FILE), std::fs::Permissions::from_mode(0o644)).expect("is ours");
    let ended = call.run();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stderr.contains("others may read it: chmod 600 "), "{}", ended.stderr);
}

#[test]
fn a_missing_token_says_how_to_make_one() {
    let ended = lakeshore(&["daemons"]).run();
    assert_eq!(ended.code, Some(2));
    insta::assert_snapshot!(ended.stderr, @r#"
    error: no token is set for http://127.0.0.1:7420
      cure: where the server runs, `lakeshore tokens create --data DIR --name NAME --admin` prints one; set it as LAKESHORE_TOKEN or by --token-file
    "#);
}

#[test]
fn a_server_that_is_not_there_is_named_with_where_it_was_set() {
    covers!("S120", "S130");
    let address = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port that is free again");
    let ended = lakeshore(&["daemons"]).to(&format!("http://{address}")).run();
    assert_eq!((ended.code, ended.stdout()), (Some(3), ""));
    insta::with_settings!({filters => vec![(r"127\.0\.0\.1:\d+", "ADDRESS")]}, { insta::assert_snapshot!(ended.stderr, @r#"
    error: cannot reach the control plane at http://ADDRESS: Connection refused (os error 111)
      cure: start one with `lakeshore serve`, or set another URL by --server, LAKESHORE_URL or `server` in the configuration file (this one is from LAKESHORE_URL)
    "#); });
}

#[test]
fn tls_that_is_not_spoken_there_is_recognised() {
    let play = Play::start(Script::default());
    let ended = lakeshore(&["daemons"]).to(&play.url().replace("http", "https")).run();
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.contains("try http:// in its URL"), "{}", ended.stderr);
}

#[test]
fn a_refusal_is_shown_in_the_servers_words_with_its_cure() {
    covers!("S120");
    let problem = |status: u16, body: serde_json::Value| {
        let play = Play::start(Script { answer: Some((status, body)), ..Script::default() });
        let ended = lakeshore(&["providers", "show", "gpu"]).to(&play.url()).run();
        format!("{} {}", ended.code.expect("an exit code"), ended.stderr)
    };
    let answers = [
        problem(
            404,
            serde_json::json!({"code": "provider_not_found", "detail": "provider \"gpu\" does not exist in namespace \"default\"", "cure": "`lakeshore providers list` shows those that do"}),
        ),
        problem(401, serde_json::json!({"code": "unauthorized", "title": "No valid token was given", "detail": ""})),
        problem(400, serde_json::json!({"code": "invalid_field", "title": "A field has a value that cannot be used", "field": "image"})),
        problem(503, serde_json::json!({"code": "no_live_daemon", "detail": "no daemon of cluster \"c1\" is connected"})),
        problem(502, serde_json::json!("a proxy's page")),
        problem(302, serde_json::json!(null)),
    ];
    insta::with_settings!({filters => vec![(r"127\.0\.0\.1:\d+", "ADDRESS")]}, { insta::assert_snapshot!(answers.join("\n"), @r#"
    1 error: provider "gpu" does not exist in namespace "default"
      cure: `lakeshore providers list` shows those that do

    1 error: No valid token was given
      cure: the token came from LAKESHORE_TOKEN; where the server runs, `lakeshore tokens create --data DIR --name NAME --admin` makes a new one

    2 error: A field has a value that cannot be used (field `image`)

    3 error: no daemon of cluster "c1" is connected

    3 error: the control plane answered 502 Bad Gateway

    3 error: cannot understand the answer of http://ADDRESS: 302 Found to somewhere else; set the server to where it really is
    "#); });
}

#[test]
fn a_machine_without_authorities_can_use_plain_http() {
    let play = Play::start(Script::default());
    let ended = lakeshore(&["daemons"]).to(&play.url()).env("SSL_CERT_FILE", "/nowhere").env("SSL_CERT_DIR", "/nowhere").run();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "no daemon has connected yet\n"));
}

#[test]
fn a_ca_file_that_is_none_is_named() {
    for (content, expected) in [("", "holds no certificate"), ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "is not PEM")] {
        let ended = lakeshore(&["daemons", "--ca-file", "ca.crt"]).to("https://localhost:1").file("ca.crt", content).run();
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.contains("the CA file ca.crt") && ended.stderr.contains(expected), "{}", ended.stderr);
    }
}

#[test]
fn a_proxy_is_not_asked_for_this_machines_own_server() {
    let play = Play::start(Script::default());
    let ended = lakeshore(&["daemons"]).to(&play.url()).env("HTTP_PROXY", "http://127.0.0.1:1").env("http_proxy", "http://127.0.0.1:1").run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
}

#[test]
fn a_proxy_is_asked_for_servers_elsewhere() {
    covers!("S124");
    let proxy = Play::start(Script::default());
    let ended = lakeshore(&["daemons"]).to("http://lakeshore.invalid/base").env("HTTP_PROXY", &proxy.url()).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert_eq!(proxy.lines("GET"), ["GET http://lakeshore.invalid/base/v1/daemons"]);
}
