//! Layer 1: decides whether a dispatch may become an object. The only maker of an [`Admitted`].
//!
//! [`Policy::judge`] first turns every text of the dispatch into a type that has checked it (`validate`), then asks each rule of
//! the cluster owner's file ([`RULES`]). What has no field in [`crate::wire::Dispatch`] cannot be asked for at all, so privileged
//! containers, host networks, other volumes and accounts need no rule.
//!
//! It does not read the file, keep it current, or write the verdict down: that is the daemon's. Tests are inline; whole manifests
//! of admitted dispatches are in `tests/render/`.

mod admitted;
mod file;
mod image;
mod pattern;
mod rejection;
mod rule;
mod validate;

pub use admitted::{Admitted, AdmittedWorkdir};
pub use file::{Policy, PolicyError};
pub use image::normalise;
pub use rejection::{Rejection, RejectionCode, invalid, parse_dispatch};
pub use rule::{RULES, Rule};
pub use validate::MAX_ARGUMENT;
