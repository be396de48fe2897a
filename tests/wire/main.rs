//! Ring `wire`: what travels, as files that every later release must go on reading, and what hostile frames may cost. Needs nothing.

mod bounds;
mod compatibility;
mod corpus;
#[path = "../support/covers.rs"]
mod covers;
mod form;
mod replay;
mod samples;
mod variants;
