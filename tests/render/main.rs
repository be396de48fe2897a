//! Ring `render`.
