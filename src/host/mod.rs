//! Layer 2: the node: workdirs by directory descriptors.
