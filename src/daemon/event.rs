//! What happens to the daemon, and what it does about it: the alphabet of [`super::DaemonState`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::apply::{DeleteOutcome, Kind, Left, NodeSight};
use crate::audit::{Fact, Remnant, Subject};
use crate::policy::Policy;
use crate::render::Rendered;
use crate::telemetry::Condition;
use crate::types::{InstanceName, KubeNamespace, NodeName};
use crate::watch::{Scope, Seen};
use crate::wire::{ClusterKeys, DispatchEnvelope, NodeFacts, ResumePoint, ToControlPlane, ToDaemon};

/// The time, read once for each event. Durations are measured on the monotonic clock, since the wall clock may be set.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// For people and for what is stored.
    pub wall: Timestamp,
    /// Since the daemon started.
    pub mono: Duration,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A connection to the control plane is open; links are numbered from 1.
    LinkUp {
        /// Its number.
        link: u64,
    },
    /// The connection is gone.
    LinkDown {
        /// Its number.
        link: u64,
    },
    /// A text message arrived.
    Message {
        /// On which link.
        link: u64,
        /// What it says.
        message: Box<ToDaemon>,
    },
    /// A dispatch arrived.
    Offered {
        /// On which link.
        link: u64,
        /// What it is.
        envelope: DispatchEnvelope,
        /// The work itself, still opaque.
        body: Bytes,
    },
    /// A watch saw something.
    Seen {
        /// Which watch.
        scope: Scope,
        /// What.
        seen: Seen,
    },
    /// The answer to [`Effect::Look`]: the first object of that name that was found, or why it could not be read.
    Looked {
        /// The instance.
        instance: InstanceName,
        /// The read's number.
        look: u64,
        /// The Pod, ours or not; an error means that nothing is known.
        found: Result<Option<Box<Pod>>, Unread>,
    },
    /// The verdict of [`Effect::Admit`] could not be written, so that `accepted` was not sent.
    NotAudited {
        /// The instance.
        instance: InstanceName,
    },
    /// The answer to [`Effect::Create`].
    CreateEnded {
        /// The instance.
        instance: InstanceName,
        /// How it ended.
        ended: Creation,
    },
    /// The answer to [`Effect::Delete`].
    DeleteEnded {
        /// The instance.
        instance: InstanceName,
        /// UID that was to be deleted.
        uid: String,
        /// How it ended.
        outcome: DeleteOutcome,
    },
    /// A log follow has sent its last message.
    FollowEnded {
        /// The stream.
        stream: u64,
    },
    /// The owner changed the policy file, and it is valid.
    PolicyChanged(Box<Policy>),
    /// The cluster's signing keys were read.
    KeysRead {
        /// The keys.
        keys: Box<ClusterKeys>,
        /// UID of the cluster, when that could be read too.
        cluster_uid: Option<String>,
    },
    /// The node's facts were read.
    FactsRead {
        /// The node; `None` when the daemon has none.
        node: Option<Box<NodeFacts>>,
        /// UID of `kube-system`.
        cluster_uid: Option<String>,
    },
    /// The answer to [`Effect::ReadNode`]; an error means that nothing is known.
    NodeRead {
        /// The node.
        node: NodeName,
        /// What its Node object shows; `None` when there is none.
        sight: Result<Option<NodeSight>, ()>,
    },
    /// The answer to [`Effect::Sweep`].
    Swept(Box<Swept>),
    /// The answer to [`Effect::Remove`].
    Removed {
        /// UID that was to be removed.
        uid: String,
        /// How it ended.
        outcome: DeleteOutcome,
    },
    /// The process was asked to end.
    Draining,
    /// Half a second passed.
    Tick,
}

/// A look for what is left of a gone node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The node.
    pub node: NodeName,
    /// The UID under which it is gone.
    pub uid: Option<String>,
    /// The enrolment whose objects count.
    pub install: String,
    /// Where to look.
    pub namespaces: Vec<KubeNamespace>,
    /// Instances to read by name, whatever their labels say.
    pub wanted: Vec<(KubeNamespace, InstanceName)>,
}

/// What a [`Sweep`] found.
#[derive(Clone, Debug)]
pub struct Swept {
    /// The node.
    pub node: NodeName,
    /// The UID under which it is gone.
    pub uid: Option<String>,
    /// What is there, read consistently; an error means that it is not known.
    pub found: Result<Found, ()>,
}

/// What is there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Each wanted instance; `None` when no object of its name exists.
    pub wanted: Vec<(InstanceName, Option<Box<Pod>>)>,
    /// Everything that carries the marks of the enrolment and the node.
    pub left: Vec<Left>,
}

