//! Layer 0: the domain's words.
//!
//! Ids, Kubernetes names with their limits, the state an instance has towards callers, and the closed list of reasons.
//! Nothing here knows the wire, Kubernetes' API types, time or I/O. Tests are inline.

mod ids;
mod name;
mod nearest;
mod placement;
mod shell;
mod slug;
mod state;

pub(crate) use ids::hex;
pub use ids::{Attempt, DispatchId, InvalidId};
pub use name::{ImageRef, InstanceName, InvalidName, KubeName, KubeNamespace, NodeName, ResourceName};
pub use nearest::nearest;
pub use placement::{Placement, Role};
pub use shell::{shell_quoted, shell_word};
pub use slug::{MAX_LABEL_VALUE, label_key, label_value, slug};
pub use state::{Observation, Reason, State, advance};

/// Label on every launch (\[L\] S89): the string `"true"`.
pub const LABEL_LAKESHORE: &str = "lakeshore";
/// Label that carries the control-plane namespace's slug (\[L\] S89, A33).
pub const LABEL_NAMESPACE: &str = "lakeshore.namespace";
/// Label that carries the provider's slug (\[L\] S89).
pub const LABEL_PROVIDER: &str = "lakeshore.provider";
/// Label that carries the node whose daemon made the object ([`Placement::label`]); empty on what was placed `cluster`.
pub const LABEL_NODE: &str = "nymph.dev/node";
/// Label that says what the object is: `launch` or `run`.
pub const LABEL_KIND: &str = "nymph.dev/kind";
/// Label that carries the enrolment that made the object; without it nothing is adopted or deleted.
pub const LABEL_INSTALL: &str = "nymph.dev/install";
/// Annotation that carries the dispatch id.
pub const ANNOTATION_DISPATCH: &str = "nymph.dev/dispatch-id";
/// Annotation that carries the attempt, in decimal.
pub const ANNOTATION_ATTEMPT: &str = "nymph.dev/attempt";
/// Annotation that carries who asked, as the control plane asserted it.
pub const ANNOTATION_REQUESTED_BY: &str = "nymph.dev/requested-by";
/// Annotation that carries the SHA-256 of the manifest without this annotation, in hex.
pub const ANNOTATION_MANIFEST: &str = "nymph.dev/manifest-sha256";
/// Prefixes of label keys that nobody but nymph and Kubernetes may set.
pub const RESERVED_LABEL_PREFIXES: [&str; 4] = ["nymph.dev/", "kubernetes.io/", "k8s.io/", "lakeshore."];
