//! Everything on one thread: an agenda of steps in simulated time, and what each step does.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::api::Api;
use super::caller::{Caller, CallerStep};
use super::daemon::Daemon;
use super::links::{End, Link};
use super::plane::{Plane, now};
use super::rng::Rng;
use crate::audit::Fact;
use crate::control_plane::store::{Cluster, ExclusiveStore, NewEnrolment, Provider, SqliteStore, Store, Write};
use crate::control_plane::tokens::TokenHash;
use crate::daemon::{Event, Now};
use crate::types::NodeName;
use crate::watch::Scope;
use crate::wire::Frame;

/// The enrolled cluster.
pub(super) const CLUSTER: &str = "c1";
pub(super) const INSTALL: &str = "c1-00000000";
/// Kubernetes namespace that the policy allows.
pub(super) const RUNS: &str = "runs";
/// How often a daemon looks at its deadlines; coarser than the real half second, for speed.
const TICK: Duration = Duration::from_secs(2);

/// A step on the agenda.
#[derive(Debug)]
pub(super) enum Step {
    Tick {
        node: usize,
        process: u64,
    },
    Dial {
        node: usize,
        process: u64,
    },
    /// What is due in a session: a beat, or the verdict that its peer is dead.
    Due {
        link: u64,
        end: End,
    },
    Arrive {
        link: u64,
        end: End,
        frame: Frame,
    },
    /// An end learns that its connection is gone.
    Broken {
        link: u64,
        end: End,
    },
    /// The API server gets a request.
    Request {
        node: usize,
        process: u64,
        request: super::effects::Request,
    },
    /// Its answer arrives; what it says goes to the audit log first.
    Reply {
        node: usize,
        process: u64,
        facts: Vec<Fact>,
        event: Box<Event>,
    },
    Watch {
        node: usize,
        process: u64,
        scope: Scope,
    },
    Logs {
        node: usize,
        process: u64,
        stream: u64,
    },
    Kubelet {
        uid: String,
    },
    Caller(CallerStep),
    Fault(super::faults::Fault),
    DaemonUp {
        node: usize,
    },
    PlaneUp,
}

/// The whole of it.
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) rng: Rng,
    pub(super) now: Duration,
    /// What the wall clock was set by, in seconds.
    pub(super) skew: i64,
    agenda: BTreeMap<(Duration, u64), Step>,
    pub(super) order: u64,
    pub(super) api: Api,
    /// The API server answers nothing until then.
    pub(super) api_down: Duration,
    pub(super) nodes: Vec<NodeName>,
    pub(super) daemons: Vec<Option<Daemon>>,
    pub(super) plane: Option<Plane>,
    pub(super) links: BTreeMap<u64, Link>,
    pub(super) caller: Caller,
    pub(super) facts: Vec<(usize, Fact)>,
    /// Until then nothing passes between a node and the control plane.
    pub(super) partitioned: Vec<Duration>,
    /// How far faults are apart: a storm teaches other things than a shower.
    pub(super) mood: u64,
    /// No more faults.
    pub(super) calm: bool,
    /// Where each API watcher is in the history, so that changes are noticed once.
    pub(super) noticed: u64,
    processes: u64,
    folder: tempfile::TempDir,
    pub(super) cluster: Cluster,
    story: Vec<String>,
    pub(super) steps: u64,
    pub(super) broken_rule: Option<String>,
    pub(super) counts: BTreeMap<&'static str, u64>,
}

impl World {
    pub(super) fn new(seed: u64, names: &[&str]) -> Self {
        let nodes = names.len();
        let folder = tempfile::Builder::new().prefix("nymph-loopback-").tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder");
        let cluster = Cluster { name: CLUSTER.into(), install: INSTALL.into(), created_at: Timestamp::UNIX_EPOCH };
        let mut world = Self {
            seed,
            rng: Rng::new(seed),
            now: Duration::ZERO,
            skew: 0,
            agenda: BTreeMap::new(),
            order: 0,
            api: Api::default(),
            api_down: Duration::ZERO,
            nodes: names.iter().map(|name| name.parse().expect("a node name")).collect(),
            mood: 1,
            daemons: (0..nodes).map(|_| None).collect(),
            plane: None,
            links: BTreeMap::new(),
            caller: Caller::default(),
            facts: Vec::new(),
            partitioned: vec![Duration::ZERO; nodes],
            calm: false,
            noticed: 0,
            processes: 0,
            folder,
            cluster,
            story: Vec::new(),
            steps: 0,
            broken_rule: None,
            counts: BTreeMap::new(),
        };
        world.mood = 1 + world.rng.below(4);
        world.enrol();
        world.plane_up();
        for node in 0..nodes {
            world.daemon_up(node);
        }
        world
    }

