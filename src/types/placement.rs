//! Where work is placed, and which daemon answers for it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{NodeName, label_value};

/// What a daemon answers for. Chosen by the chart that runs it; proved by its ServiceAccount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// One per node: makes and follows what is bound to its node.
    Node,
    /// One per cluster, holder of a Lease: what no live node's daemon can answer for, and work that is placed `cluster`.
    Cluster,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f) // a unit variant serialises to its name
    }
}

/// Where a dispatch is placed: it stays there, whichever process answers for the place.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// On this node: its daemon makes the object, pinned to it.
    Node(NodeName),
    /// Wherever the cluster's scheduler puts it: the daemon of role `cluster` makes the object.
    Cluster,
}

impl Placement {
    /// The node, when it is one.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Node(node) => Some(node),
            Self::Cluster => None,
        }
    }

    /// The role of the daemon that answers for it.
    pub fn role(&self) -> Role {
        match self {
            Self::Node(_) => Role::Node,
            Self::Cluster => Role::Cluster,
        }
    }

    /// Value of the label `nymph.dev/node` of what is made there: the node's name, cut and hashed when it is too long, or empty, which no
    /// node's name is, for what the cluster's scheduler places.
    pub fn label(&self) -> String {
        self.node().map(|node| label_value(node.as_str())).unwrap_or_default()
    }

    /// For people: whose daemon it is.
    pub fn whose(&self) -> String {
        match self {
            Self::Node(node) => format!("node {node}"),
            Self::Cluster => "the cluster".to_owned(),
        }
    }
}

/// The node's name, or `cluster`, which stands for no node in a log's field.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Cluster => f.write_str("(cluster)"),
        }
    }
}
