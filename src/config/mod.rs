//! Layer 1: the daemon's configuration. A flag wins over the environment, that over the file, that over the default.
//!
//! [`resolve`] takes texts and gives a [`Config`] in which every value is there and checked; it reads no file and no environment
//! itself. The table of keys with their variables, flags and defaults is `key.rs`. An empty value counts as none, so that a chart may leave
//! one empty. Tests: inline and `tests/config/`.

mod error;
mod file;
mod flags;
mod key;
mod resolve;
mod url;

pub use error::{ConfigError, Origin};
pub use flags::Flags;
pub use key::{KEYS, Key};
pub use resolve::{Boot, Config, ControlPlane, Live, LogFormat, resolve};

/// Where the configuration file is looked for without `--config`.
pub const DEFAULT_FILE: &str = "/etc/nymph/nymph.yaml";
