//! Connections between daemons and the control plane: dialling, frames under way, heartbeats, and how either end learns that one is gone.

use std::time::Duration;

use super::plane::Turn;
use super::world::{Step, World, brief};
use crate::daemon::Event;
use crate::types::Placement;
use crate::wire::{self, CloseCode, DaemonSession, Due, Frame, FromControlPlane, ToControlPlane, ToDaemon, Violation};

/// Which end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Daemon,
    Plane,
}

/// A connection: who has it, and when the last frame of each direction arrives, since a connection keeps its order.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) node: usize,
    pub(super) daemon: u64,
    pub(super) plane: u64,
    up: Duration,
    down: Duration,
    /// Nothing passes any more, and nobody is told: a peer that is gone without a word.
    pub(super) silent: bool,
    pub(super) cut: bool,
}

impl World {
    pub(super) fn dial(&mut self, node: usize, process: u64) {
        if !self.is_process(node, process) || self.daemons[node].as_ref().is_some_and(|daemon| daemon.link.is_some()) {
            return;
        }
        if self.partitioned[node] > self.now || self.plane.is_none() {
            return self.dial_later(node);
        }
        let (id, now) = (self.order + 1, self.now);
        self.order += 1;
        let Some(plane) = &mut self.plane else { return };
        plane.connected(id, Placement::Node(self.nodes[node].clone()), now);
        let plane = plane.process;
        self.links.insert(id, Link { node, daemon: process, plane, up: now, down: now, silent: false, cut: false });
        if let Some(daemon) = &mut self.daemons[node] {
            daemon.link = Some(id);
            daemon.session = DaemonSession::new(now.saturating_sub(daemon.started));
        }
        self.tell(|| format!("daemon {node} is connected by link {id}"));
        self.after(Duration::from_secs(5), Step::Due { link: id, end: End::Daemon });
        self.after(Duration::from_secs(5), Step::Due { link: id, end: End::Plane });
        self.handle(node, Event::LinkUp { link: id });
    }

    /// Exponential with full jitter, as the real one.
    pub(super) fn dial_later(&mut self, node: usize) {
        let Some(daemon) = &mut self.daemons[node] else { return };
        daemon.failures = (daemon.failures + 1).min(6);
        let (ceiling, process) = ((500u64 << daemon.failures).min(30_000), daemon.process);
        let pause = Duration::from_millis(1 + self.rng.below(ceiling));
        self.after(pause, Step::Dial { node, process });
    }

    pub(super) fn due(&mut self, link: u64, end: End) {
        let Some(Link { node, daemon: process, cut: false, .. }) = self.links.get(&link).cloned() else { return };
        let now = self.now;
        let verdict = match end {
            End::Daemon => {
                let Some(daemon) = self.daemons[node].as_mut().filter(|daemon| daemon.process == process && daemon.link == Some(link)) else {
                    return;
                };
                daemon.session.due(now.saturating_sub(daemon.started))
            }
            End::Plane => {
                let Some(talk) = self.plane.as_mut().and_then(|plane| plane.talk(link)) else { return };
                talk.machine.due(now.saturating_sub(talk.started))
            }
        };
        match (verdict, end) {
            (Err(_), end) => return self.link_broken(link, end),
            (Ok(Due::Wait(_)), _) => {}
            (Ok(Due::Beat), End::Daemon) => {
                let beat = wire::encode_text(&ToControlPlane::Heartbeat {}).expect("it fits");
                self.transmit(link, End::Plane, Frame::Text(beat));
            }
            (Ok(Due::Beat), End::Plane) => {
                if let Some(plane) = &mut self.plane {
                    plane.beat(link);
                }
            }
        }
        self.after(Duration::from_secs(5), Step::Due { link, end });
    }

    /// Puts a frame on its way to `end`. A connection keeps its order, loses nothing and doubles nothing, but for what the faults do to it.
    pub(super) fn transmit(&mut self, link: u64, end: End, frame: Frame) {
        let delay = self.rng.delay(1, 400);
        let copies = self.copies(&frame);
        let shuffled = !self.calm && self.rng.chance(4);
        let Some(Link { node, silent, cut: false, .. }) = self.links.get(&link).cloned() else { return };
        if silent || self.partitioned[node] > self.now {
            return;
        }
        let now = self.now;
        let last = match (end, self.links.get_mut(&link)) {
            (End::Daemon, Some(link)) => &mut link.down,
            (End::Plane, Some(link)) => &mut link.up,
            (_, None) => return,
        };
        let at = if shuffled { now + delay } else { (*last).max(now + delay) };
        *last = at.max(*last);
        for copy in 0..copies {
            self.after(at - now + Duration::from_millis(copy * 37), Step::Arrive { link, end, frame: frame.clone() });
        }
    }

