//! Layer 1: observations become numbered reports, kept until the control plane has them on disk.
//!
//! [`Outbox`] holds one slot an instance. Nothing of it is on disk: after a restart the daemon looks at its objects again and takes the
//! sequences from `welcome`. It sends nothing itself. Tests: inline.

mod outbox;

pub use outbox::Outbox;
