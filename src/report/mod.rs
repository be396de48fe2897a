//! Layer 1: observation → numbered wire reports, kept in memory until they are acknowledged.
