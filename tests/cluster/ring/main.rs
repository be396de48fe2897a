//! Ring `cluster`: both charts installed on a real Kubernetes of two nodes, real Pods, and the programs that people use.
//!
//! `tests/run cluster` boots the cluster by `deploy/demo` (the very steps of the README) and passes what `deploy/demo env`
//! prints. Witnesses are independent of nymph: kubectl, the API server's audit log, files on the nodes, the scripts themselves.
//! Each test makes launches of its own; tests run one after the other, since some kill what the others need.

#[path = "../../support/covers.rs"]
mod covers;
mod crash;
mod deletion;
mod launch;
mod nodes;
mod refusal;
mod script;
#[path = "../../support/shell.rs"]
mod shell;
mod world;
