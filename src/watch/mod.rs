//! Layer 2: reads from Kubernetes: object streams and log follows.
