//! One control plane, one daemon, one Node object and one run namespace for each test.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

pub(crate) use crate::shell::{Run, measured, run, run_command};

static NEXT: AtomicU32 = AtomicU32::new(1);

/// Everything that one test owns; gone when it is dropped.
pub(crate) struct World {
    /// Run namespace, where instances live.
    pub(crate) runs: String,
    /// Namespace of the daemon's account.
    pub(crate) system: String,
    pub(crate) node: String,
    pub(crate) folder: tempfile::TempDir,
    /// A second run namespace that policy allows and that does not exist.
    pub(crate) missing: String,
    /// What the daemon dials, when not the control plane itself.
    pub(crate) daemon_url: Option<String>,
    /// Name of the daemon's kubeconfig in the folder.
    pub(crate) kubeconfig: &'static str,
    /// Flags of `lakeshore serve` beyond those that every test wants.
    pub(crate) serve_flags: Vec<String>,
    port: u16,
    health_port: u16,
    server: Option<Child>,
    daemon: Option<Child>,
    /// An admin's token.
    pub(crate) token: String,
}

impl World {
    /// A world in which the daemon is connected and provider and mode `p` exist.
    pub(crate) fn new() -> Self {
        let world = Self::without_daemon();
        world.start_daemon_until_connected()
    }

    fn start_daemon_until_connected(mut self) -> Self {
        self.start_daemon();
        self.until_connected();
        self
    }

    /// Waits until the control plane shows the daemon as connected, and says how long it took.
    pub(crate) fn until_connected(&self) -> Duration {
        let connected = || {
            let daemons = self.lakeshore(&["daemons", "-o", "json"]);
            let daemons: Value = serde_json::from_slice(&daemons.stdout).ok()?; // the server may be down
            daemons.as_array()?.iter().any(|d| d["node"] == self.node.as_str() && d["connected"] == true).then_some(())
        };
        self.until("the daemon is connected", connected).1
    }

    pub(crate) fn without_daemon() -> Self {
        let n = format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let free_port = || std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        let (port, health_port) = (free_port(), free_port());
        let mut world = World {
            runs: format!("runs-{n}"),
            system: format!("system-{n}"),
            missing: format!("missing-{n}"),
            node: format!("node-{n}"),
            folder: tempfile::tempdir().expect("a temporary folder"),
            daemon_url: None,
            kubeconfig: "kubeconfig",
            serve_flags: Vec::new(),
            port,
            health_port,
            server: None,
            daemon: None,
            token: String::new(),
        };
        world.install();
        world.token =
            run(lakeshore_path(), &["tokens", "create", "--data", world.path("data").to_str().expect("text"), "--name", "test", "--admin"], None)
                .ok()
                .text()
                .trim()
                .to_owned();
        world.start_server();
        let enrolled = world.lakeshore(&["clusters", "enroll", "c", "-o", "json"]).ok().json();
        world.write("token", enrolled["token"].as_str().expect("a token"));
        world
            .lakeshore(&[
                "providers",
                "add",
                "p",
                "--launcher",
                "Kube",
                "--kwarg",
                "dispatch=daemon",
                "--kwarg",
                "cluster=c",
                "--kwarg",
                "image=localhost/python:1",
            ])
            .ok();
        world.lakeshore(&["modes", "add", "p", "--field", "provider=p"]).ok();
        world
    }

    /// The chart's own objects, so that the daemon has just the rights that the chart gives; and a Node.
    fn install(&self) {
        kubectl(&["create", "namespace", &self.system]).ok();
        let chart = format!("{}/charts/nymph", env!("CARGO_MANIFEST_DIR"));
        let namespace = format!("runNamespace.name={}", self.runs);
        let args = [
            "template",
            "nymph",
            &chart,
            "--kube-version",
            "1.37",
            "--namespace",
            &self.system,
            "--set",
            &namespace,
            "--set",
            "controlPlane.url=ws://127.0.0.1:1",
            "--set",
            "controlPlane.tokenSecret.name=none",
        ];
        let rendered = run("helm", &args, None).ok().text();
        run("kubectl", &["apply", "-f", "-"], Some(&rendered)).ok();
        kubectl(&["create", "serviceaccount", "default", "-n", &self.runs]).ok(); // its controller does not run here
        self.make_node();
        self.write("policy.yaml", &format!("version: 1\nrun_namespaces: [{}, {}]\nimages: [\"localhost/*\"]\n", self.runs, self.missing));
        self.account("kubeconfig", "nymph");
        self.write("identity", &self.projected("nymph", &self.node, "lakeshore"));
    }

