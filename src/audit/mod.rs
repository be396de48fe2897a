//! Layer 2: who asked for what, what was decided, and what was done.
//!
//! One JSON line a decision goes to stdout (`"target":"audit"`) and, when configured, to a file of mode 0600. Each line
//! carries the hash of the one before it, so that a line that was changed or taken out breaks the chain ([`verify`]). An intent
//! line precedes each act on the cluster and an outcome line follows it, joined by dispatch and attempt.
//!
//! | file | holds |
//! |---|---|
//! | `fact.rs` | what can be said: [`Fact`] |
//! | `chain.rs` | facts → lines, and lines → verdict: pure |
//! | `sink.rs` | stdout and the file |
//! | `log.rs` | [`Audit`]: the thread that owns the chain |
//!
//! A fact never holds an env value, a script or a token. Tests are inline.

mod chain;
mod fact;
mod log;
mod sink;

pub use chain::{BrokenChain, verify};
pub use fact::{Fact, Object, Remnant, Subject};
pub use log::{Audit, AuditError};
