//! Layer 4: lakeshore's commands, one file each.