    /// A Node object that is Ready, as a kubelet would make it.
    pub(crate) fn make_node(&self) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.node, "labels": {"kubernetes.io/hostname": self.node}}});
        run("kubectl", &["create", "-f", "-"], Some(&node.to_string())).ok();
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": null, "lastTransitionTime": null}], "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        kubectl(&["patch", "node", &self.node, "--subresource=status", "--type=merge", "-p", &ready.to_string()]).ok();
        kubectl(&["taint", "node", &self.node, "node.kubernetes.io/not-ready-"]); // admission adds it; there is no controller to take it away
    }

    /// A kubeconfig of one of the chart's accounts.
    pub(crate) fn account(&self, file: &str, account: &str) {
        let account = run("kubectl", &["create", "token", account, "--namespace", &self.system], None).ok().text();
        let mut config: Value = serde_json::from_slice(&kubectl(&["config", "view", "--raw", "--flatten", "-o", "json"]).ok().stdout).expect("JSON");
        config["users"] = json!([{"name": "daemon", "user": {"token": account.trim()}}]);
        config["contexts"][0]["context"]["user"] = json!("daemon");
        self.write(file, &config.to_string());
    }

    /// A token as the kubelet projects it: of an account, bound to a Pod of it on a node. `kubectl` plays the kubelet.
    pub(crate) fn projected(&self, account: &str, node: &str, audience: &str) -> String {
        let name = format!("{account}-on-{node}-for-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let spec = json!({"serviceAccountName": account, "nodeName": node, "containers": [{"name": "nymph", "image": "localhost/nymph:1"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.system}, "spec": spec});
        let made = run("kubectl", &["create", "-o", "json", "-f", "-"], Some(&pod.to_string())).ok().json();
        let uid = made["metadata"]["uid"].as_str().expect("a UID").to_owned();
        let bound = ["--bound-object-kind", "Pod", "--bound-object-name", &name, "--bound-object-uid", &uid];
        let of = ["create", "token", account, "--namespace", &self.system, "--audience", audience, "--duration", "12h"];
        kubectl(&[&of[..], &bound[..]].concat()).ok().text().trim().to_owned()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("room for a file");
    }

    pub(crate) fn url(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn start_server(&mut self) {
        let mut command = Command::new(lakeshore_path());
        command.args(["serve", "--listen", &self.url(), "--lost-after", "3s", "--launch-wait", "10s"]).arg("--data").arg(self.path("data"));
        command.args(&self.serve_flags);
        self.server = Some(spawn(&mut command, &self.path("server.log")));
        self.until("the control plane answers", || (self.lakeshore(&["namespaces", "list"]).code == Some(0)).then_some(()));
    }

    pub(crate) fn start_daemon(&mut self) {
        let url = self.daemon_url.clone().unwrap_or_else(|| format!("ws://{}", self.url()));
        self.start_daemon_with(&url, &self.path("token").clone());
    }

    pub(crate) fn start_daemon_with(&mut self, url: &str, token: &Path) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nymph"));
        // A test that takes the file away has a daemon without a proof.
        let identity = Some(self.path("identity")).filter(|path| path.exists());
        self.write(
            "nymph.yaml",
            &json!({"control_plane": {"url": url, "token_file": token, "identity_token_file": identity}, "node_name": self.node, "policy_file": self.path("policy.yaml"),
            "workdir": {"root": self.path("work")}, "health": {"listen": format!("127.0.0.1:{}", self.health_port)}, "kubeconfig": self.path(self.kubeconfig)})
            .to_string(),
        );
        command.args(["daemon", "--config"]).arg(self.path("nymph.yaml"));
        self.daemon = Some(spawn(&mut command, &self.path("daemon.log")));
    }

    /// SIGKILL.
    pub(crate) fn kill_daemon(&mut self) {
        end(self.daemon.take());
    }

    /// The daemon's process, for a test that kills it while the world is borrowed.
    pub(crate) fn take_daemon(&mut self) -> Child {
        self.health_port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port(); // it may live on
        self.daemon.take().expect("a daemon was started")
    }

    /// Process ids, for a test that kills or looks at one while the world is borrowed.
    pub(crate) fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("a daemon was started").id()
    }

    pub(crate) fn server_pid(&self) -> u32 {
        self.server.as_ref().expect("a server was started").id()
    }

    /// Whether the daemon's process runs still.
    pub(crate) fn daemon_lives(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(|daemon| daemon.try_wait().expect("it is ours").is_none())
    }

    /// The status of the daemon's `/healthz` or `/readyz`, and what it says.
    pub(crate) fn probe(&self, path: &str) -> Option<(u16, String)> {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.health_port)).ok()?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: daemon\r\nConnection: close\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// The admin's token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// SIGKILL.
    pub(crate) fn kill_server(&mut self) {
        end(self.server.take());
    }

    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn lakeshore(&self, args: &[&str]) -> Run {
        let mut command = Command::new(lakeshore_path());
        run_command(
            command
                .args(args)
                .env("LAKESHORE_URL", format!("http://{}", self.url()))
                .env("LAKESHORE_TOKEN", &self.token)
                .env("HOME", self.folder.path()),
            None,
        )
    }

    /// Launches in mode `p` without following.
    pub(crate) fn launch(&self, more: &[&str]) -> Run {
        let script = self.path("script.py");
        fs::write(&script, "print('hello')\n").expect("room for a script");
        let mut args = vec!["launch", "-o", "json", "--detach"];
        args.extend(more);
        args.extend(["p", script.to_str().expect("text")]);
        self.lakeshore(&args)
    }

    pub(crate) fn launched(&self) -> String {
        self.launch(&[]).ok().json()["instanceId"].as_str().expect("an instanceId").to_owned()
    }

    pub(crate) fn instance(&self, id: &str) -> Value {
        let all = self.lakeshore(&["instances", "-o", "json"]).ok().json();
        all.as_array().expect("a list").iter().find(|i| i["instanceId"] == id).unwrap_or_else(|| panic!("{id} is not among {all}")).clone()
    }

    pub(crate) fn until_state(&self, id: &str, state: &str, reason: &str) -> (Value, Duration) {
        self.until(&format!("{id} is {state}, {reason}"), || Some(self.instance(id)).filter(|i| i["state"] == state && i["reason"] == reason))
    }

    pub(crate) fn until<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> (T, Duration) {
        crate::shell::until(what, || self.story(), condition)
    }

    /// Plays the scheduler.
    pub(crate) fn bind(&self, id: &str) {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": id}, "target": {"apiVersion": "v1", "kind": "Node", "name": self.node}});
        let path = format!("/api/v1/namespaces/{}/pods/{id}/binding", self.runs);
        run("kubectl", &["create", "--raw", &path, "-f", "-"], Some(&binding.to_string())).ok();
    }

    /// Plays the kubelet.
    pub(crate) fn status(&self, id: &str, status: &Value) {
        kubectl(&["patch", "pod", id, "-n", &self.runs, "--subresource=status", "--type=merge", "-p", &json!({"status": status}).to_string()]).ok();
    }

    pub(crate) fn pods(&self) -> Vec<String> {
        let pods = kubectl(&["get", "pods", "-n", &self.runs, "-o", "jsonpath={.items[*].metadata.name}"]).ok().text();
        pods.split_whitespace().map(str::to_owned).collect()
    }

    pub(crate) fn story(&self) -> String {
        let mut story = String::new();
        for name in ["daemon.log", "server.log"] {
            let log = self.log(name);
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            let _ = writeln!(story, "--- {name}\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
        let _ = writeln!(story, "--- Pods\n{}", kubectl(&["get", "pods", "-n", &self.runs, "-o", "wide"]).text());
        let _ = writeln!(story, "--- instances\n{}", self.lakeshore(&["instances"]).text());
        story
    }
}

impl Drop for World {
    fn drop(&mut self) {
        end(self.daemon.take());
        end(self.server.take());
        let _ = kubectl(&["delete", "node", &self.node, "--wait=false"]);
    }
}

pub(crate) fn kubectl(args: &[&str]) -> Run {
    run("kubectl", args, None)
}

fn lakeshore_path() -> &'static str {
    env!("CARGO_BIN_EXE_lakeshore")
}

pub(crate) fn spawn(command: &mut Command, log: &Path) -> Child {
    let file = fs::OpenOptions::new().create(true).append(true).open(log).expect("room for a log");
    command.stdin(Stdio::null()).stdout(file.try_clone().expect("a handle")).stderr(file);
    command.spawn().expect("our own program starts")
}

pub(crate) fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The API server's audit log, as far as its lines hold `word`: what was asked of it, whatever we say of ourselves.
pub(crate) fn audit(word: &str) -> Vec<Value> {
    let log = run(&format!("{}/tests/cluster/cluster", env!("CARGO_MANIFEST_DIR")), &["logs", "audit"], None).ok();
    log.text().lines().filter(|line| line.contains(word)).filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How often a Pod of this name was created (answers 201).
pub(crate) fn creates(id: &str) -> usize {
    let created = |e: &&Value| {
        e["verb"] == "create" && e["objectRef"]["resource"] == "pods" && e["objectRef"]["subresource"].is_null() && e["responseStatus"]["code"] == 201
    };
    let named = |e: &&Value| e["objectRef"]["name"] == id || e["requestObject"]["metadata"]["name"] == id;
    audit(id).iter().filter(created).filter(named).count()
}
