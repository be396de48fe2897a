//! Ring `apiserver`: the real programs against a real etcd and kube-apiserver, without scheduler and kubelet.
//!
//! The tests play scheduler and kubelet (bindings, statuses), which makes every phase and every race reachable at once. The
//! daemon has no more rights than the chart's own account. `tests/run apiserver` boots the cluster (`--nodes 0`) and runs this
//! binary inside its network namespace. Log streams need a kubelet; they are the `cluster` ring's.

#[path = "../support/covers.rs"]
mod covers;
mod cluster;
mod crash;
mod identity;
mod refusal;
#[allow(dead_code, reason = "each test target uses a part")]
#[path = "../support/shell.rs"]
mod shell;
mod state;
#[allow(dead_code, unused_imports, reason = "other rings use other parts of it")]
mod world;
