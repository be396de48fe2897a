//! lakeshore.
fn main() {}
