//! Layer 2: what the daemon asks of the API server besides watching: creates, reads and deletes, each with a deadline.
//!
//! | file | holds |
//! |---|---|
//! | `call.rs` | one HTTP call: deadline, 429, what its failure means |
//! | `pod.rs` | create, read and delete a Pod |
//! | `lease.rs` | read, create and replace a Lease |
//! | `remains.rs` | a node's sight, and what is left of one that is gone |
//! | `facts.rs` | version, node, cluster UID, access reviews |
//! | `window.rs` | how many calls may be under way |
//!
//! The requests are made by hand on kube's client, since its typed calls hide the status line and `Retry-After`: whether a
//! POST was refused for certain or may still take effect decides between `rejected` and `lost`. Tests: inline against a real HTTP
//! server on loopback, and `tests/apiserver/`.

mod call;
mod facts;
mod lease;
mod pod;
mod remains;
#[cfg(test)]
mod tests;
mod window;

pub use call::{ApiServer, CallError};
pub use facts::Access;
pub use pod::{CreateOutcome, DeleteOutcome};
pub use remains::{Kind, Left, NodeSight};
pub use window::{Place, Window};
