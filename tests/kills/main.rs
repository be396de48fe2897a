//! Ring `kills`: SIGKILL of daemon, control plane or both, at named points and at random, under 20 launches a second.
//!
//! The real programs run against a real etcd and kube-apiserver; a scripted kubelet binds and "runs" Pods, and a third party deletes some of
//! them. At the end independent witnesses are compared: the callers' 202s, the API server's own audit log of creates, and a host file with
//! one line for each Pod that ran. 0 may be missing, 0 doubled, 0 told a wrong end.
//!
//! | file | holds |
//! |---|---|
//! | `point.rs` | the moments at which something is killed |
//! | `scene.rs` | the processes, the relays, and who kills |
//! | `caller.rs` | the load, with keys and retries as a real caller has |
//! | `kubelet.rs`, `containerlogs.rs` | the scripted kubelet |
//! | `ledger.rs`, `witness.rs` | what was seen |
//! | `judge.rs` | what that proves: pure, with tests of its own |
//! | `parts.rs` | rounds, their results, and going on after a cut |

mod caller;
mod containerlogs;
#[path = "../support/covers.rs"]
mod covers;
mod judge;
mod kubelet;
mod ledger;
mod parts;
mod point;
#[path = "../support/proxy/mod.rs"]
mod proxy;
mod scene;
#[path = "../support/shell.rs"]
#[allow(dead_code, reason = "each test target uses a part")]
mod shell;
mod witness;
#[path = "../apiserver/world.rs"]
#[allow(dead_code, unused_imports, reason = "the apiserver ring's world, of which this ring uses a part")]
mod world;

use covers::covers;
use point::Kind;

#[test]
fn kills_of_the_daemon_lose_and_double_nothing() {
    covers!("S65", "S132");
    parts::run_all(Kind::Daemon);
}

#[test]
fn kills_of_the_control_plane_lose_and_double_nothing() {
    covers!("S65", "S132");
    parts::run_all(Kind::ControlPlane);
}

#[test]
fn kills_of_both_lose_and_double_nothing() {
    covers!("S65", "S132");
    parts::run_all(Kind::Both);
}
