//! One control plane and one daemon with relays before and behind it, the scripted kubelet, the load, and who kills.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::caller::{Callers, Work};
use crate::containerlogs;
use crate::judge::Evidence;
use crate::kubelet::{Kubelet, script};
use crate::ledger::Ledger;
use crate::point::{Dice, Kind, Moment, Point};
use crate::proxy::api::{ApiProxy, Verdict as ApiVerdict};
use crate::proxy::ws::{Verdict as WsVerdict, Way, WsProxy};
use crate::witness::{counted, creates};
use crate::world::{World, kubectl};

/// A live daemon POSTs within this of `accepted`, however busy the machine is.
const PROMPT: Duration = Duration::from_secs(10);
/// 20 launches a second.
const EACH: Duration = Duration::from_millis(50);
/// How long a thing that was passed on may be under way before the kill: a few of its receiver's steps.
const STEPS_MS: u64 = 12;
/// Launches that wait for their answer in a system that has caught up: two and a half seconds'.
const WAITING: usize = 50;
/// Longest wait for that.
const CATCH_UP_MS: u64 = 2_000;
/// The cluster's own address, at which the API server finds the kubelet.
const ADDRESS: &str = "198.18.0.1";

/// Everything that one part of the test owns.
pub(crate) struct Scene {
    world: World,
    ws: Arc<WsProxy>,
    api: ApiProxy,
    runtime: Runtime,
    kubelet: Kubelet,
    callers: Arc<Callers>,
    ledger: Ledger,
    dice: Dice,
    /// How often the token file was touched.
    touched: usize,
}

impl Scene {
    pub(crate) fn new(seed: u64) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default(); // by the first scene of the process
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let (world, ledger) = (World::without_daemon(), Ledger::new());
        let ws = Arc::new(WsProxy::start(&world.url()));
        let noted = ledger.clone();
        ws.hook(move |seen| {
            noted.passed(seen);
            WsVerdict::Pass
        });
        let api = ApiProxy::start(&world.path("kubeconfig"));
        let original: Value = serde_json::from_str(&world.log("kubeconfig")).expect("JSON");
        world.write("kubeconfig", &api.kubeconfig(&original).to_string());
        let kubelet = Kubelet::new(runtime.block_on(client()), &world.runs, &world.node, world.path("lines"), ledger.clone());
        let (listener, port) = runtime.block_on(containerlogs::listen());
        let status =
            json!({"status": {"addresses": [{"type": "InternalIP", "address": ADDRESS}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}});
        kubectl(&["patch", "node", &world.node, "--subresource=status", "--type=merge", "-p", &status.to_string()]).ok();
        runtime.spawn(kubelet.clone().work());
        runtime.spawn(containerlogs::serve(listener, kubelet.clone()));
        let callers = Callers::new(&format!("http://{}", world.url()), &world.token, Work { provider: "p", body: script }, ledger.clone());
        let mut scene = Self { world, ws, api, runtime, kubelet, callers, ledger, dice: Dice::new(seed), touched: 0 };
        scene.start(Kind::Daemon);
        scene.connected(0);
        scene.runtime.spawn(Arc::clone(&scene.callers).run(EACH, seed));
        scene.runtime.spawn(vandal(scene.kubelet.clone(), Dice::new(seed + 1)));
        scene.runtime.spawn(sweeper(scene.kubelet.clone(), scene.ledger.clone()));
        scene
    }

    /// Kills at the point, starts again what was killed, and waits until the daemon is back.
    pub(crate) fn strike(&mut self, kind: Kind, (_, moment): Point) {
        let welcomes = self.ws.count(Way::Down, "welcome");
        let instance = self.kill_at(kind, moment);
        if kind.has_daemon() {
            self.meddle(instance);
        }
        let down = match self.dice.below(40) {
            0 => 4_000, // longer than `lost_after`
            1 | 2 => 1_500,
            _ => self.dice.below(300),
        };
        pause(down);
        self.start(kind);
        self.connected(welcomes);
        self.caught_up();
        pause(100 + self.dice.below(400));
    }

