//! Layer 2: the websocket to the control plane. It moves bytes and decides nothing.
//!
//! | file | holds |
//! |---|---|
//! | `target.rs` | where to dial: [`Url`], [`Target`] |
//! | `proxy.rs` | which proxy to use, and the CONNECT request |
//! | `tls.rs` | roots of trust, and what TLS' refusals mean |
//! | `connect.rs` | [`connect`]: TCP → proxy → TLS → websocket handshake |
//! | `link.rs` | the open connection: [`Reader`], [`Writer`] |
//! | `backoff.rs` | when to dial again: pure |
//! | `error.rs` | [`DialError`]: what went wrong and the cure |
//!
//! Tests: inline for the pure parts; `tests/dial/` against real TLS, proxies and servers that misbehave.

mod backoff;
mod connect;
mod error;
mod link;
mod proxy;
mod target;
mod tls;

pub use backoff::Backoff;
pub use connect::{HANDSHAKE_DEADLINE, connect};
pub use error::DialError;
pub use link::{LinkError, Reader, Writer};
pub use target::{InvalidUrl, Target, Url};
