//! Layer 1: `Admitted` and node facts → manifest. Pure; never sees a wire struct.
