//! Refusals, and the opening of a dispatch's bytes.

use crate::error::Chain;
use crate::wire::{Dispatch, InvalidDispatch};
pub use crate::wire::{Rejection, RejectionCode};

/// A refusal of something that is malformed or impossible, whoever owns the cluster.
pub fn invalid(field: &str, message: impl Into<String>) -> Rejection {
    Rejection { code: RejectionCode::Invalid, rule: field.to_owned(), message: message.into() }
}

/// Opens the opaque bytes of a dispatch.
///
/// # Errors
/// A [`Rejection`] with rule `dispatch`; unknown fields are refused, so that no limit is ever overlooked.
pub fn parse_dispatch(bytes: &[u8]) -> Result<Dispatch, Rejection> {
    Dispatch::decode(bytes).map_err(|error| from_wire(&error))
}

/// The refusal that stands for a dispatch whose content cannot be work.
pub(super) fn from_wire(error: &InvalidDispatch) -> Rejection {
    let field = match error {
        InvalidDispatch::Malformed { .. } | InvalidDispatch::Version { .. } | InvalidDispatch::TooManyValues { .. } => "dispatch",
        InvalidDispatch::NotBase64 { .. } | InvalidDispatch::NotUtf8 { .. } | InvalidDispatch::Nul { .. } | InvalidDispatch::ScriptTooLong => {
            "script"
        }
    };
    invalid(field, Chain(error).to_string())
}