    fn enrol(&self) {
        let store = SqliteStore::inline(ExclusiveStore::open(self.folder.path()).expect("a new folder"));
        let enrolment = NewEnrolment { id: "e1".into(), hash: TokenHash([1; 32]), created_at: Timestamp::UNIX_EPOCH, expires_at: None };
        now(store.create_cluster(self.cluster.clone(), enrolment)).expect("it is stored");
        let provider = Provider {
            namespace: "default".into(),
            name: "p".into(),
            launcher: "Kube".into(),
            dispatch: "daemon".into(),
            cluster: CLUSTER.into(),
            kwargs: serde_json::Map::new(),
        };
        now(store.put_provider(provider, Write::Create, Timestamp::UNIX_EPOCH)).expect("it is stored");
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(super) fn wall(&self) -> Timestamp {
        let base = Timestamp::from_second(1_800_000_000).expect("in range");
        base + SignedDuration::try_from(self.now).expect("in range") + SignedDuration::from_secs(self.skew)
    }

    /// The cluster's own clock, which nobody sets.
    pub(super) fn cluster_time(&self) -> Timestamp {
        Timestamp::from_second(1_800_000_000).expect("in range") + SignedDuration::try_from(self.now).expect("in range")
    }

    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.story.len() < 200_000 {
            let line = line();
            self.story.push(format!("{:>9.3} {line}", self.now.as_secs_f64()));
        }
    }

    /// The last of what happened, for a person.
    pub(super) fn story(&self, lines: usize) -> String {
        self.story[self.story.len().saturating_sub(lines)..].join("\n")
    }

    pub(super) fn breaks(&mut self, rule: String) {
        self.broken_rule.get_or_insert(rule);
    }

    pub(super) fn after(&mut self, delay: Duration, step: Step) {
        self.order += 1;
        self.agenda.insert((self.now + delay, self.order), step);
    }

