//! The commands against `lakeshore serve` itself, as a process of its own on loopback. No daemon is there.

use serde_json::Value;

use crate::covers::covers;
use crate::lakeshore::{Ended, Lakeshore, lakeshore};
use crate::plane::Plane;

/// A call of the server, as its admin.
pub(crate) fn call(plane: &Plane, arguments: &[&str]) -> Lakeshore {
    lakeshore(arguments).env("LAKESHORE_URL", &format!("http://{}", plane.address)).env("LAKESHORE_TOKEN", &plane.token)
}

/// A command that must succeed.
pub(crate) fn ok(plane: &Plane, arguments: &[&str]) -> Ended {
    let ended = call(plane, arguments).run();
    assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    ended
}

/// `ok`, of a command line without quotes.
fn list(plane: &Plane, line: &str) -> Ended {
    ok(plane, &line.split(' ').collect::<Vec<_>>())
}

/// A server with provider `gpu`, of a cluster that no daemon has dialled in from.
async fn with_gpu() -> Plane {
    let plane = Plane::start().await;
    ok(&plane, &["clusters", "enroll", "c1"]);
    ok(&plane, &["providers", "add", "gpu", "--launcher", "Kube", "--kwarg", "dispatch=daemon", "--kwarg", "cluster=c1", "--kwarg", "image=123"]);
    plane
}

/// Makes a token in the data folder, and reads it from stdout.
fn token(plane: &Plane, arguments: &[&str]) -> String {
    let data = plane.data();
    let ended = lakeshore(&[&["tokens", "create", "--data", data.to_str().expect("is text")], arguments].concat()).run();
    assert_eq!((ended.code, ended.stderr.lines().count()), (Some(0), 1), "{}", ended.stderr);
    let token = ended.stdout().trim_end().to_owned();
    assert!(token.starts_with("lakeshore_") && token.len() == 53, "{token}");
    token
}