    /// Lets launches be answered again, so that the next kill meets work in all stages and not a queue that only grows. A machine that is too busy
    /// to catch up is not waited for.
    fn caught_up(&self) {
        let waiting = || self.ledger.notes().told.values().filter(|told| told.answer.is_none() && told.refusal.is_none()).count();
        for _ in 0..CATCH_UP_MS / 50 {
            if waiting() <= WAITING {
                return;
            }
            pause(50);
        }
    }

    /// The name of the instance that it was about, if any.
    fn kill_at(&mut self, kind: Kind, moment: Moment) -> Option<String> {
        match moment {
            Moment::Random => {
                pause(self.dice.below(1_000));
                self.kill(kind);
                None
            }
            Moment::Held(way, message) => {
                let trap = self.ws.trap(move |seen| seen.is(way, message));
                trap.sprung(message);
                self.kill(kind);
                trap.release(WsVerdict::Drop);
                None
            }
            Moment::Passed(way, message) => {
                let trap = self.ws.trap(move |seen| seen.is(way, message));
                self.ledger.passed(&trap.sprung(message));
                trap.release(WsVerdict::Pass);
                pause(self.dice.below(STEPS_MS));
                self.kill(kind);
                None
            }
            Moment::PostHeld | Moment::PostLate => {
                let trap = self.api.trap(|call| call.before("create", "pods"));
                let name = trap.sprung("a POST").name;
                self.kill(kind);
                if moment == Moment::PostLate || !kind.has_daemon() {
                    pause(self.dice.below(800));
                    trap.release(ApiVerdict::Pass);
                } else {
                    trap.release(ApiVerdict::Cut);
                }
                (moment == Moment::PostHeld).then_some(name)
            }
            Moment::PostAnswered | Moment::PostTold => {
                let trap = self.api.trap(|call| call.after("create", "pods"));
                let name = trap.sprung("a POST's answer").name;
                if moment == Moment::PostTold {
                    trap.release(ApiVerdict::Pass);
                    pause(self.dice.below(STEPS_MS));
                    self.kill(kind);
                } else {
                    self.kill(kind);
                    // A daemon that lives keeps its connections: what it does when they break is the `faults` ring's.
                    trap.release(if kind.has_daemon() { ApiVerdict::Cut } else { ApiVerdict::Pass });
                }
                Some(name)
            }
        }
    }

    /// SIGKILL.
    fn kill(&mut self, kind: Kind) {
        if kind.has_daemon() {
            let now = self.ledger.now();
            self.ledger.notes().daemon_kills.push(now..now);
            self.world.kill_daemon();
        }
        if kind.has_control_plane() {
            self.world.kill_server();
        }
    }

    /// A third party deletes Pods while no daemon sees it: each other time, the one that the kill was about and two that run.
    fn meddle(&mut self, instance: Option<String>) {
        if self.dice.one_in(2) {
            return;
        }
        let mut names = self.kubelet.running();
        while names.len() > 2 {
            let at = self.dice.below(names.len() as u64);
            names.swap_remove(usize::try_from(at).expect("it is below a length"));
        }
        names.extend(instance);
        for name in names {
            let at_once = self.dice.one_in(2);
            self.runtime.block_on(self.kubelet.third_party_deletes(&name, at_once));
        }
    }

    fn start(&mut self, kind: Kind) {
        if kind.has_control_plane() {
            self.world.start_server();
        }
        if kind.has_daemon() {
            self.ledger.daemon_starts();
            let token = self.world.path("token");
            self.world.start_daemon_with(&self.ws.url(), &token);
        }
    }

