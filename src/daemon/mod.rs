//! Layer 3: the daemon: wiring, one state loop, effects, shutdown.
//!
//! ```text
//!  link ────┐                               ┌─► link          messages
//!  watches ─┼─► events ─► DaemonState ─► effects ─► calls     read, create, delete; each comes back as an event
//!  calls ───┤             (no I/O)          ├─► follows       log bytes go straight to the link
//!  reload ──┘                               └─► audit, health
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the command line of `nymph` |
//! | `run.rs` | the wiring and the one loop |
//! | `event.rs` | what happens, and what is done about it |
//! | `state/` | [`DaemonState`]: decides; synchronous and pure |
//! | `effects.rs`, `check.rs`, `sweep.rs` | perform what it decided |
//! | `link.rs` | dials, and carries frames |
//! | `lease.rs` | whose turn it is among the daemons of role `cluster` |
//! | `follow.rs` | one log each |
//! | `facts.rs`, `reload.rs`, `health.rs`, `kubernetes.rs` | the node, changed files, probes, clients |
//!
//! The daemon keeps nothing on disk: after a crash it learns from the cluster's objects and from `welcome` what it must know.
//! Tests: inline, `state/tests/`, and the rings `loopback`, `apiserver` and `cluster`.

mod check;
mod command;
mod effects;
mod event;
mod facts;
mod follow;
mod health;
mod identity;
mod kubernetes;
mod lease;
mod link;
mod reload;
mod run;
mod state;
mod sweep;

pub use command::main;
pub use event::{ContainerState, Creation, Effect, Event, FollowOrder, Found, Now, Sweep, Swept, Unread};
pub use state::{DaemonState, Settings};