#[tokio::test]
async fn the_first_steps_work_as_help_teaches_them() {
    covers!("S107", "S108", "S109", "S111");
    let server = with_gpu().await;
    assert!(list(&server, "version").stdout().contains(&format!("at http://{}\n", server.address)));
    ok(&server, &["modes", "add", "py", "--field", "provider=gpu", "--field", r#"env={"A":"on","B":"1"}"#]);
    let lists = ["providers list", "modes list", "modes show py", "providers instances gpu", "instances", "daemons", "namespaces list"];
    let shown: Vec<_> = lists.iter().map(|&line| (line, list(&server, line))).collect();
    let shown: Vec<_> = shown.iter().map(|(line, ended)| format!("$ lakeshore {line}\n{}{}", ended.stdout(), ended.stderr)).collect();
    insta::assert_snapshot!(shown.join("\n"));
    let provider: Value = serde_json::from_slice(&ok(&server, &["providers", "show", "gpu", "-o", "json"]).stdout).expect("is JSON");
    assert_eq!(provider.pointer("/kwargs/image"), Some(&Value::from("123")), "a text stays a text");
    ok(&server, &["modes", "remove", "py"]);
    ok(&server, &["providers", "remove", "gpu"]);
    assert_eq!(ok(&server, &["providers", "list"]).stdout(), "");
}

#[tokio::test]
async fn what_is_wrong_is_refused_with_a_name_and_a_cure() {
    covers!("S62", "S69", "S110", "S120", "A15", "A20", "A28", "A29");
    let server = with_gpu().await;
    ok(&server, &["providers", "add", "bare", "--launcher", "Kube", "--kwarg", "dispatch=daemon", "--kwarg", "cluster=c1"]);
    ok(&server, &["modes", "add", "bare", "--field", "provider=bare"]);
    ok(&server, &["modes", "add", "py", "--field", "provider=gpu"]);
    let daemon = ["--kwarg", "dispatch=daemon"];
    let add = |name: &'static str, launcher: &'static str, more: &[&'static str]| {
        [&["providers", "add", name, "--launcher", launcher], more, &daemon].concat()
    };
    // Each message names the object, what is wrong with it, and what to do; the words around them are the server's own.
    for (arguments, code, words) in [
        (add("gpu", "Kube", &["--kwarg", "cluster=c1"]), 1, &["\"gpu\"", "exists", "--force"][..]),
        (add("GPU", "Kube", &["--kwarg", "cluster=c1"]), 1, &["\"GPU\"", "\"gpu\"", "cure:"]),
        (add("a", "k8s", &["--kwarg", "cluster=c1"]), 2, &["\"k8s\"", "Kube"]),
        (add("a", "EC2", &["--kwarg", "cluster=c1"]), 2, &["\"EC2\"", "not built", "Kube"]),
        (add("a", "Kube", &["--kwarg", "cluster=nowhere"]), 2, &["\"nowhere\"", "lakeshore clusters list"]),
        (add("a", "Kube", &["--kwarg", "cluster=c1", "--kwarg", "imagee=x"]), 2, &["imagee", "image"]),
        (vec!["providers", "add", "a", "--launcher", "Kube", "--kwarg", "cluster=c1"], 2, &["direct", "--kwarg dispatch=daemon"]),
        (vec!["modes", "add", "m", "--field", "provider=nowhere"], 2, &["\"m\"", "\"nowhere\"", "lakeshore providers list"]),
        (vec!["providers", "show", "nowhere"], 1, &["\"nowhere\"", "lakeshore providers list"]),
        (vec!["-n", "nowhere", "instances"], 1, &["\"nowhere\""]),
        (vec!["providers", "test", "gpu"], 1, &["gpu", "no daemon", "lakeshore daemons"]),
        (vec!["logs", "lakeshore-00000000"], 1, &["lakeshore-00000000", "lakeshore instances"]),
        (vec!["launch", "nowhere", "hello.py"], 125, &["\"nowhere\"", "lakeshore modes list"]),
        (vec!["launch", "bare", "hello.py"], 125, &["image", "cure:"]),
        (vec!["launch", "py", "hello.py"], 125, &["no daemon", "\"c1\"", "lakeshore daemons"]),
        (vec!["launch", "py", "hello.py", "--node", "node-9"], 125, &["node-9", "\"c1\"", "lakeshore daemons"]),
    ] {
        let ended = call(&server, &arguments).file("hello.py", "print(1)\n").run();
        assert_eq!((ended.code, ended.stdout()), (Some(code), ""), "{arguments:?}: {}", ended.stderr);
        assert!(
            ended.stderr.starts_with("error: ") && words.iter().all(|word| ended.stderr.contains(word)),
            "{arguments:?} {words:?}: {}",
            ended.stderr
        );
    }
    assert_eq!(ok(&server, &["instances"]).stdout(), "", "nothing was launched");
}

#[tokio::test]
async fn a_restart_forgets_nothing() {
    covers!("S132");
    let mut server = with_gpu().await;
    let lists = |server: &Plane| ["providers list", "clusters list", "tokens list"].map(|line| list(server, line).stdout().to_owned());
    let before = lists(&server);
    assert!(server.terminate(), "SIGTERM ends it with 0");
    server.run();
    assert_eq!(lists(&server), before);
}

#[tokio::test]
async fn a_token_sees_its_namespaces_until_it_is_revoked() {
    let server = Plane::start().await;
    ok(&server, &["namespaces", "create", "team-a"]);
    let token = token(&server, &["--name", "ci", "--namespace", "team-a"]); // by the socket: the server runs
    let list = |namespace: &str| call(&server, &["-n", namespace, "instances"]).env("LAKESHORE_TOKEN", &token).run().code;
    assert_eq!((list("team-a"), list("default")), (Some(0), Some(1)));
    let tokens: Value = serde_json::from_slice(&ok(&server, &["tokens", "list", "-o", "json"]).stdout).expect("is JSON");
    let id = tokens.as_array().into_iter().flatten().find(|row| row["name"] == "ci").and_then(|row| row["id"].as_str()).expect("is listed");
    ok(&server, &["tokens", "revoke", id]);
    assert_eq!(list("team-a"), Some(1));
}

#[tokio::test]
async fn a_second_server_on_the_same_folder_is_refused() {
    let server = Plane::start().await;
    let ended = lakeshore(&["serve", "--listen", "127.0.0.1:0", "--data", server.data().to_str().expect("is text")]).run();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("error: cannot serve: open the store: the data folder"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_private_authority_is_trusted_by_its_file_and_not_without() {
    covers!("S124");
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let file = |name: &str, pem: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).expect("is written");
        path.to_str().expect("is text").to_owned()
    };
    let (certificate, key) = (file("tls.crt", made.cert.pem()), file("tls.key", made.signing_key.serialize_pem()));
    let server = Plane::start_with(&["--tls-cert", &certificate, "--tls-key", &key]).await;
    let url = server.address.replace("127.0.0.1", "https://localhost");
    let daemons = |more: &[&str]| lakeshore(&[&["daemons"], more].concat()).env("LAKESHORE_URL", &url).env("LAKESHORE_TOKEN", &server.token).run();
    let trusted = daemons(&["--ca-file", &certificate]);
    assert_eq!(trusted.code, Some(0), "{}", trusted.stderr);
    let stranger = daemons(&[]);
    assert_eq!(stranger.code, Some(3), "{}", stranger.stderr);
    assert!(
        stranger.stderr.contains("cure: trust the authority that signed its certificate: --ca-file FILE or LAKESHORE_CA_FILE"),
        "{}",
        stranger.stderr
    );
    let plain = lakeshore(&["daemons"]).env("LAKESHORE_URL", &url.replace("https", "http")).env("LAKESHORE_TOKEN", &server.token).run();
    assert_eq!(plain.code, Some(3), "{}", plain.stderr);
}
