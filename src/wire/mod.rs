//! Layer 1: what travels on the websocket between a daemon and the control plane. This is the protocol page.
//!
//! The daemon dials out (`wss`, its [`VERSIONS`] as subprotocols) with `Authorization: Bearer <enrolment token>`, its place in the
//! headers [`ROLE_HEADER`] and [`NODE_HEADER`], and the proof of it in [`IDENTITY_HEADER`]. One message is one frame; nothing is
//! compressed and nothing is split over frames. Both ends' rules are [`DaemonSession`] and [`ControlPlaneSession`].
//!
//! ```text
//! daemon                                     control plane
//!   hello ───────────────────────────────────►   who I am, what I see, what I hold
//!   ◄─────────────────────────────── welcome     session, epoch, what you owe me (or close, typed)
//!   ◄─────────────────────────────── open        what of that welcome had no room for
//!   ◄────────────────────── dispatch (binary)    envelope + opaque bytes
//!   accepted | rejected ─────────────────────►
//!   ◄────────────────────────── accepted_ack     it is on disk: only now the daemon POSTs
//!   report(seq) ─────────────────────────────►
//!   ◄───────────────────────────────── ack(seq)
//!   ◄─────────────── logs_follow, logs_credit
//!   log chunk (binary), log_end ─────────────►
//!   ◄──────────────────────── cancel, lookup, check
//!   ◄───────────────────────────────── nodes      role `cluster` alone: the nodes to look after
//!   node_gone, node_back ────────────────────►
//!   ◄─────────────────────────────── orphans      what was accepted there: reported in this session
//!   heartbeat ◄──────────────────────────────►   every 15 s each way; dead after two missed
//! ```
//!
//! **Text frames** are JSON, at most [`MAX_TEXT`]: [`ToControlPlane`] and [`ToDaemon`], tagged by `type`. Unknown fields
//! are ignored in them, and messages of an unknown type are passed over. **Binary frames** are at most [`MAX_BINARY`]: [`Binary`] says how they are laid out. The bytes of a
//! [`Dispatch`] are opaque to the frame, so that they can be hashed without re-encoding, and unknown fields in them are
//! *refused*: an old daemon must not start work without a limit that it does not know.
//!
//! | version | since | changes |
//! |---|---|---|
//! | 1 | 0.1 | first |
//!
//! Each version is served at least 12 months, beside the one after it.
//!
//! **What may change within a version**: a field or a message may be added, never taken away or given another meaning; a field that is added may be
//! absent (`#[serde(default)]`). In a [`Dispatch`] nothing may be added that an older daemon can do without knowing. `tests/wire` holds it:
//!
//! - `tests/wire/corpus/v1/` has a frame of each kind as it travelled, with and without what may be left out. Files are only added; all are read for ever.
//! - `v1.schema.json` is the JSON Schema of every frame, generated from the structs. A struct that differs from it fails.
//! - `tests/fuzz` has the targets `frame`, `dispatch` and `log_framer`, whose corpora are replayed by `tests/wire` and grown by `tests/run fuzz`.
//!
//! After a change: `tests/wire/samples.rs` must name the new field (it does not compile before), then `tests/run generate wire`.
//!
//! **A new version**, when that is not enough: (1) a [`Version`] in `version.rs`, newest first, and a line above; (2) its messages in a module of their
//! own, with a conversion from and to those of the version before, so that sessions and what lies behind them know only the newest; (3) `schema.rs` and
//! `tests/wire` get a `v2` beside `v1`, whose corpus stays; (4) the version before the one before goes, with its corpus, when its 12 months are over.
//!
//! **Bounds** hold before and after reading: [`MAX_TEXT`] and [`MAX_BINARY`] bytes, [`MAX_VALUES`] and [`MAX_DISPATCH_VALUES`] JSON values, 128 levels. The
//! dearest text frame takes under 32 times [`MAX_TEXT`] of memory while it is read; `tests/wire/bounds.rs` measures it.
//!
//! This module never names a Kubernetes type, and has no I/O, clock or randomness. Tests: inline and `tests/wire/`.

mod bounds;
mod dispatch;
mod frame;
mod heartbeat;
mod message;
mod nodes;
mod refusal;
mod resume;
#[cfg(test)]
mod schema;
mod session;
mod version;
mod window;

pub use bounds::{MAX_DISPATCH_VALUES, MAX_VALUES, most_values};
pub use dispatch::{Caller, Dispatch, EnvVar, InvalidDispatch, LaunchDispatch, MAX_SCRIPT, Work, Workdir};
pub use frame::{Binary, BinaryError, DispatchEnvelope, LogChunk};
pub use heartbeat::{Beat, HEARTBEAT_INTERVAL, Heartbeat, MISSED_BEATS};
pub use message::{
    Ack, CheckItem, ClusterKeys, HeldItem, Hello, LogEndReason, NodeFacts, OpenItem, OpenPhase, Report, Taint, ToControlPlane, ToDaemon, Welcome,
};
pub use nodes::{Loss, NodeItem};
pub use refusal::{Close, CloseCode, Rejection, RejectionCode};
pub use resume::ResumePoint;
pub use session::{ControlPlaneSession, DaemonSession, Due, Frame, FromControlPlane, FromDaemon, HELLO_DEADLINE, Violation, WELCOME_DEADLINE};
pub use version::{VERSIONS, Version, negotiate, offer};
pub use window::Window;

