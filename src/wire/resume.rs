//! Where a log stream goes on.

use serde::{Deserialize, Serialize};

/// A place in an instance's log. The API resumes by whole seconds only, so the place is told by the kubelet's time stamp and
/// by how much of what carries that very stamp was already taken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ResumePoint {
    /// Container id, so that the log of a restarted container is not taken for the old one. Empty before the first byte.
    pub container: String,
    /// Kubelet's time stamp of the last line of which a byte was taken, verbatim. Empty before the first byte.
    pub timestamp: String,
    /// Complete lines with that time stamp already taken.
    pub lines: u64,
    /// Bytes taken of the line that follows them, when it was only partly taken.
    pub partial: u64,
}
