//! Layer 2: the daemon's own log, and whether it is ready.
//!
//! Logs go to stdout, one line an event, as JSON or text; audit lines share it (`crate::audit`). Messages are fixed texts;
//! what changes stands in fields. Tests are inline.

mod health;
mod log;

pub use health::{Condition, Health};
pub use log::{TelemetryError, init};
