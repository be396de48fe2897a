//! A dispatch that passed.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::types::{ImageRef, KubeNamespace, ResourceName};

/// A dispatch that validation and the owner's policy let through. Only [`super::Policy::judge`] makes one, and nothing changes it.
#[derive(Clone, PartialEq)]
pub struct Admitted {
    pub(super) namespace: KubeNamespace,
    pub(super) image: ImageRef,
    pub(super) script: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) resources: Option<Map<String, Value>>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) caller_namespace: ResourceName,
    pub(super) provider: ResourceName,
    pub(super) user: String,
    pub(super) workdir: AdmittedWorkdir,
}

/// The workdir that was asked for and allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmittedWorkdir {
    /// A folder of the node below the daemon's root.
    HostPath,
    /// None.
    None,
}

impl Admitted {
    /// Kubernetes namespace; one of the policy's run namespaces.
    pub fn namespace(&self) -> &KubeNamespace {
        &self.namespace
    }

    /// Image in its full form, as [`super::normalise`] makes it: what was judged is what the kubelet gets, whatever short names
    /// the node's runtime knows.
    pub fn image(&self) -> &ImageRef {
        &self.image
    }

    /// The script's text, without NUL.
    pub fn script(&self) -> &str {
        &self.script
    }

    /// Arguments that follow the script's name; none holds a NUL.
    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// Environment as (name, literal value), each name once, in the order it was sent.
    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// The container's `resources`, as Kubernetes spells them; unknown keys are left for the API server to refuse.
    pub fn resources(&self) -> Option<&Map<String, Value>> {
        self.resources.as_ref()
    }

    /// The caller's own labels; none is reserved.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// Control-plane namespace of the caller.
    pub fn caller_namespace(&self) -> &ResourceName {
        &self.caller_namespace
    }

    /// Provider, as stored at the control plane.
    pub fn provider(&self) -> &ResourceName {
        &self.provider
    }

    /// Who asked, as the control plane asserts it.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The workdir.
    pub fn workdir(&self) -> AdmittedWorkdir {
        self.workdir
    }
}

impl fmt::Debug for Admitted {
    /// Leaves out what may be secret: the script, the arguments and the environment's values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admitted")
            .field("namespace", &self.namespace)
            .field("image", &self.image)
            .field("script_bytes", &self.script.len())
            .field("args", &self.args.len())
            .field("env", &self.env.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("caller_namespace", &self.caller_namespace)
            .field("provider", &self.provider)
            .field("user", &self.user)
            .field("workdir", &self.workdir)
            .finish_non_exhaustive()
    }
}
