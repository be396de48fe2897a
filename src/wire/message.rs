//! Text messages of version 1.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Close, Loss, NodeItem, Rejection, ResumePoint};
use crate::types::{Attempt, DispatchId, InstanceName, NodeName, Observation, Role};

/// Daemon → control plane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToControlPlane {
    /// The first message.
    Hello(Box<Hello>),
    /// Sign of life.
    Heartbeat {},
    /// The dispatch passed policy and validation; the daemon waits for `accepted_ack` before it creates anything.
    Accepted {
        /// The dispatch.
        dispatch_id: DispatchId,
        /// Its attempt.
        attempt: Attempt,
        /// Kubernetes namespace that the object will be made in.
        namespace: String,
    },
    /// The dispatch is refused and nothing was or will be created for this attempt.
    Rejected {
        /// The dispatch.
        dispatch_id: DispatchId,
        /// Its attempt.
        attempt: Attempt,
        /// Why.
        rejection: Rejection,
    },
    /// What was seen of an instance.
    Report(Box<Report>),
    /// A log stream ended.
    LogEnd {
        /// The stream.
        stream: u64,
        /// Why.
        reason: LogEndReason,
        /// Length of the log so far, in bytes.
        offset: u64,
    },
    /// The answer to `check`.
    CheckResult {
        /// The request it answers.
        request: u64,
        /// One row a check.
        items: Vec<CheckItem>,
    },
    /// The answer to `lookup`.
    LookupResult {
        /// The request it answers.
        request: u64,
        /// Whether an object of that name exists, and is ours.
        found: bool,
        /// An object of that name exists and is not ours.
        foreign: bool,
    },
    /// The node's facts changed.
    NodeFacts(NodeFacts),
    /// From the daemon of role `cluster` alone: it has read that a node is gone. Answered with `orphans`.
    NodeGone {
        /// The node.
        node: NodeName,
        /// The Node object's UID, as `nodes` named it.
        #[serde(default)]
        uid: Option<String>,
        /// By what it is known.
        why: Loss,
    },
    /// From the daemon of role `cluster` alone: a node that was said to be gone is there after all.
    NodeBack {
        /// The node.
        node: NodeName,
        /// The Node object's UID, as `nodes` named it.
        #[serde(default)]
        uid: Option<String>,
    },
    /// The cluster's signing keys changed. Taken only from a daemon that proved itself with the old ones.
    Keys(ClusterKeys),
}

/// Control plane → daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToDaemon {
    /// The session is open.
    Welcome(Box<Welcome>),
    /// What `welcome` had no room for.
    Open {
        /// Further dispatches of this place that have not ended.
        open: Vec<OpenItem>,
        /// Others follow.
        #[serde(default)]
        more: bool,
    },
    /// The session ends; the socket is closed next.
    Close(Close),
    /// Sign of life.
    Heartbeat {},
    /// `accepted` is on disk: create the object now.
    AcceptedAck {
        /// The dispatch.
        dispatch_id: DispatchId,
        /// Its attempt.
        attempt: Attempt,
    },
    /// Reports up to these are on disk.
    Ack(Ack),
    /// Delete the instance.
    Cancel {
        /// The instance.
        instance: InstanceName,
    },
    /// Send the log from `offset` on.
    LogsFollow {
        /// Names the stream within this session.
        stream: u64,
        /// Whose log.
        instance: InstanceName,
        /// How much of it is stored already, in bytes.
        offset: u64,
        /// Where to go on.
        resume: ResumePoint,
        /// How many bytes may be sent before more credit comes.
        credit: u64,
    },
    /// More bytes of the stream may be sent; everything below `acked` is on disk.
    LogsCredit {
        /// The stream.
        stream: u64,
        /// Additional bytes.
        credit: u64,
        /// Stored length of the log, in bytes.
        acked: u64,
    },
    /// Stop sending the stream.
    LogsStop {
        /// The stream.
        stream: u64,
    },
    /// To the daemon of role `cluster` alone: the nodes to look after, in place of those named before.
    Nodes {
        /// All of them.
        nodes: Vec<NodeItem>,
    },
    /// To the daemon of role `cluster` alone: what was accepted on a node that is gone, to be ended and removed.
    Orphans {
        /// The node.
        node: NodeName,
        /// The Node object's UID, as `node_gone` named it.
        #[serde(default)]
        uid: Option<String>,
        /// Its dispatches that have not ended, or some of them.
        open: Vec<OpenItem>,
        /// Others follow.
        #[serde(default)]
        more: bool,
    },
    /// `providers test`: check what the daemon needs in order to work.
    Check {
        /// Echoed in the answer.
        request: u64,
    },
    /// Does an object of this name exist in any run namespace?
    Lookup {
        /// Echoed in the answer.
        request: u64,
        /// The name; it need not be known to the control plane.
        instance: InstanceName,
        /// Labels that make it ours for this caller: the three of \[L\] S92.
        labels: BTreeMap<String, String>,
        /// Delete it when it is ours.
        delete: bool,
    },
}

