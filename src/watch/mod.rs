//! Layer 2: reads that last: Pod watches and log follows.
//!
//! kube speaks HTTP/1.1, so that each of them is a connection of its own; their clients are separate from the one for unary calls.
//! Nothing is decided here: what arrives is handed on with where it came from. Tests: inline, and `tests/apiserver/`.

mod log;
mod pods;

pub use log::{LogError, LogStream};
pub use pods::{Binding, Scope, Seen, follow};
