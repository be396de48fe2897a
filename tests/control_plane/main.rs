//! The control plane over real sockets, files and processes: `lakeshore serve` runs as the program it is, a killed one is killed
//! with SIGKILL, and callers speak HTTP. Daemons are scripted at the wire, since a real one cannot be made to misbehave.

#[path = "../support/covers.rs"]
mod covers;

mod daemon;
#[path = "../support/issuer.rs"]
mod issuer;
mod launched;
mod plane;
mod proof;

mod admin;
mod auth;
mod backup;
mod deletes;
mod disk_full;
mod durability;
mod enrolments;
mod identity;
mod launches;
mod logs;
mod requests;
mod restarts;
mod sessions;
mod setup;
mod torture;
