//! Ring `cluster`: both charts installed on a real Kubernetes of two nodes, real Pods, and the programs that people use.
//!
//! `tests/run cluster` boots the cluster by `deploy/demo` (the very steps of the README) and passes what `deploy/demo env`
//! prints. Witnesses are independent of nymph: kubectl, the API server's audit log, files on the nodes, the scripts themselves.
//! Each test makes launches of its own; tests run one after the other, since some kill what the others need.

#[path = "../../kills/caller.rs"]
mod caller;
#[path = "../../support/covers.rs"]
mod covers;
mod crash;
mod deletion;
#[path = "../../kills/judge.rs"]
mod judge;
mod kills;
mod launch;
#[path = "../../kills/ledger.rs"]
#[allow(dead_code, reason = "there is no relay in this ring that notes messages")]
mod ledger;
mod nodes;
#[path = "../../kills/point.rs"]
#[allow(dead_code, reason = "only random moments are reached from outside")]
mod point;
#[path = "../../support/proxy/mod.rs"]
mod proxy;
mod refusal;
mod script;
#[path = "../../support/shell.rs"]
mod shell;
#[path = "../../kills/witness.rs"]
mod witness;
mod world;
