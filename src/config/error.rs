//! Why a configuration cannot be used.

use std::fmt;

/// Where a value came from, as its reader would look for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A key of the file.
    File(&'static str),
    /// An environment variable.
    Env(&'static str),
    /// A flag.
    Flag(&'static str),
    /// The default of a key.
    Default(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(key) => write!(f, "key `{key}` of the configuration file"),
            Self::Env(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag --{name}"),
            Self::Default(key) => write!(f, "the default of `{key}`"),
        }
    }
}

/// A configuration that cannot be used. The caller adds the file's path.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is not YAML, or gives a key twice.
    #[error("the configuration file is not understood")]
    Malformed {
        /// What the reader said, with the position.
        #[source]
        source: serde_yaml::Error,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}` in the configuration file; {cure}")]
    UnknownKey {
        /// The key, with the path to it.
        key: String,
        /// The nearest right one, or all.
        cure: String,
    },
    /// A section where a value belongs, or the reverse.
    #[error("key `{key}` of the configuration file must be {expected}")]
    Shape {
        /// The key.
        key: String,
        /// What belongs there.
        expected: &'static str,
    },
    /// A required value that nobody gave.
    #[error("{what} is not set; give key `{path}` in the configuration file, {env} or --{flag}")]
    Missing {
        /// What it is.
        what: &'static str,
        /// Its key.
        path: &'static str,
        /// Its variable.
        env: &'static str,
        /// Its flag.
        flag: &'static str,
    },
    /// A value that cannot be used.
    #[error("{origin} cannot be used: {why}")]
    Value {
        /// Where it came from.
        origin: Origin,
        /// What is wrong, and what to write.
        why: String,
    },
}
