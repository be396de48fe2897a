//! Layer 1: an admitted dispatch and its place become a manifest. Pure: the same input gives the same bytes.
//!
//! What is written here is all that a dispatch can bring into a cluster; fields that matter for safety are constants of
//! `manifest.rs`. It never sees a wire struct, sends nothing and makes no folder. Tests: `tests/render/`.

mod error;
mod manifest;
mod wrapper;

pub use error::RenderError;
pub use manifest::{Place, Rendered, WorkdirPath, launch};
pub use wrapper::MAX_COMMAND;
