//! The commands against `lakeshore serve` itself, as a process of its own on loopback.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::covers::covers;
use crate::lakeshore::{Ended, Lakeshore, lakeshore};

/// A running server.
struct Server {
    process: Child,
    url: String,
    token: String,
    folder: TempDir,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let token = token(&folder.path().join("data"), &["--name", "me", "--admin"]);
        let (process, url) = serve(&folder.path().join("data"));
        Self { process, url, token, folder }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Asks it to stop, and starts it again on the same data folder.
    fn restart(&mut self) {
        assert_eq!(stop(&mut self.process), Some(0));
        (self.process, self.url) = serve(&self.data());
    }

    fn call(&self, arguments: &[&str]) -> Lakeshore {
        lakeshore(arguments).env("LAKESHORE_URL", &self.url).env("LAKESHORE_TOKEN", &self.token)
    }

    /// Runs a command that must succeed.
    fn ok(&self, arguments: &[&str]) -> Ended {
        let ended = self.call(arguments).run();
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
        ended
    }

    /// A provider of a cluster that no daemon has dialled in from.
    fn with_provider(self) -> Self {
        self.ok(&["clusters", "enroll", "c1"]);
        self.ok(&["providers", "add", "gpu", "--launcher", "Kube", "--kwarg", "dispatch=daemon", "--kwarg", "cluster=c1", "--kwarg", "image=123"]);
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill(); // it may have ended
        let _ = self.process.wait();
    }
}

/// Starts a server, and waits until it says that it listens.
fn serve(data: &std::path::Path) -> (Child, String) {
    let data = data.to_str().expect("is text");
    let mut process = Command::new(env!("CARGO_BIN_EXE_lakeshore"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data", data])
        .env_clear()
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut log = BufReader::new(process.stderr.take().expect("is a pipe"));
    let mut story = String::new();
    let url = loop {
        let begin = story.len();
        assert!(log.read_line(&mut story).expect("is text") > 0, "the server ended:\n{story}");
        let line: Value = serde_json::from_str(&story[begin..]).unwrap_or_default();
        if line["message"] == "Control plane listens" {
            break format!("http://{}", line["address"].as_str().expect("says where"));
        }
    };
    // Whatever else it logs must find a reader, or it would stand still one day.
    std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
    (process, url)
}

fn stop(process: &mut Child) -> Option<i32> {
    kill(Pid::from_raw(process.id().try_into().expect("a pid")), Signal::SIGTERM).expect("is running");
    process.wait().expect("ends").code()
}

/// Makes a token in the data folder, and reads it from stdout.
fn token(data: &std::path::Path, arguments: &[&str]) -> String {
    let ended = lakeshore(&[&["tokens", "create", "--data", data.to_str().expect("is text")], arguments].concat()).run();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let token = ended.stdout().trim_end().to_owned();
    assert!(token.starts_with("lakeshore_") && token.len() == 53, "{token}");
    token
}

#[test]
fn the_first_steps_work_as_help_teaches_them() {
    covers!("S107", "S108", "S109", "S111");
    let server = Server::start().with_provider();
    assert!(server.ok(&["version"]).stdout().contains(&format!("at {}\n", server.url)));
    server.ok(&["modes", "add", "py", "--field", "provider=gpu", "--field", r#"env={"A":"on","B":"1"}"#]);
    let lists = ["providers list", "modes list", "modes show py", "providers instances gpu", "instances", "daemons", "namespaces list"];
    let shown: Vec<_> = lists.iter().map(|list| (list, server.ok(&list.split(' ').collect::<Vec<_>>()))).collect();
    let shown: Vec<_> = shown.iter().map(|(list, ended)| format!("$ lakeshore {list}\n{}{}", ended.stdout(), ended.stderr)).collect();
    insta::assert_snapshot!(shown.join("\n"));
    let provider: Value = serde_json::from_slice(&server.ok(&["providers", "show", "gpu", "-o", "json"]).stdout).expect("is JSON");
    assert_eq!(provider.pointer("/kwargs/image"), Some(&Value::from("123")), "a text stays a text");
    server.ok(&["modes", "remove", "py"]);
    server.ok(&["providers", "remove", "gpu"]);
    assert_eq!(server.ok(&["providers", "list"]).stdout(), "");
}

#[test]
fn what_is_wrong_is_refused_with_a_name_and_a_cure() {
    covers!("S62", "S69", "S110", "S120", "A15", "A20", "A28", "A29");
    let server = Server::start().with_provider();
    server.ok(&["providers", "add", "bare", "--launcher", "Kube", "--kwarg", "dispatch=daemon", "--kwarg", "cluster=c1"]);
    server.ok(&["modes", "add", "bare", "--field", "provider=bare"]);
    server.ok(&["modes", "add", "py", "--field", "provider=gpu"]);
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
        let ended = server.call(&arguments).file("hello.py", "print(1)\n").run();
        assert_eq!((ended.code, ended.stdout()), (Some(code), ""), "{arguments:?}: {}", ended.stderr);
        assert!(
            ended.stderr.starts_with("error: ") && words.iter().all(|word| ended.stderr.contains(word)),
            "{arguments:?} {words:?}: {}",
            ended.stderr
        );
    }
    assert_eq!(server.ok(&["instances"]).stdout(), "", "nothing was launched");
}

#[test]
fn a_restart_forgets_nothing() {
    covers!("S132");
    let mut server = Server::start().with_provider();
    let lists = |server: &Server| {
        ["providers list", "clusters list", "tokens list"].map(|list| server.ok(&list.split(' ').collect::<Vec<_>>()).stdout().to_owned())
    };
    let before = lists(&server);
    server.restart();
    assert_eq!(lists(&server), before);
}

#[test]
fn a_token_sees_its_namespaces_until_it_is_revoked() {
    let server = Server::start();
    server.ok(&["namespaces", "create", "team-a"]);
    let token = token(&server.data(), &["--name", "ci", "--namespace", "team-a"]); // by the socket: the server runs
    let list =
        |namespace: &str| lakeshore(&["-n", namespace, "instances"]).env("LAKESHORE_URL", &server.url).env("LAKESHORE_TOKEN", &token).run().code;
    assert_eq!((list("team-a"), list("default")), (Some(0), Some(1)));
    let tokens: Value = serde_json::from_slice(&server.ok(&["tokens", "list", "-o", "json"]).stdout).expect("is JSON");
    let id = tokens.as_array().into_iter().flatten().find(|row| row["name"] == "ci").and_then(|row| row["id"].as_str()).expect("is listed");
    server.ok(&["tokens", "revoke", id]);
    assert_eq!(list("team-a"), Some(1));
}

#[test]
fn a_second_server_on_the_same_folder_is_refused() {
    let server = Server::start();
    let ended = lakeshore(&["serve", "--listen", "127.0.0.1:0", "--data", server.data().to_str().expect("is text")]).run();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("error: cannot serve: open the store: the data folder"), "{}", ended.stderr);
}
