//! Layer 3: lakeshore's server: HTTP, hub, store, logs.
