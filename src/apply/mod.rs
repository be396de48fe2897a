//! Layer 2: writes to Kubernetes.
