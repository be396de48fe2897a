//! The state of an instance towards callers, and why it is so.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::NodeName;

/// What a caller is told of an instance (\[L\] S100–S106).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted, being made, or made and not yet running.
    Starting,
    /// The Pod's phase is `Running`.
    Running,
    /// The object carries a deletion time stamp, or its deletion was asked for and is not confirmed.
    Stopping,
    /// Ended for good: finished, deleted, rejected or lost.
    Stopped,
    /// Nothing is known now. The one state that may go back.
    Unknown,
}

/// Why an instance is in its [`State`]. A closed list: adding one is a change of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The control plane has the launch on disk; no daemon has taken it yet.
    Queued,
    /// The daemon took it and is making the object.
    Accepted,
    /// The object exists and the scheduler has not bound it yet.
    Scheduling,
    /// The scheduler found no place; the message is its own.
    Unschedulable,
    /// Bound to the node; volumes, image and container are being prepared.
    ContainerCreating,
    /// The image cannot be pulled (so far).
    ImagePull,
    /// The image reference is malformed.
    InvalidImage,
    /// The container cannot be configured or created.
    ConfigError,
    /// The container runs.
    Running,
    /// The container ended with exit code 0.
    Completed,
    /// The container ended with another exit code.
    ExitCode,
    /// The container was killed for using more memory than its limit.
    OutOfMemory,
    /// The kubelet evicted the Pod.
    Evicted,
    /// The node is gone.
    NodeLost,
    /// The Pod's active deadline passed.
    Deadline,
    /// A caller asked for the deletion, through us.
    DeletedByRequest,
    /// Somebody else deleted the object.
    DeletedByOther,
    /// The cluster refused our delete.
    DeleteRefused,
    /// Accepted, and never seen to exist: it is not known to have run.
    Lost,
    /// Refused by policy, validation or the cluster; no object was made.
    Rejected,
    /// No daemon of the instance's place is connected; what is shown is old.
    DaemonUnreachable,
    /// The cluster reports something this release has no word for.
    Other,
}

impl State {
    /// How far along its life an instance is; never falls except through [`State::Unknown`].
    fn rank(self) -> u8 {
        match self {
            State::Unknown => 0,
            State::Starting => 1,
            State::Running => 2,
            State::Stopping => 3,
            State::Stopped => 4,
        }
    }
}

/// The state to store when `seen` arrives over `known`: never backwards, and `Stopped` is final.
pub fn advance(known: State, seen: State) -> State {
    if seen.rank() >= known.rank() { seen } else { known }
}

macro_rules! snake_case_display {
    ($($type:ty),*) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.serialize(f) // a unit variant serialises to its name
            }
        }
    )*};
}
snake_case_display!(State, Reason);

/// What was seen of an instance at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Observation {
    /// The state towards callers.
    pub state: State,
    /// Why.
    pub reason: Reason,
    /// The cluster's own words, or a sentence that says what to do. May be empty.
    #[serde(default)]
    pub message: String,
    /// The container's exit code; `None` while it runs and for ever when it is not known. Never assumed to be 0.
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// UID of the object, once it exists.
    #[serde(default)]
    pub uid: Option<String>,
    /// The node that the object is bound to, once it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// When the API server created the object.
    #[serde(default)]
    pub created_at: Option<Timestamp>,
    /// When the container started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When the container ended, or the object was seen to be gone.
    #[serde(default)]
    pub finished_at: Option<Timestamp>,
    /// When the daemon saw this, by its own clock.
    pub observed_at: Timestamp,
    /// Whether the container has started, so that its log can be read.
    #[serde(default)]
    pub has_log: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_never_goes_backwards() {
        use State::{Running, Starting, Stopped, Stopping, Unknown};
        for (known, seen, expected) in [
            (Starting, Running, Running),
            (Running, Starting, Running),
            (Stopping, Running, Stopping),
            (Stopped, Running, Stopped),
            (Stopped, Unknown, Stopped),
            (Unknown, Starting, Starting),
            (Running, Running, Running),
        ] {
            assert_eq!(advance(known, seen), expected, "{known} then {seen}");
        }
    }

    #[test]
    fn words_are_written_in_snake_case() {
        assert_eq!(State::Stopped.to_string(), "stopped");
        assert_eq!(Reason::DeletedByOther.to_string(), "deleted_by_other");
    }
}
