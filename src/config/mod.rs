//! Layer 1: the daemon's configuration: file, environment, flags, defaults.
