//! Ring `cli`: the program `lakeshore` as a person meets it: messages, exit codes, and what goes over the wire.
//!
//! The built binary is run each time. Where a test needs a control plane that misbehaves on cue (a stream cut in the middle, an
//! answer that never comes), a small HTTP server plays it; everything else runs against `lakeshore serve` itself (`serve.rs`).

#[path = "../support/covers.rs"]
mod covers;

// A server and a scripted daemon, shared with the ring `control_plane`, which uses more of them.
#[allow(dead_code)]
#[path = "../control_plane/daemon.rs"]
mod daemon;
#[allow(dead_code)]
#[path = "../control_plane/plane.rs"]
mod plane;

mod backups;
mod follow;
mod help;
mod interrupt;
mod lakeshore;
mod new_tokens;
mod play;
mod real;
mod requests;
mod serve;
mod settings;
mod terminal;
