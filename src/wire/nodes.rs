//! What the daemon of role `cluster` and the control plane say of nodes that may be gone.
//!
//! The control plane names the nodes on which it holds dispatches ([`super::ToDaemon::Nodes`]); the daemon reads each Node object and says
//! which are gone ([`super::ToControlPlane::NodeGone`]); what was under way there is handed over to it ([`super::ToDaemon::Orphans`]), and it
//! reports the ends in its own session.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::types::NodeName;

/// A node on which the control plane holds dispatches, or where a daemon was connected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeItem {
    /// Its name.
    pub node: NodeName,
    /// UID of the Node object that the dispatches were accepted on; `None` when no daemon could read it.
    #[serde(default)]
    pub uid: Option<String>,
    /// It was said to be gone.
    #[serde(default)]
    pub gone: bool,
}

/// By what a node is known to be gone. A node that is merely not Ready is not: it may come back with everything on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// There is no Node object of its name.
    Absent,
    /// The Node object of its name has another UID: it is another node.
    Replaced,
    /// Somebody put the taint `node.kubernetes.io/out-of-service` on it, which says that it is off.
    OutOfService,
}

impl Loss {
    /// For people: what was found.
    pub fn words(self) -> &'static str {
        match self {
            Self::Absent => "its Node object does not exist any more",
            Self::Replaced => "another node has its name now",
            Self::OutOfService => "it carries the taint node.kubernetes.io/out-of-service",
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f) // a unit variant serialises to its name
    }
}
