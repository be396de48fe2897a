//! What an audit line can say.

use crate::types::{Attempt, DispatchId, InstanceName, KubeNamespace, NodeName};
use crate::wire::Rejection;

/// For which dispatch something was decided, and who asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The dispatch; with the attempt it joins intent and outcome.
    pub dispatch: DispatchId,
    /// Its attempt.
    pub attempt: Attempt,
    /// `<namespace>/<user>` as the control plane asserted it; empty when only the object was seen.
    pub requested_by: String,
}

/// The object that was acted on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its Kubernetes namespace.
    pub namespace: KubeNamespace,
    /// Its name.
    pub name: InstanceName,
    /// Its UID, once it has one.
    pub uid: Option<String>,
}

/// What is left of a node that is gone, for a line about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remnant {
    /// For which dispatch it was made, where it says so.
    pub subject: Option<Subject>,
    /// `Pod` or `Job`.
    pub kind: &'static str,
    /// Its Kubernetes namespace.
    pub namespace: KubeNamespace,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// One decision or act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// This process began to write.
    DaemonStarted {
        /// Release.
        version: &'static str,
    },
    /// A policy is in force from now on; every later line carries its digest.
    PolicyLoaded {
        /// SHA-256 of the file.
        digest: String,
    },
    /// A changed policy file is not valid; the one before stays in force.
    PolicyRejected {
        /// What is wrong with it.
        message: String,
    },
    /// The control plane let this daemon in.
    SessionOpened {
        /// The session, as the control plane named it.
        session: String,
        /// The enrolment.
        install: String,
    },
    /// Policy and validation let the dispatch pass.
    DispatchAdmitted {
        /// Whose.
        subject: Subject,
        /// The object that may now be made.
        object: Object,
        /// SHA-256 of its manifest.
        manifest: String,
    },
    /// The dispatch is refused.
    DispatchRejected {
        /// Whose.
        subject: Subject,
        /// Why.
        rejection: Rejection,
    },
    /// The object is about to be POSTed.
    CreateIntended {
        /// For whom.
        subject: Subject,
        /// What.
        object: Object,
        /// SHA-256 of its manifest.
        manifest: String,
    },
    /// The API server has the object.
    CreateDone {
        /// For whom.
        subject: Subject,
        /// What; its UID is known.
        object: Object,
    },
    /// The object was not made, or it is not known whether it was.
    CreateFailed {
        /// For whom.
        subject: Subject,
        /// What.
        object: Object,
        /// What the cluster said.
        message: String,
    },
    /// An object that was there already belongs to the dispatch.
    Adopted {
        /// Whose.
        subject: Subject,
        /// What.
        object: Object,
    },
    /// The object is about to be deleted.
    DeleteIntended {
        /// For whom.
        subject: Subject,
        /// What.
        object: Object,
        /// Why: a request, or the object of a dispatch that had ended.
        why: &'static str,
    },
    /// The API server took the deletion.
    DeleteDone {
        /// For whom.
        subject: Subject,
        /// What.
        object: Object,
    },
    /// The deletion failed or was refused.
    DeleteFailed {
        /// For whom.
        subject: Subject,
        /// What.
        object: Object,
        /// What the cluster said.
        message: String,
    },
    /// A node is gone: what was on it is removed.
    NodeGone {
        /// Its name.
        node: NodeName,
        /// UID of its Node object, where one was known.
        uid: Option<String>,
        /// By what it is known.
        why: &'static str,
    },
    /// What a gone node has left is about to be removed.
    RemoveIntended {
        /// What.
        remnant: Remnant,
        /// Why.
        why: &'static str,
    },
    /// The API server took the removal.
    RemoveDone {
        /// What.
        remnant: Remnant,
    },
    /// The removal failed or was refused.
    RemoveFailed {
        /// What.
        remnant: Remnant,
        /// What the cluster said.
        message: String,
    },
    /// The dispatch ended without its object ever being seen.
    Lost {
        /// Whose.
        subject: Subject,
    },
}

