//! Ring `render`: whole manifests, and scripts that arrive byte for byte. Needs nothing but a shell.

#[path = "../support/covers.rs"]
mod covers;
mod expansion;
mod manifest;
mod safety;
mod story;
mod wrapper;
