//! Layer 3: wiring, one state loop, effects, shutdown.
