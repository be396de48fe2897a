//! Layer 1: Kubernetes objects → observation; log bytes → chunks with resume points.