/// How a creation ended.
#[derive(Clone, Debug)]
pub enum Creation {
    /// The object is there.
    Done(Box<Pod>),
    /// An object of that name was there before.
    Exists,
    /// The cluster refused it for certain.
    Refused {
        /// HTTP status.
        code: u16,
        /// The cluster's words.
        message: String,
    },
    /// It is not known whether it was made.
    Unclear {
        /// What the API server said, or why it said nothing.
        message: String,
    },
    /// The API server could not be reached: nothing was sent.
    NotSent,
    /// The intent could not be written to the audit log: nothing was sent.
    NotAudited,
    /// The workdir could not be made: nothing was sent.
    NoWorkdir {
        /// What the system said.
        message: String,
    },
}

/// Something to do.
#[derive(Debug)]
pub enum Effect {
    /// Send on the current link.
    Send(Box<ToControlPlane>),
    /// Write an audit line.
    Record(Fact),
    /// Write the verdict, and only then send `accepted`.
    Admit {
        /// The instance.
        instance: InstanceName,
        /// The verdict.
        fact: Fact,
        /// The message.
        answer: Box<ToControlPlane>,
    },
    /// Read the object of that name, consistently, in each of these namespaces until one has it.
    Look {
        /// The instance.
        instance: InstanceName,
        /// Numbers the read.
        look: u64,
        /// Where it may be.
        namespaces: Vec<KubeNamespace>,
    },
    /// Write the intent, make the workdir, POST, write the outcome.
    Create {
        /// The instance.
        instance: InstanceName,
        /// For whom.
        subject: Subject,
        /// What.
        rendered: Arc<Rendered>,
    },
    /// Write the intent, DELETE by UID, write the outcome.
    Delete {
        /// The instance.
        instance: InstanceName,
        /// Its namespace.
        namespace: KubeNamespace,
        /// Its UID.
        uid: String,
        /// For whom.
        subject: Subject,
        /// Why.
        why: &'static str,
        /// Without grace: its node is gone.
        force: bool,
    },
    /// Read a Node object.
    ReadNode {
        /// Its name.
        node: NodeName,
    },
    /// Look for what is left of a gone node.
    Sweep(Box<Sweep>),
    /// Write the intent, remove by UID without grace, write the outcome.
    Remove {
        /// What.
        remnant: Remnant,
        /// Its kind.
        kind: Kind,
        /// Why.
        why: &'static str,
    },
    /// Start to follow a log.
    Follow(FollowOrder),
    /// More of a stream may be sent.
    Credit {
        /// The stream.
        stream: u64,
        /// Bytes.
        bytes: u64,
    },
    /// The container of a followed log changed.
    Container {
        /// The stream.
        stream: u64,
        /// How.
        state: ContainerState,
    },
    /// Stop following.
    StopFollow {
        /// The stream.
        stream: u64,
    },
    /// Stop all follows: their link is gone.
    StopFollows,
    /// Answer `check`.
    Check {
        /// The request.
        request: u64,
        /// Run namespaces.
        namespaces: Vec<KubeNamespace>,
        /// Digest of the policy in force.
        policy: String,
    },
    /// Answer `lookup`.
    Lookup {
        /// The request.
        request: u64,
        /// The name to look for.
        instance: InstanceName,
        /// Labels that make it the caller's.
        labels: BTreeMap<String, String>,
        /// Delete it when it is.
        delete: bool,
        /// Our enrolment.
        install: String,
        /// Where to look.
        namespaces: Vec<KubeNamespace>,
    },
    /// Watch these namespaces from now on, and no others.
    Watch {
        /// The namespaces.
        namespaces: Vec<KubeNamespace>,
    },
    /// Close the link; the next one is dialled at once.
    Redial {
        /// Said in the daemon's log.
        why: &'static str,
    },
    /// A condition of being ready holds, or does not and why.
    Condition(Condition, Result<(), String>),
}

/// What a log follow needs to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowOrder {
    /// The stream.
    pub stream: u64,
    /// Namespace of the Pod.
    pub namespace: KubeNamespace,
    /// The Pod.
    pub instance: InstanceName,
    /// Id of its container, as the kubelet gives it.
    pub container: String,
    /// How much of the log is stored, in bytes.
    pub offset: u64,
    /// Where to go on.
    pub resume: ResumePoint,
    /// How much may be sent, in bytes.
    pub credit: u64,
    /// What the container does now.
    pub state: ContainerState,
}

/// What the container of an instance does, as far as its log is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It has not started.
    Waiting,
    /// It runs: its log grows.
    Running,
    /// It ended: its log is complete.
    Ended,
    /// The object is gone, and its log with it.
    Gone,
}

/// Why an object could not be read. Either way nothing is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The daemon has no right to read there now. That says nothing of what is there: rights come and go.
    Forbidden,
    /// No answer, or one that makes no sense.
    Unclear,
}