    /// Waits for a welcome after so many. A daemon that lost its control plane often in a minute would wait longer and longer before it dials;
    /// a token file that changes makes it dial at once.
    fn connected(&mut self, welcomes: u64) {
        let (mut polls, token) = (0, self.world.log("token"));
        let ws = Arc::clone(&self.ws);
        while ws.count(Way::Down, "welcome") <= welcomes {
            pause(20);
            polls += 1;
            if polls % 15 == 0 {
                self.touched += 1;
                self.world.write("token", &format!("{}{}", token.trim(), "\n".repeat(self.touched % 2)));
            }
            assert!(polls < 4_500, "the daemon did not come back in 90 s\n{}", self.tails());
        }
    }

    /// One line on how the load goes.
    pub(crate) fn progress(&self) -> String {
        let notes = self.ledger.notes();
        let answered = notes.told.values().filter(|told| told.answer.is_some()).count();
        let ended = notes.told.values().filter(|told| told.end.is_some()).count();
        format!("{:>6.1} s: {} launches, {answered} answered, {ended} ended", self.ledger.now().as_secs_f64(), notes.told.len())
    }

    /// Ends the load, waits until each launch has its end, and takes the evidence of all witnesses.
    pub(crate) fn evidence(&mut self) -> Evidence {
        self.runtime.block_on(self.callers.settle());
        let shown = self.runtime.block_on(self.callers.all());
        let evidence = self.ledger.evidence(&shown);
        Evidence {
            creates: creates(&self.world.runs),
            lines: counted(self.world.log("lines").lines().filter_map(|line| line.split(' ').next()).map(str::to_owned)),
            prompt: PROMPT,
            ..evidence
        }
    }

    /// What both programs wrote about a dispatch.
    pub(crate) fn story(&self, dispatch: &str) -> String {
        let mut story = String::new();
        for name in ["server.log", "daemon.log"] {
            let log = self.world.log(name);
            let about: Vec<&str> = log.lines().filter(|line| line.contains(dispatch)).collect();
            story.push_str(&format!("--- {name}, about {dispatch}\n{}\n", about.join("\n")));
        }
        story
    }

    fn tails(&self) -> String {
        let tail = |name: &str| {
            let log = self.world.log(name);
            let lines: Vec<&str> = log.lines().rev().take(20).collect();
            format!("--- {name}\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        tail("server.log") + &tail("daemon.log")
    }
}

async fn client() -> Client {
    let kubeconfig = Kubeconfig::read_from(std::env::var("KUBECONFIG").expect("tests/cluster/cluster exec sets it")).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a whole kubeconfig");
    Client::try_from(config).expect("a client")
}

/// A third party who deletes something that runs, once or twice a second.
async fn vandal(kubelet: Kubelet, mut dice: Dice) {
    loop {
        tokio::time::sleep(Duration::from_millis(300 + dice.below(1_000))).await;
        let running = kubelet.running();
        if running.is_empty() {
            continue;
        }
        let at = usize::try_from(dice.below(running.len() as u64)).expect("it is below a length");
        let at_once = dice.one_in(2);
        kubelet.third_party_deletes(&running[at], at_once).await;
    }
}

/// Takes away most of the Pods whose end was told, so that the API server holds a few hundred and not thousands. It changes nothing any more.
async fn sweeper(kubelet: Kubelet, ledger: Ledger) {
    let mut next = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let ended: Vec<(u64, Option<String>)> = {
            let notes = ledger.notes();
            let ended = notes.told.range(next..).take_while(|(_, told)| told.end.is_some() || told.refusal.is_some());
            ended.map(|(number, told)| (*number, told.answer.as_ref().map(|(instance, _)| instance.clone()))).collect()
        };
        next = ended.last().map_or(next, |(number, _)| number + 1);
        let names = ended.into_iter().filter(|(number, _)| number % 8 != 0).filter_map(|(_, name)| name);
        join_all(names.map(|name| kubelet.sweep(name))).await;
    }
}

/// Lets real processes run for a while: here time itself is what is varied.
#[allow(clippy::disallowed_methods, reason = "a plain thread that plays with the time between kills")]
fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