    /// Takes the next step; false when the agenda ends before `until`.
    pub(super) fn step(&mut self, until: Duration) -> bool {
        let Some(entry) = self.agenda.first_entry() else { return false };
        if entry.key().0 > until {
            self.now = until;
            return false;
        }
        let ((at, _), step) = entry.remove_entry();
        self.now = at;
        self.steps += 1;
        if let Some(plane) = &self.plane {
            plane.set_time(self.wall(), self.now);
        }
        self.perform(step);
        self.serve();
        self.notice_changes();
        true
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Tick { node, process } => {
                if self.is_process(node, process) {
                    self.after(TICK, Step::Tick { node, process });
                    self.handle(node, Event::Tick);
                }
            }
            Step::Dial { node, process } => self.dial(node, process),
            Step::Due { link, end } => self.due(link, end),
            Step::Arrive { link, end, frame } => self.arrive(link, end, frame),
            Step::Broken { link, end } => self.link_broken(link, end),
            Step::Request { node, process, request } => self.request(node, process, request),
            Step::Reply { node, process, facts, event } => {
                if self.is_process(node, process) {
                    self.facts.extend(facts.into_iter().map(|fact| (node, fact)));
                    self.handle(node, *event);
                }
            }
            Step::Watch { node, process, scope } => {
                if self.is_process(node, process) {
                    self.poll_watch(node, &scope);
                }
            }
            Step::Logs { node, process, stream } => {
                if self.is_process(node, process) {
                    self.poll_logs(node, stream);
                }
            }
            Step::Kubelet { uid } => self.kubelet(&uid),
            Step::Caller(step) => self.caller_step(step),
            Step::Fault(fault) => self.fault(fault),
            Step::DaemonUp { node } => self.daemon_up(node),
            Step::PlaneUp => self.plane_up(),
        }
    }

    pub(super) fn is_process(&self, node: usize, process: u64) -> bool {
        self.daemons[node].as_ref().is_some_and(|daemon| daemon.process == process)
    }

    pub(super) fn daemon_up(&mut self, node: usize) {
        if self.daemons[node].is_some() {
            return;
        }
        self.processes += 1;
        let process = self.processes;
        let (daemon, effects) = Daemon::start(&self.nodes[node].clone(), process, self.now);
        self.daemons[node] = Some(daemon);
        self.tell(|| format!("daemon {node} starts (process {process})"));
        self.perform_effects(node, effects);
        let first = self.rng.delay(10, 2_000);
        self.after(first, Step::Dial { node, process });
        self.after(TICK, Step::Tick { node, process });
    }

    pub(super) fn daemon_down(&mut self, node: usize) {
        let Some(daemon) = self.daemons[node].take() else { return };
        self.count("daemon crashes");
        self.tell(|| format!("daemon {node} dies (process {})", daemon.process));
        if let Some(link) = daemon.link {
            self.cut(link, End::Plane);
        }
        let pause = self.rng.delay(200, 20_000);
        self.after(pause, Step::DaemonUp { node });
    }

    fn plane_up(&mut self) {
        if self.plane.is_some() {
            return;
        }
        self.processes += 1;
        let process = self.processes;
        self.plane = Some(Plane::start(self.folder.path(), self.cluster.clone(), process, self.now, self.wall()));
        self.tell(|| format!("control plane starts (process {process})"));
        self.set_doom();
    }

    /// The process is gone; what it had written to sockets may still arrive.
    pub(super) fn plane_down(&mut self) {
        let Some(mut plane) = self.plane.take() else { return };
        self.count("control plane crashes");
        self.tell(|| format!("control plane dies (process {})", plane.process));
        let words = if self.rng.chance(500) { plane.last_words() } else { Vec::new() };
        let links: Vec<u64> = self.links.iter().filter(|(_, link)| link.plane == plane.process && !link.cut).map(|(id, _)| *id).collect();
        drop(plane);
        for (link, frame) in words {
            self.transmit(link, End::Daemon, frame);
        }
        self.damage_disk();
        for link in links {
            self.cut(link, End::Daemon);
        }
        let pause = self.rng.delay(300, 30_000);
        self.after(pause, Step::PlaneUp);
    }

    /// What a power cut leaves behind the last synced byte: rubbish.
    fn damage_disk(&mut self) {
        if self.calm || !self.rng.chance(300) {
            return;
        }
        self.count("torn writes");
        let wal = self.folder.path().join("lakeshore.db-wal");
        let (length, bytes) = (1 + self.rng.below(5_000), self.rng.next().to_le_bytes());
        let garbage: Vec<u8> = bytes.iter().copied().cycle().take(usize::try_from(length).expect("small")).collect();
        if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(wal) {
            std::io::Write::write_all(&mut file, &garbage).expect("room for a few bytes");
        }
        let logs = self.folder.path().join("logs");
        for folder in std::fs::read_dir(logs).into_iter().flatten().flatten() {
            for segment in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
                if let Ok(mut file) = std::fs::OpenOptions::new().append(true).open(segment.path()) {
                    std::io::Write::write_all(&mut file, &garbage[..garbage.len().min(100)]).expect("room for a few bytes");
                }
            }
        }
    }

    /// Gives an event to a daemon's state and performs what it decides.
    pub(super) fn handle(&mut self, node: usize, event: Event) {
        let wall = self.wall();
        let now = self.now;
        let Some(daemon) = &mut self.daemons[node] else { return };
        let effects = daemon.state.handle(event, Now { wall, mono: now.saturating_sub(daemon.started) });
        self.perform_effects(node, effects);
    }
}

/// A message in a few words.
pub(super) fn brief(message: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(message).unwrap_or_default();
    text.truncate(text.floor_char_boundary(220));
    text
}
