//! What the store holds of who daemons are: enrolment tokens, and what proofs are checked against.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::Cluster;
use crate::control_plane::tokens::TokenHash;
use crate::types::Role;
use crate::wire::ClusterKeys;

/// Enrolment tokens that one cluster may have at a time: the one in use, and the one that takes over from it.
pub(crate) const MAX_ENROLMENTS: usize = 2;

/// An enrolment token to store.
#[derive(Clone, Debug)]
pub(crate) struct NewEnrolment {
    pub(crate) id: String,
    pub(crate) hash: TokenHash,
    pub(crate) created_at: Timestamp,
    pub(crate) expires_at: Option<Timestamp>,
}

/// An enrolment token that is not revoked. The token itself is nowhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Enrolment {
    pub(crate) id: String,
    pub(crate) created_at: Timestamp,
    /// When a session was last opened with it.
    pub(crate) last_used_at: Option<Timestamp>,
    pub(crate) expires_at: Option<Timestamp>,
}

impl Enrolment {
    /// Whether it lets in at this time.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|expires| now < expires)
    }
}

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What the proofs of a cluster's daemons are checked against.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trust {
    /// UID of the cluster; `None` when its daemons may not read it.
    pub(crate) cluster_uid: Option<String>,
    pub(crate) issuer: String,
    /// The key set, as the API server published it.
    pub(crate) jwks: Value,
    pub(crate) recorded_at: Timestamp,
    /// The ServiceAccount of each role that has shown a proof.
    pub(crate) accounts: BTreeMap<Role, Account>,
}

impl Trust {
    /// The keys, as a daemon would tell them.
    pub(crate) fn keys(&self) -> ClusterKeys {
        ClusterKeys { issuer: self.issuer.clone(), jwks: self.jwks.clone() }
    }
}

/// A cluster, found by one of its enrolment tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Enrolled {
    pub(crate) cluster: Cluster,
    pub(crate) enrolment: Enrolment,
    /// `None` while no daemon of the cluster has ever proved itself.
    pub(crate) trust: Option<Trust>,
}

/// A cluster with all that hangs on it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClusterRow {
    pub(crate) cluster: Cluster,
    /// Daemons that ever connected.
    pub(crate) daemons: u64,
    pub(crate) enrolments: Vec<Enrolment>,
    pub(crate) trust: Option<Trust>,
}

/// What came of adding an enrolment token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Done,
    /// No such cluster.
    Unknown,
    /// There are [`MAX_ENROLMENTS`] live ones: these.
    Full(Vec<String>),
}

/// Who the daemon of a session proved to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) account: Account,
    pub(crate) node_uid: Option<String>,
    pub(crate) pod: String,
    pub(crate) pod_uid: String,
}
