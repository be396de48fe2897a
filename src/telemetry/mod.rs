//! Layer 2: tracing-subscriber, health and readiness.