/// Websocket subprotocol of version 1.
pub const SUBPROTOCOL: &str = "nymph.v1";
/// Handshake header that names the daemon's node; absent with role `cluster`.
pub const NODE_HEADER: &str = "x-nymph-node";
/// Handshake header that names the daemon's role; absent means `node`.
pub const ROLE_HEADER: &str = "x-nymph-role";
/// Handshake header that carries the daemon's projected ServiceAccount token, the proof of who it is.
pub const IDENTITY_HEADER: &str = "x-nymph-identity";
/// Path that daemons dial on the control plane.
pub const CONNECT_PATH: &str = "/v1/daemon/connect";
/// Longest text frame, in bytes.
pub const MAX_TEXT: usize = 1 << 20;
/// Open dispatches in one frame: an item is under 1000 bytes, so that they fit [`MAX_TEXT`] and [`MAX_VALUES`].
pub const OPEN_PAGE: usize = 1000;
/// Open dispatches that a session can begin with, in items. More than a place ever has but for a store that came back from a copy, which takes
/// all that was queued in it as accepted; a daemon holds some 500 bytes of each.
pub const MAX_OPEN_ITEMS: usize = 50_000;
/// Longest binary frame, in bytes: a dispatch with 900 KiB of script is 1.2 MiB of base64, plus its envelope.
pub const MAX_BINARY: usize = 2 << 20;
/// How far the sequence of a report may be above the stored one. A daemon counts by one, and what it counted without being acknowledged is
/// little; a leap would leave no number above it, and the instance's end could never be told.
pub const MAX_SEQUENCE_STEP: u64 = 1 << 32;
/// Longest UID of an object in a report, in bytes: Kubernetes' have 36.
pub const MAX_UID: usize = 128;
/// Credit that a log stream starts with and is topped up to, in bytes: what may be under way unacknowledged.
pub const LOG_CREDIT: u64 = 1 << 20;
/// Longest payload of one log chunk, in bytes.
pub const MAX_LOG_CHUNK: usize = 64 << 10;

/// A text frame that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The frame is longer than [`MAX_TEXT`].
    #[error("text frame of {length} bytes is over the limit of {MAX_TEXT}")]
    TooLong {
        /// Its length, in bytes.
        length: usize,
    },
    /// The frame holds more than [`MAX_VALUES`].
    #[error("text frame holds {values} JSON values, which is over the limit of {MAX_VALUES}")]
    TooManyValues {
        /// How many it can hold.
        values: usize,
    },
    /// The message is of a type that this release does not know: a later one's, which is passed over.
    #[error("text frame is of the unknown type {kind:?}")]
    Unknown {
        /// Its type, cut to a sane length.
        kind: String,
    },
    /// The frame is not JSON of a known message.
    #[error("text frame is not a known message")]
    Malformed {
        /// What the JSON reader said.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads a text frame.
///
/// # Errors
/// [`TextError`] when it is too long, holds too many values, is not JSON, or of an unknown `type`, which is a variant of its own. Unknown fields are not an error.
pub fn decode_text<M: serde::de::DeserializeOwned>(text: &str) -> Result<M, TextError> {
    if text.len() > MAX_TEXT {
        return Err(TextError::TooLong { length: text.len() });
    }
    bounded(text)?;
    serde_json::from_str(text).map_err(|source| match unknown_kind(text, &source) {
        Some(kind) => TextError::Unknown { kind },
        None => TextError::Malformed { source },
    })
}

/// The message's type, when that is what the reader did not know.
fn unknown_kind(text: &str, error: &serde_json::Error) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Tagged {
        #[serde(rename = "type")]
        kind: String,
    }
    let Tagged { kind } = serde_json::from_str(text).ok()?;
    error.to_string().starts_with(&format!("unknown variant `{kind}`")).then(|| kind.chars().take(64).collect())
}

/// Writes a text frame.
///
/// # Errors
/// [`TextError`] when the result is over [`MAX_TEXT`] or [`MAX_VALUES`]; the caller must not send it.
pub fn encode_text<M: serde::Serialize>(message: &M) -> Result<String, TextError> {
    let text = serde_json::to_string(message).map_err(|source| TextError::Malformed { source })?;
    if text.len() > MAX_TEXT {
        return Err(TextError::TooLong { length: text.len() });
    }
    bounded(&text)?;
    Ok(text)
}

fn bounded(text: &str) -> Result<(), TextError> {
    let values = most_values(text.as_bytes());
    if values > MAX_VALUES { Err(TextError::TooManyValues { values }) } else { Ok(()) }
}
