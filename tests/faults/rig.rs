//! A world whose daemon reaches the control plane and the API server through fault proxies.

use std::ops::{Deref, DerefMut};
use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use reqwest::Method;
use serde_json::{Value, json};

use crate::proxy::api::ApiProxy;
use crate::proxy::tcp::TcpProxy;
use crate::proxy::ws::WsProxy;
use crate::proxy::{self, Task};
use crate::world::{World, creates};

/// Daemon → `tcp` → `ws` → control plane, and daemon → `api` → kube-apiserver.
pub(crate) struct Rig {
    pub(crate) world: World,
    pub(crate) tcp: TcpProxy,
    pub(crate) ws: WsProxy,
    pub(crate) api: ApiProxy,
}

impl Deref for Rig {
    type Target = World;

    fn deref(&self) -> &World {
        &self.world
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

static HTTP: LazyLock<reqwest::Client> = LazyLock::new(|| {
    let _ = rustls::crypto::ring::default_provider().install_default(); // by the first test of the process
    reqwest::Client::builder().timeout(Duration::from_secs(60)).pool_max_idle_per_host(0).build().expect("a client")
});

/// An answer of the control plane.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Value,
}

impl Rig {
    /// A rig whose daemon is connected.
    pub(crate) fn new() -> Self {
        let mut rig = Self::without_daemon();
        rig.start_daemon();
        rig.until_connected();
        rig
    }

    pub(crate) fn without_daemon() -> Self {
        let mut world = World::without_daemon();
        let ws = WsProxy::start(&world.url());
        let tcp = TcpProxy::start(ws.url().trim_start_matches("ws://"));
        let original = serde_json::from_str(&world.log("kubeconfig")).expect("JSON");
        let api = ApiProxy::start(&world.path("kubeconfig"));
        world.write("kubeconfig-through-proxy", &api.kubeconfig(&original).to_string());
        world.kubeconfig = "kubeconfig-through-proxy";
        world.daemon_url = Some(format!("ws://{}", tcp.address()));
        Self { world, tcp, ws, api }
    }

    /// SIGKILL now, while the rig is borrowed; the process is taken away by the next `kill_daemon`.
    pub(crate) fn shoot_daemon(&self) {
        shoot(self.daemon_pid());
    }

    pub(crate) fn shoot_server(&self) {
        shoot(self.server_pid());
    }

    /// Takes away the daemon that was shot, and starts another.
    pub(crate) fn next_daemon(&mut self) {
        self.kill_daemon();
        self.start_daemon();
    }

    /// Launches on this node in the background with an idempotency key; `None` is a connection that broke.
    pub(crate) fn launching(&self, key: &str) -> Task<Option<Answer>> {
        let body = json!({ "script": "print('hello')\n", "node": self.node });
        let request = self.request(Method::POST, "namespaces/default/providers/p/launch").header("Idempotency-Key", key).json(&body);
        proxy::background(async move {
            let response = request.send().await.ok()?;
            let status = response.status().as_u16();
            Some(Answer { status, body: response.json().await.ok()? })
        })
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        HTTP.request(method, format!("http://{}/v1/{path}", self.url())).bearer_auth(self.token())
    }

    /// A read of the control plane; `None` when it does not answer. Hundreds are made while something is waited for: not by the CLI.
    fn read(&self, path: &str) -> Option<Value> {
        let request = self.request(Method::GET, path);
        proxy::block_on(async move { request.send().await.ok()?.json().await.ok() })
    }

    pub(crate) fn instance(&self, id: &str) -> Value {
        let seen = self.read(&format!("namespaces/default/instances/{id}")).expect("the control plane runs");
        assert_eq!(seen["instanceId"], id, "{seen}");
        seen
    }

    pub(crate) fn until_state(&self, id: &str, state: &str, reason: &str) -> (Value, Duration) {
        self.until(&format!("{id} is {state}, {reason}"), || Some(self.instance(id)).filter(|i| i["state"] == state && i["reason"] == reason))
    }

    /// Waits until the control plane shows the daemon as connected, and says how long it took.
    pub(crate) fn until_connected(&self) -> Duration {
        let ours = |daemon: &Value| daemon["node"] == self.node.as_str() && daemon["connected"] == true;
        self.until("the daemon is connected", || self.read("daemons")?.as_array()?.iter().any(ours).then_some(())).1
    }

    /// The same to its end: an id that was answered with 202.
    pub(crate) fn launched_with(&self, key: &str) -> String {
        let answer = self.launching(key).join().expect("the control plane runs");
        assert_eq!(answer.status, 202, "{}", answer.body);
        answer.body["instanceId"].as_str().expect("an id").to_owned()
    }

    /// Waits until the instance is where nothing is owed any more: its Pod is there, or it has ended.
    pub(crate) fn settled(&self, id: &str) -> Value {
        let settled = |seen: &Value| seen["state"] == "stopped" || seen["reason"] == "scheduling";
        self.until(&format!("{id} is settled"), || Some(self.instance(id)).filter(settled)).0
    }

    /// Exists once, and shows as such.
    #[track_caller]
    pub(crate) fn assert_made_once(&self, id: &str) {
        let seen = self.settled(id);
        assert_eq!(seen["reason"], "scheduling", "{seen}");
        assert_eq!(creates(id), 1, "{id}");
        assert!(self.pods().iter().any(|pod| pod == id), "{id}");
    }

    /// Was never made, and has ended as `lost`.
    #[track_caller]
    pub(crate) fn assert_lost(&self, id: &str, made: usize) {
        let (seen, _) = self.until_state(id, "stopped", "lost");
        assert_eq!(seen["exitCode"], Value::Null, "{seen}");
        assert_eq!(creates(id), made, "{id}");
        assert!(!self.pods().iter().any(|pod| pod == id), "{id}");
    }

    /// Ids of all instances that the control plane shows.
    pub(crate) fn ids(&self) -> Vec<String> {
        let all = self.read("namespaces/default/instances").expect("the control plane runs");
        all.as_array().expect("a list").iter().filter_map(|i| i["instanceId"].as_str().map(str::to_owned)).collect()
    }
}

pub(crate) fn shoot(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    kill(pid, Signal::SIGKILL).expect("it ran");
}

/// Resident memory of a process at its highest, in MiB.
pub(crate) fn peak_rss(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux says so");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
}
