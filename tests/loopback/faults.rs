//! What goes wrong, when the seed says so.

use std::time::Duration;

use super::links::End;
use super::world::{Step, World};
use crate::daemon::Event;
use crate::wire::Frame;

/// One fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Any of them; the next follows.
    Next,
}

impl World {
    pub(super) fn fault(&mut self, Fault::Next: Fault) {
        if self.calm {
            return;
        }
        let pause = self.rng.delay(300 * self.mood, 20_000 * self.mood);
        self.after(pause, Step::Fault(Fault::Next));
        let node = usize::try_from(self.rng.below(self.daemons.len() as u64)).expect("small");
        match self.rng.below(14) {
            0 | 1 => self.daemon_down(node),
            2 => self.plane_down(),
            3 => self.set_doom(),
            4 => {
                self.daemon_down(node);
                self.plane_down();
            }
            5 | 6 => self.cut_a_link(node),
            7 => {
                let pause = if self.rng.chance(50) { self.rng.delay(600_000, 1_000_000) } else { self.rng.delay(1_000, 120_000) };
                self.partitioned[node] = self.now + pause;
                self.count("partitions");
                self.tell(|| format!("partition of {node} for {pause:?}"));
            }
            8 => {
                self.api_down = self.now + self.rng.delay(500, 60_000);
                self.count("API server outages");
                self.tell(|| "the API server is down".into());
            }
            9 | 10 => self.delete_by_other(),
            11 => self.forget_watches(node),
            12 => {
                self.skew += if self.rng.chance(500) { 3_600 } else { -3_600 };
                self.count("clock jumps");
                self.tell(|| "the wall clock jumps".into());
            }
            _ => self.roll(node),
        }
    }

    /// The control plane dies inside one of its next writes.
    pub(super) fn set_doom(&mut self) {
        if self.calm || !self.rng.chance(500) {
            return;
        }
        let (writes, after) = (1 + self.rng.below(40), self.rng.chance(500));
        if let Some(plane) = &self.plane {
            plane.doom.set(writes, after);
        }
    }

    fn cut_a_link(&mut self, node: usize) {
        let Some(link) = self.daemons[node].as_ref().and_then(|daemon| daemon.link) else { return };
        self.count("cuts");
        self.tell(|| format!("link {link} is cut"));
        let silent = self.rng.chance(200);
        if let (true, Some(link)) = (silent, self.links.get_mut(&link)) {
            link.silent = true;
            return;
        }
        self.cut(link, End::Daemon);
        let delay = self.rng.delay(1, 20_000);
        self.after(delay, Step::Broken { link, end: End::Plane });
    }

    fn delete_by_other(&mut self) {
        let uids: Vec<(String, String, String)> = self
            .api
            .pods()
            .filter_map(|object| Some((object.pod.metadata.namespace.clone()?, object.pod.metadata.name.clone()?, object.uid.clone())))
            .collect();
        let Some((namespace, name, uid)) = uids.get(usize::try_from(self.rng.below(uids.len() as u64)).expect("small")).cloned() else { return };
        if let Some(witness) = self.api.witnesses.get_mut(&uid) {
            witness.deleted_by_other = true;
        }
        self.count("deletions by others");
        self.tell(|| format!("somebody deletes {name} ({uid})"));
        let now = self.cluster_time();
        self.api.delete(&namespace, &name, &uid, now);
        let grace = self.rng.delay(100, 5_000);
        self.after(grace, Step::Kubelet { uid });
    }

    /// 410: the server has forgotten where the watches were.
    fn forget_watches(&mut self, node: usize) {
        let Some(daemon) = &mut self.daemons[node] else { return };
        let process = daemon.process;
        let scopes: Vec<_> = daemon.watches.keys().cloned().collect();
        for watch in daemon.watches.values_mut() {
            watch.cursor = None;
            watch.polled = true;
        }
        for scope in scopes {
            let delay = self.rng.delay(10, 5_000);
            self.after(delay, Step::Watch { node, process, scope });
        }
        self.count("watches built anew");
    }

    /// A rolling update: the old one drains, the new one comes.
    fn roll(&mut self, node: usize) {
        if self.daemons[node].is_none() {
            return;
        }
        self.count("rolling updates");
        self.handle(node, Event::Draining);
        self.daemon_down(node);
    }

    /// A frame usually travels once; a dispatch may come ten times, an acknowledgement never.
    pub(super) fn copies(&mut self, frame: &Frame) -> u64 {
        match self.rng.below(1000) {
            _ if self.calm => 1,
            0..3 => 0,
            3..8 => 2,
            8..10 if matches!(frame, Frame::Binary(_)) => 10,
            _ => 1,
        }
    }

    /// Everything works again: what was cut is noticed, what was dropped is said again with the next session.
    pub(super) fn calm_down(&mut self) {
        self.calm = true;
        self.api_down = Duration::ZERO;
        self.partitioned.fill(Duration::ZERO);
        if let Some(plane) = &self.plane {
            plane.doom.set(0, false);
        }
        self.tell(|| "calm".into());
        for node in 0..self.daemons.len() {
            if let Some(link) = self.daemons[node].as_ref().and_then(|daemon| daemon.link) {
                self.cut(link, End::Daemon);
                self.after(Duration::from_millis(10), Step::Broken { link, end: End::Plane });
            }
        }
    }
}
