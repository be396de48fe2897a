//! A running `lakeshore serve`, and a caller of it.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use nymph::control_plane::{NewToken, create_token};
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tempfile::TempDir;

/// How long anything may take before a test counts as stuck. Nothing is asserted about time below it.
pub(crate) const STUCK: Duration = Duration::from_secs(30);

/// An answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    /// The problem's code.
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Fails with the whole answer unless it has this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.body);
        self
    }

    #[track_caller]
    pub(crate) fn expect_problem(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.code()), (status, code), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], status);
        self
    }
}

/// A control plane in a process of its own. Ends with the test; its log is printed when the test fails.
pub(crate) struct Plane {
    pub(crate) folder: TempDir,
    /// An admin's token.
    pub(crate) token: String,
    pub(crate) address: String,
    arguments: Vec<String>,
    /// A program that runs the program, in its own place.
    wrapper: Vec<String>,
    data: PathBuf,
    child: Option<Child>,
    log: Arc<Mutex<String>>,
    http: reqwest::Client,
}

impl Plane {
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(|_| vec![], arguments).await
    }

    /// Starts it inside another program, which is given the folder of the test, and must become the server's process.
    pub(crate) async fn start_in(wrapper: impl FnOnce(&Path) -> Vec<String>, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let admin = NewToken { name: "tester".into(), admin: true, namespaces: vec![] };
        let token = create_token(&folder.path().join("data"), admin).expect("no server runs yet").token.expose_secret().to_owned();
        let _ = rustls::crypto::ring::default_provider().install_default(); // by the first test of the process
        let http = reqwest::Client::builder().timeout(STUCK).pool_max_idle_per_host(0).build().expect("a client");
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (wrapper, data) = (wrapper(folder.path()), folder.path().join("data"));
        let mut plane = Self { folder, token, address: "127.0.0.1:0".into(), arguments, wrapper, data, child: None, log: Arc::default(), http };
        plane.run();
        plane
    }

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.data.clone()
    }

    /// From the next start on, this is the data folder.
    pub(crate) fn move_to(&mut self, data: PathBuf) {
        self.data = data;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    /// Starts the process, at the same address as before.
    pub(crate) fn run(&mut self) {
        let mut command = serve(&self.data(), &self.address);
        command.args(&self.arguments);
        let mut child = wrapped(&self.wrapper, command).spawn().expect("the program starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let (found, address) = mpsc::channel();
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Some(address) = serde_json::from_str::<Value>(&line).ok().and_then(|line| line["address"].as_str().map(str::to_owned)) {
                    let _ = found.send(address); // nobody listens after the first
                }
                let mut log = log.lock().expect("no writer panics");
                log.push_str(&line);
                log.push('\n');
            }
        });
        self.child = Some(child);
        self.address = address.recv_timeout(STUCK).unwrap_or_else(|_| panic!("it does not listen: {}", self.log()));
    }

    /// Starts the process with other arguments from now on.
    pub(crate) fn run_with(&mut self, arguments: &[&str]) {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self.run();
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no writer panics").clone()
    }

    /// kill -9, and waits for the process to be gone.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }

    /// SIGTERM; answers with whether it exited with 0.
    pub(crate) fn terminate(&mut self) -> bool {
        let mut child = self.child.take().expect("it runs");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a process id"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it can be told");
        child.wait().expect("it can be waited for").success()
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_as(&self.token, method, path)
    }

    /// A request with another token than the admin's.
    pub(crate) fn request_as(&self, token: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://{}{path}", self.address)).bearer_auth(token)
    }

    pub(crate) async fn send(&self, request: reqwest::RequestBuilder) -> Answer {
        let response = request.send().await.expect("the server answers");
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.expect("the body is text");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer { status, headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send(self.request(Method::PUT, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(self.request(Method::DELETE, path)).await
    }

    /// Enrols a cluster; answers with its enrolment token.
    pub(crate) async fn enroll(&self, name: &str) -> String {
        let answer = self.post("/v1/clusters", json!({ "name": name })).await.expect(201);
        answer.body["token"].as_str().expect("a token").to_owned()
    }

    /// Cluster `c1` with provider `demo` on it.
    pub(crate) async fn with_provider(&self) -> String {
        let token = self.enroll("c1").await;
        let kwargs = json!({"dispatch": "daemon", "cluster": "c1", "image": "localhost/python:1"});
        self.post("/v1/namespaces/default/providers", json!({"name": "demo", "launcher": "Kube", "kwargs": kwargs})).await.expect(201);
        token
    }

    /// Launches on `demo` in a task of its own, since the answer waits for the daemon.
    pub(crate) fn launch(&self, body: Value) -> tokio::task::JoinHandle<Answer> {
        self.launch_with_key(body, None)
    }

    pub(crate) fn launch_with_key(&self, body: Value, key: Option<&str>) -> tokio::task::JoinHandle<Answer> {
        let mut request = self.request(Method::POST, "/v1/namespaces/default/providers/demo/launch").json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        tokio::spawn(async move {
            let response = request.send().await.expect("the server answers");
            let (status, headers) = (response.status().as_u16(), response.headers().clone());
            Answer { status, headers, body: response.json().await.expect("JSON") }
        })
    }

    pub(crate) async fn instance(&self, id: &str) -> Value {
        self.get(&format!("/v1/namespaces/default/providers/demo/instances/{id}")).await.expect(200).body
    }

    /// Waits until a condition on an instance holds.
    pub(crate) async fn until(&self, id: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let wait = async {
            loop {
                let instance = self.instance(id).await;
                if condition(&instance) {
                    return instance;
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(STUCK, wait).await.unwrap_or_else(|_| panic!("the condition never held"))
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("log of lakeshore serve:\n{}", self.log());
        }
    }
}

fn wrapped(wrapper: &[String], inner: Command) -> Command {
    let Some((program, arguments)) = wrapper.split_first() else { return inner };
    let mut outer = Command::new(program);
    outer.args(arguments).arg(inner.get_program()).args(inner.get_args());
    for (name, _) in inner.get_envs().filter(|(_, value)| value.is_none()) {
        outer.env_remove(name);
    }
    outer.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    outer
}

/// Says that a test cannot run here: loudly, past the capture of a test's output, and in CI as a failure.
pub(crate) fn skip(why: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "it must run in CI: {why}");
    writeln!(std::io::stderr(), "skipped: {why}").expect("stderr is there");
}

/// The command that serves a folder.
pub(crate) fn serve(data: &Path, listen: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lakeshore"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LAKESHORE_")) {
        command.env_remove(name);
    }
    command.arg("serve").arg("--data").arg(data).args(["--listen", listen, "--log-filter", "debug"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
