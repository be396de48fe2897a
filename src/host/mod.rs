//! Layer 2: the node. Makes workdirs, by directory descriptors only.
//!
//! The daemon is root on the node and makes folders below a tree in which strangers' containers have folders too. Every step is
//! therefore taken from an open directory and follows no link; no path with more than one part is ever given to the kernel below
//! the root. **Source:** `faults.md`, Buildkite CVE-2023-43116 and CVE-2023-43741: a helper that walked paths as root.
//!
//! Knows nothing of Kubernetes beyond two names. Tests are inline.

mod error;
mod workdir;

pub use error::HostError;
pub use workdir::Workdirs;