    pub(super) fn arrive(&mut self, link: u64, end: End, frame: Frame) {
        let Some(Link { node, daemon: process, plane, cut, silent, .. }) = self.links.get(&link).cloned() else { return };
        if silent || (cut && end == End::Plane) {
            return;
        }
        match end {
            End::Plane => {
                let now = self.now;
                if let Some(host) = self.plane.as_mut().filter(|host| host.process == plane) {
                    host.heard(link, frame, now);
                }
            }
            End::Daemon => {
                let now = self.now;
                let Some(daemon) = self.daemons[node].as_mut().filter(|daemon| daemon.process == process && daemon.link == Some(link)) else {
                    return;
                };
                let heard = daemon.session.heard(frame, now.saturating_sub(daemon.started));
                self.heard(node, link, heard);
            }
        }
    }

    fn heard(&mut self, node: usize, link: u64, heard: Result<FromControlPlane, Violation>) {
        match heard {
            Ok(FromControlPlane::Nothing | FromControlPlane::Unknown(_)) => {}
            Ok(FromControlPlane::Message(message)) => {
                self.tell(|| format!("daemon {node} hears {}", brief(&*message)));
                if let (Some(daemon), ToDaemon::Welcome(_)) = (&mut self.daemons[node], &*message) {
                    daemon.failures = 0;
                }
                self.handle(node, Event::Message { link, message });
            }
            Ok(FromControlPlane::Dispatch(envelope, body)) => {
                self.tell(|| format!("daemon {node} is offered {} attempt {}", envelope.instance, envelope.attempt));
                self.handle(node, Event::Offered { link, envelope, body });
            }
            Ok(FromControlPlane::Close(close)) => {
                self.tell(|| format!("daemon {node} is told to go: {}", close.message));
                // The real one waits as long when a newer session took over.
                if close.code == CloseCode::Displaced
                    && let Some(daemon) = &mut self.daemons[node]
                {
                    daemon.failures = 6;
                }
                self.link_broken(link, End::Daemon);
                self.cut(link, End::Plane);
            }
            Err(_) => {
                self.link_broken(link, End::Daemon);
                self.cut(link, End::Plane);
            }
        }
    }

    /// Ends a connection; `end` learns of it later, or only by silence.
    pub(super) fn cut(&mut self, link: u64, end: End) {
        let Some(known) = self.links.get_mut(&link) else { return };
        known.cut = true;
        if self.calm || self.rng.chance(800) {
            let delay = self.rng.delay(1, 3_000);
            self.after(delay, Step::Broken { link, end });
        } else if let Some(known) = self.links.get_mut(&link) {
            known.cut = false;
            known.silent = true; // only the missing heartbeats tell
        }
    }

    pub(super) fn link_broken(&mut self, link: u64, end: End) {
        let Some(Link { node, daemon: process, plane, .. }) = self.links.get(&link).cloned() else { return };
        match end {
            End::Plane => {
                if let Some(host) = self.plane.as_mut().filter(|host| host.process == plane) {
                    host.broken(link);
                }
            }
            End::Daemon => {
                let Some(daemon) = self.daemons[node].as_mut().filter(|daemon| daemon.process == process && daemon.link == Some(link)) else {
                    return;
                };
                daemon.link = None;
                daemon.follows.clear();
                self.tell(|| format!("daemon {node} loses link {link}"));
                self.handle(node, Event::LinkDown { link });
                self.dial_later(node);
            }
        }
    }

    /// Lets the control plane do what it can, and sends what it says.
    pub(super) fn serve(&mut self) {
        let Some(plane) = &mut self.plane else { return };
        let Turn { frames, closed } = plane.turn();
        let dead = plane.is_dead();
        for (link, frame) in frames {
            // A process that died in this turn may have written nothing of it.
            if !dead || self.rng.chance(500) {
                self.transmit(link, End::Daemon, frame);
            }
        }
        if dead {
            return self.plane_down();
        }
        for link in closed {
            self.cut(link, End::Daemon);
        }
    }
}