/// What a daemon says of itself. Identity comes from the handshake, never from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Hello {
    /// Release of the daemon.
    pub version: String,
    /// What it answers for; must be the handshake's.
    pub role: Role,
    /// UID of the namespace `kube-system`, which names the cluster; `None` without the right to read it.
    #[serde(default)]
    pub cluster_uid: Option<String>,
    /// This daemon process; a new value means that it restarted.
    pub boot_id: String,
    /// The node; a daemon of role `cluster` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeFacts>,
    /// Keys by which the cluster signs ServiceAccount tokens; `None` when they could not be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<ClusterKeys>,
    /// SHA-256 of the policy file in force, in hex.
    pub policy_digest: String,
    /// What this daemon can do beyond version 1; none yet.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Objects of ours that the daemon sees or has promised to make.
    #[serde(default)]
    pub held: Vec<HeldItem>,
}

/// Keys by which a cluster signs ServiceAccount tokens, as its API server publishes them to every ServiceAccount.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClusterKeys {
    /// Issuer, as the discovery document names it: `iss` of the tokens.
    pub issuer: String,
    /// The key set (RFC 7517), verbatim.
    pub jwks: serde_json::Value,
}

/// Facts about the node, for placement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct NodeFacts {
    /// Its name; must equal the handshake's.
    pub name: NodeName,
    /// UID of the Node object; `None` without the right to read it.
    #[serde(default)]
    pub uid: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// Allocatable resources, as Kubernetes writes quantities.
    #[serde(default)]
    pub allocatable: BTreeMap<String, String>,
    /// Names of the conditions that are `True`, `Ready` among them.
    #[serde(default)]
    pub conditions: Vec<String>,
    /// Cordoned.
    #[serde(default)]
    pub unschedulable: bool,
}

/// A taint of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value.
    #[serde(default)]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// An object that the daemon holds at `hello`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HeldItem {
    /// The dispatch it was made for.
    pub dispatch_id: DispatchId,
    /// The attempt.
    pub attempt: Attempt,
    /// Its name.
    pub instance: InstanceName,
    /// Its UID; `None` while it is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The enrolment that it was made under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
    /// Kubernetes namespace that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Slug of the caller's namespace, as its label says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller_namespace: Option<String>,
    /// Slug of the provider, as its label says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Who asked, as its annotation says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
}

/// What the control plane answers to `hello`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Welcome {
    /// Name of the cluster that the enrolment token belongs to; it becomes the label `nymph.dev/install`.
    pub cluster: String,
    /// Id of the enrolment: the value of `nymph.dev/install`, a valid label value.
    pub install: String,
    /// Names this session.
    pub session: String,
    /// Rises with each session of this node; reports carry it, and older ones are ignored.
    pub epoch: u64,
    /// Interval of heartbeats, in milliseconds.
    pub heartbeat_ms: u64,
    /// After `accepted`, how long until an absent object may be told as lost, in milliseconds.
    pub lost_after_ms: u64,
    /// The dispatches of this place that have not ended, or the first of them.
    pub open: Vec<OpenItem>,
    /// The others follow as [`ToDaemon::Open`]; until they all have come, the daemon does not know what has ended.
    #[serde(default)]
    pub more: bool,
}

/// A dispatch that the control plane holds as not ended, at `welcome`. Queued ones follow as dispatches, unasked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenItem {
    /// The dispatch.
    pub dispatch_id: DispatchId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Name of its object.
    pub instance: InstanceName,
    /// Kubernetes namespace of its object.
    pub namespace: String,
    /// How far it had come.
    pub phase: OpenPhase,
    /// UID of its object, when it was ever reported.
    #[serde(default)]
    pub uid: Option<String>,
    /// Sequence of the last report on disk; the daemon's next one is higher.
    pub seq: u64,
    /// A caller asked for its deletion.
    #[serde(default)]
    pub cancel: bool,
    /// Milliseconds since `accepted` was stored.
    #[serde(default)]
    pub accepted_ms_ago: u64,
    /// Epoch of the session whose `accepted` was stored; 0 when none was. Only the process that said it there may still create the object.
    #[serde(default)]
    pub accepted_epoch: u64,
}

/// How far an open dispatch had come at the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OpenPhase {
    /// `accepted` is stored; whether the object was made is not known.
    Accepted,
    /// The object was reported.
    Created,
}

/// Stored reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ack {
    /// Instance.
    pub instance: InstanceName,
    /// Every report of it up to this sequence is on disk.
    pub seq: u64,
}

/// What was seen of an instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report {
    /// The dispatch.
    pub dispatch_id: DispatchId,
    /// Its attempt.
    pub attempt: Attempt,
    /// The instance.
    pub instance: InstanceName,
    /// Rises by one with each report of the instance.
    pub seq: u64,
    /// The session's epoch.
    pub epoch: u64,
    /// What was seen.
    pub observation: Observation,
}

/// Why a log stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LogEndReason {
    /// The container ended and its log was read to the end.
    Complete,
    /// The object is gone before its log was read to the end: bytes may be missing.
    Gone,
    /// The control plane asked to stop.
    Stopped,
    /// This daemon does not hold the instance.
    NotHeld,
}

/// One row of `providers test`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckItem {
    /// What was checked.
    pub name: String,
    /// Whether it holds.
    pub ok: bool,
    /// What was found, and the cure when it does not hold.
    pub message: String,
}
