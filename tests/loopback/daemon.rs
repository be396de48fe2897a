//! A daemon's process: its state, its session and what runs for it. Gone when it is killed, but for what it wrote to its log.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::daemon::{ContainerState, DaemonState, Effect, FollowOrder, Settings};
use crate::policy::Policy;
use crate::types::{NodeName, Placement};
use crate::watch::Scope;
use crate::wire::{DaemonSession, ResumePoint};

/// What the cluster's owner allows.
pub(super) const POLICY: &str = "version: 1\nrun_namespaces: [runs]\nimages: [\"localhost/*\"]\n";

/// A watch of the process: where it is in the server's history; `None` when a list comes next.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    pub(super) cursor: Option<u64>,
    pub(super) polled: bool,
}

/// A log that is followed.
#[derive(Clone, Debug)]
pub(super) struct Follow {
    pub(super) order: FollowOrder,
    pub(super) offset: u64,
    pub(super) resume: ResumePoint,
    pub(super) credit: u64,
    pub(super) state: ContainerState,
    pub(super) stopped: bool,
}

/// The process.
pub(super) struct Daemon {
    pub(super) process: u64,
    pub(super) started: Duration,
    pub(super) state: DaemonState,
    pub(super) link: Option<u64>,
    pub(super) session: DaemonSession,
    pub(super) watches: BTreeMap<Scope, Watch>,
    pub(super) follows: BTreeMap<u64, Follow>,
    pub(super) failures: u32,
}

impl Daemon {
    pub(super) fn start(node: &NodeName, process: u64, now: Duration) -> (Self, Vec<Effect>) {
        let policy = Policy::parse(POLICY).expect("a valid policy");
        let settings = Settings { placement: Placement::Node(node.clone()), boot_id: format!("boot-{process}"), workdir_root: "/work".into() };
        let (state, effects) = DaemonState::new(settings, policy);
        let session = DaemonSession::new(Duration::ZERO);
        let (watches, follows) = (BTreeMap::new(), BTreeMap::new());
        (Self { process, started: now, state, link: None, session, watches, follows, failures: 0 }, effects)
    }
}
