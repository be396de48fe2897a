//! Layer 1: what was seen becomes what is said.
//!
//! [`pod`] and [`gone`] turn a Pod, or its absence, into an [`crate::types::Observation`]; [`LogFramer`] turns the bytes of the log API into the
//! container's own bytes with places to resume from. Neither reads anything itself. Tests: inline.

mod framer;
mod gone;
mod pod;
mod stamp;

pub use framer::{LogFramer, Piece};
pub use gone::{Gone, gone};
pub use pod::{CONTAINER, pod};
