//! Ring `cli`: the program `lakeshore` as a person meets it: messages, exit codes, and what goes over the wire.
//!
//! The built binary is run each time. Where a test needs a control plane that misbehaves on cue (a stream cut in the middle, an
//! answer that never comes), a small HTTP server plays it; everything else runs against `lakeshore serve` itself (`serve.rs`).

#[path = "../support/covers.rs"]
mod covers;

mod follow;
mod help;
mod interrupt;
mod lakeshore;
mod play;
mod requests;
mod serve;
mod settings;
mod terminal;
