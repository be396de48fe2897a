//! What is refused, and why a session ends.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A refusal that the sender can act on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Rejection {
    /// Stable code.
    pub code: RejectionCode,
    /// The policy rule or field at fault, as the owner or sender spells it: `images`, `run_namespaces`, `script`…
    pub rule: String,
    /// What is wrong and what to do; never holds a value that could be secret.
    pub message: String,
}

/// Codes of [`Rejection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RejectionCode {
    /// Forbidden by the cluster owner's policy.
    PolicyDenied,
    /// The dispatch is malformed or asks for something impossible.
    Invalid,
    /// The object's name is taken by another's object: the next attempt may succeed.
    NameTaken,
    /// The cluster refused to create it: forbidden, quota, admission, or a namespace that does not exist.
    ClusterRefused,
    /// The daemon takes no work now: it drains, or a precondition (audit, workdir) does not hold.
    Unavailable,
    /// Meant for another node or install.
    Misdirected,
}

impl fmt::Display for RejectionCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f) // a unit variant serialises to its name
    }
}

/// Why the control plane ends a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Close {
    /// Stable code.
    pub code: CloseCode,
    /// What is wrong and what to do.
    pub message: String,
    /// When to try again, in milliseconds; `None` leaves it to the daemon's own backoff.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

/// Codes of [`Close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CloseCode {
    /// Terminal: the token is not known, revoked or expired.
    BadToken,
    /// Terminal: no common protocol version, or `hello` is malformed.
    Protocol,
    /// A newer session of the same node took over.
    Displaced,
    /// A session of the same node is alive, and this one has no proof that it may displace it: dial again later.
    Occupied,
    /// The control plane goes away; dial again.
    GoAway,
}

impl CloseCode {
    /// Whether dialling again with the same token and release cannot help.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::BadToken | Self::Protocol => true,
            Self::Displaced | Self::Occupied | Self::GoAway => false,
        }
    }
}
