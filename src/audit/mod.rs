//! Layer 2: typed facts, hash chain, sinks.
