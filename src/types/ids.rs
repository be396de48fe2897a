//! Ids chosen by the sender of a dispatch, and the name derived from them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::InstanceName;

/// A text that is not a dispatch id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a dispatch id: 32 lower-case hex digits are expected")]
pub struct InvalidId {
    text: String,
}

/// Names one dispatch for ever: 128 random bits, chosen by the control plane, written as 32 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "String", into = "String")]
pub struct DispatchId(String);

impl DispatchId {
    /// Makes an id from 16 random bytes that the caller drew; this module has no randomness of its own.
    pub fn from_random(bytes: [u8; 16]) -> Self {
        Self(hex(&bytes))
    }

    /// The 32 hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of the object that this dispatch makes at `attempt`: `lakeshore-<8 hex>`, where the digits are the
    /// first 32 bits of SHA-256 over the id and the attempt.
    ///
    /// **Source:** `design.md` section 3; the form is \[L\] S88. A derived name makes a replayed dispatch find its own object.
    pub fn instance_name(&self, attempt: Attempt) -> InstanceName {
        let digest = Sha256::new().chain_update(self.0.as_bytes()).chain_update(b"/").chain_update(attempt.0.to_string()).finalize();
        InstanceName::from_digest(&hex(digest.get(..4).unwrap_or_default()))
    }
}

impl FromStr for DispatchId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let well_formed = text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if well_formed { Ok(Self(text.to_owned())) } else { Err(InvalidId { text: text.chars().take(64).collect() }) }
    }
}

impl TryFrom<String> for DispatchId {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        text.parse()
    }
}

impl From<DispatchId> for String {
    fn from(id: DispatchId) -> Self {
        id.0
    }
}

impl fmt::Display for DispatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Counts the tries of one dispatch, from 1. The control plane picks it; each attempt has an object name of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instance_name_is_derived_and_differs_by_attempt() {
        let id = DispatchId::from_random([7; 16]);
        let first = id.instance_name(Attempt(1));
        assert_eq!(first, id.instance_name(Attempt(1)));
        assert_ne!(first, id.instance_name(Attempt(2)));
        let digits = first.as_str().strip_prefix("lakeshore-").expect("the prefix of S88");
        assert_eq!(digits.len(), 8);
        assert!(digits.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()));
    }

    #[test]
    fn only_32_lower_case_hex_digits_are_an_id() {
        for bad in ["", "abc", "ABCDEF00112233445566778899aabbcc", "g0000000000000000000000000000000", "../../../../../../../../../../etc"] {
            assert!(bad.parse::<DispatchId>().is_err(), "{bad:?}");
        }
        assert!("00112233445566778899aabbccddeeff".parse::<DispatchId>().is_ok());
    }
}
