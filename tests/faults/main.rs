//! Ring `faults`: the matrix of what must be survived, with real programs, a real kube-apiserver and fault proxies between them.
//!
//! `tests/faults/table` says which tests show which row; `tests/faults/run` runs them and prints one line a row. Tests in `alone` touch what all
//! share (the API server itself) and run one after the other, after the rest.

#![allow(clippy::disallowed_methods, reason = "real programs in real time, driven by plain threads")]

#[path = "../support/covers.rs"]
mod covers;
#[path = "../support/proxy/mod.rs"]
mod proxy;
mod rig;
#[path = "../support/rows.rs"]
mod rows;
#[allow(dead_code, reason = "each test target uses a part")]
#[path = "../support/shell.rs"]
mod shell;
#[allow(dead_code, unused_imports, reason = "the apiserver ring's world, of which this ring uses a part")]
#[path = "../apiserver/world.rs"]
mod world;

mod account;
mod alone;
mod answer;
mod calls;
mod creation;
mod delivery;
mod dialling;
mod herd;
mod hostile;
mod kubelet;
mod network;
