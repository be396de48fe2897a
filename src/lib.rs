//! nymph lets a remote control plane start work in a Kubernetes cluster without ever holding its kubeconfig.
//!
//! ```text
//!  caller ── REST ──► lakeshore serve ◄══ websocket (dialled by the daemon) ══ nymph daemon ── HTTPS ──► kube-apiserver
//!                     embedded database                                       policy → render → apply → watch → report
//! ```
//!
//! Modules are listed in the order data flows; the number is the layer, and arrows go to smaller numbers only (layer 1 from
//! left to right, the parts of layer 3 never to each other). `tests/layering.rs` reads the `use` lines and fails on a wrong arrow.
//!
//! # The life of a dispatch
//!
//! 1. `lakeshore launch` sends the script to `POST /v1/namespaces/NS/providers/P/launch`; `control_plane` validates it,
//!    writes a row to disk and offers the dispatch to the node's daemon over [`wire`].
//! 2. The daemon looks for an object of that name first. When there is none, `policy` judges the dispatch: the result is an
//!    `Admitted` or a rejection that names the rule. `audit` writes the verdict.
//! 3. The daemon answers `accepted`; the control plane stores that and acknowledges it. Only then `host` makes the
//!    workdir, `render` makes the manifest (a pure function) and `apply` POSTs it.
//! 4. `watch` follows the object, `observe` turns it into an observation, `report` numbers it, and it is sent until it
//!    is acknowledged. The log is followed from the moment the container starts.
//! 5. The control plane stores each step before it acknowledges it, and answers callers from its store.
//!
//! A daemon of role `node` answers for its node. One of role `cluster`, the holder of a Lease, answers for what the scheduler places, and
//! ends what was on a node that is gone: the control plane names the nodes, the daemon reads their Node objects, is handed the dispatches of those
//! that are gone, removes what they have left and reports the ends.
//!
//! After a crash of either side everything that must be known stands in the control plane's rows and on the objects
//! themselves (labels and annotations): the daemon keeps no file of its own.

pub mod error; // [0]
pub mod types; // [0]
pub mod wire; // [1]
pub mod policy; // [1]
pub mod render; // [1]
pub mod observe; // [1]
pub mod report; // [1]
pub mod config; // [1], its reload.rs is [2]
pub mod apply; // [2]
pub mod watch; // [2]
pub mod dial; // [2]
pub mod host; // [2]
pub mod audit; // [2]
pub mod telemetry; // [2]
#[cfg(feature = "daemon")]
pub mod daemon; // [3]
#[cfg(feature = "control-plane")]
pub mod control_plane; // [3]
#[cfg(feature = "cli")]
pub mod cli; // [4]
#[cfg(all(test, feature = "daemon", feature = "control-plane"))]
#[path = "../tests/loopback/mod.rs"]
mod loopback;
