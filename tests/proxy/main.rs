//! Proves the fault proxies themselves, between small peers of the test's own. Needs nothing.

#[path = "../support/proxy/mod.rs"]
mod proxy;

mod api;
mod tcp;
mod ws;
