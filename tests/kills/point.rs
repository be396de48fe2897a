//! Moments of a launch at which something is killed.

use crate::proxy::ws::Way;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Daemon,
    ControlPlane,
    Both,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Daemon => "daemon",
            Self::ControlPlane => "control plane",
            Self::Both => "both",
        }
    }

    pub(crate) fn has_daemon(self) -> bool {
        self != Self::ControlPlane
    }

    pub(crate) fn has_control_plane(self) -> bool {
        self != Self::Daemon
    }
}

/// Where the thing that is waited for is, when the kill comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A message between control plane and daemon is held, and is lost.
    Held(Way, &'static str),
    /// It has just been passed on.
    Passed(Way, &'static str),
    /// The POST is held on its way to the API server, and is lost with its daemon.
    PostHeld,
    /// It is held, and reaches the API server after the kill.
    PostLate,
    /// It was carried out, and its answer is held, and lost with its daemon.
    PostAnswered,
    /// Its answer has just been passed on.
    PostTold,
    Random,
}

/// A moment and what the table calls it.
pub(crate) type Point = (&'static str, Moment);

/// One round: each named point, and six random moments.
pub(crate) const ROUND: [Point; 20] = [
    ("offer held", Moment::Held(Way::Down, "dispatch")),
    ("after offer", Moment::Passed(Way::Down, "dispatch")),
    ("random", Moment::Random),
    ("accepted held", Moment::Held(Way::Up, "accepted")),
    ("after accepted", Moment::Passed(Way::Up, "accepted")),
    ("random", Moment::Random),
    ("accepted_ack held", Moment::Held(Way::Down, "accepted_ack")),
    ("after accepted_ack", Moment::Passed(Way::Down, "accepted_ack")),
    ("random", Moment::Random),
    ("POST lost", Moment::PostHeld),
    ("POST late", Moment::PostLate),
    ("random", Moment::Random),
    ("POST answer held", Moment::PostAnswered),
    ("after POST", Moment::PostTold),
    ("random", Moment::Random),
    ("report held", Moment::Held(Way::Up, "report")),
    ("after report", Moment::Passed(Way::Up, "report")),
    ("random", Moment::Random),
    ("before ack", Moment::Held(Way::Down, "ack")),
    ("after ack", Moment::Passed(Way::Down, "ack")),
];

/// Numbers that look random, from a seed that is printed (xorshift64*).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}