impl Fact {
    /// Name of the event on the line.
    pub(super) fn event(&self) -> &'static str {
        match self {
            Self::DaemonStarted { .. } => "daemon_started",
            Self::PolicyLoaded { .. } => "policy_loaded",
            Self::PolicyRejected { .. } => "policy_rejected",
            Self::SessionOpened { .. } => "session_opened",
            Self::DispatchAdmitted { .. } => "dispatch_admitted",
            Self::DispatchRejected { .. } => "dispatch_rejected",
            Self::CreateIntended { .. } => "create_intended",
            Self::CreateDone { .. } => "create_done",
            Self::CreateFailed { .. } => "create_failed",
            Self::Adopted { .. } => "adopted",
            Self::DeleteIntended { .. } => "delete_intended",
            Self::DeleteDone { .. } => "delete_done",
            Self::DeleteFailed { .. } => "delete_failed",
            Self::NodeGone { .. } => "node_gone",
            Self::RemoveIntended { .. } => "remove_intended",
            Self::RemoveDone { .. } => "remove_done",
            Self::RemoveFailed { .. } => "remove_failed",
            Self::Lost { .. } => "lost",
        }
    }

    /// The dispatch that the fact is about.
    pub(super) fn subject(&self) -> Option<&Subject> {
        match self {
            Self::DaemonStarted { .. }
            | Self::PolicyLoaded { .. }
            | Self::PolicyRejected { .. }
            | Self::SessionOpened { .. }
            | Self::NodeGone { .. } => None,
            Self::RemoveIntended { remnant, .. } | Self::RemoveDone { remnant } | Self::RemoveFailed { remnant, .. } => remnant.subject.as_ref(),
            Self::DispatchAdmitted { subject, .. }
            | Self::DispatchRejected { subject, .. }
            | Self::CreateIntended { subject, .. }
            | Self::CreateDone { subject, .. }
            | Self::CreateFailed { subject, .. }
            | Self::Adopted { subject, .. }
            | Self::DeleteIntended { subject, .. }
            | Self::DeleteDone { subject, .. }
            | Self::DeleteFailed { subject, .. }
            | Self::Lost { subject } => Some(subject),
        }
    }

    /// The object that the fact is about: where it is, and its UID once it has one.
    pub(super) fn object(&self) -> Option<(String, Option<&str>)> {
        if let Self::RemoveIntended { remnant, .. } | Self::RemoveDone { remnant } | Self::RemoveFailed { remnant, .. } = self {
            return Some((format!("{}/{}", remnant.namespace, remnant.name), Some(&remnant.uid)));
        }
        self.instances_object().map(|object| (format!("{}/{}", object.namespace, object.name), object.uid.as_deref()))
    }

    fn instances_object(&self) -> Option<&Object> {
        match self {
            Self::DispatchAdmitted { object, .. }
            | Self::CreateIntended { object, .. }
            | Self::CreateDone { object, .. }
            | Self::CreateFailed { object, .. }
            | Self::Adopted { object, .. }
            | Self::DeleteIntended { object, .. }
            | Self::DeleteDone { object, .. }
            | Self::DeleteFailed { object, .. } => Some(object),
            _ => None,
        }
    }

    /// SHA-256 of the manifest, where one is at stake.
    pub(super) fn manifest(&self) -> Option<&str> {
        match self {
            Self::DispatchAdmitted { manifest, .. } | Self::CreateIntended { manifest, .. } => Some(manifest),
            _ => None,
        }
    }

    /// The rule that decided and how it decided.
    pub(super) fn verdict(&self) -> (Option<&str>, Option<&'static str>) {
        match self {
            Self::DispatchAdmitted { .. } => (None, Some("admitted")),
            Self::DispatchRejected { rejection, .. } => (Some(&rejection.rule), Some("rejected")),
            _ => (None, None),
        }
    }

    /// Free text.
    pub(super) fn message(&self) -> Option<String> {
        match self {
            Self::DaemonStarted { version } => Some(format!("version {version}")),
            Self::SessionOpened { session, install } => Some(format!("session {session}, install {install}")),
            Self::DispatchRejected { rejection, .. } => Some(format!("{}: {}", rejection.code, rejection.message)),
            Self::PolicyRejected { message } | Self::CreateFailed { message, .. } | Self::DeleteFailed { message, .. } => Some(message.clone()),
            Self::DeleteIntended { why, .. } => Some((*why).to_owned()),
            Self::NodeGone { node, uid, why } => Some(format!("node {node} (UID {}): {why}", uid.as_deref().unwrap_or("not known"))),
            Self::RemoveIntended { remnant, why } => Some(format!("{}: its node is gone: {why}", remnant.kind)),
            Self::RemoveFailed { message, .. } => Some(message.clone()),
            _ => None,
        }
    }
}
