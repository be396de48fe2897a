//! Binary frames.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{MAX_BINARY, ResumePoint};
use crate::types::{Attempt, DispatchId, InstanceName, Placement};

const VERSION: u8 = 1;
const KIND_DISPATCH: u8 = 1;
const KIND_LOG: u8 = 2;
/// Version, kind and the length of the JSON header.
const PREFIX: usize = 6;
/// Longest JSON header, in bytes: its texts are names of bounded length.
const MAX_HEADER: usize = 16 << 10;

/// A binary frame: `version: u8 = 1`, `kind: u8`, `header length: u32` big-endian, the header in JSON, the payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Binary {
    /// Kind 1, control plane → daemon: an envelope, and the opaque bytes of a [`super::Dispatch`].
    Dispatch(DispatchEnvelope, Bytes),
    /// Kind 2, daemon → control plane: bytes of an instance's log.
    Log(LogChunk, Bytes),
}

/// What the daemon needs to know of a dispatch before it opens it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DispatchEnvelope {
    /// The dispatch.
    pub dispatch_id: DispatchId,
    /// Which attempt this is.
    pub attempt: Attempt,
    /// The name of the object it makes; must be the one derived from the two above.
    pub instance: InstanceName,
    /// The enrolment that it is meant for.
    pub install: String,
    /// The place that it is meant for: nobody else may take it.
    pub placement: Placement,
    /// The control plane has already heard `accepted` for it: it must not be created again.
    #[serde(default)]
    pub accepted_before: bool,
}

/// Where a log chunk belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LogChunk {
    /// The stream, as named by `logs_follow`.
    pub stream: u64,
    /// Byte offset of the payload's first byte in the instance's log.
    pub offset: u64,
    /// Where to go on after the payload's last byte.
    pub resume: ResumePoint,
}

/// A binary frame that could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// Longer than [`MAX_BINARY`].
    #[error("binary frame of {length} bytes is over the limit of {MAX_BINARY}")]
    TooLong {
        /// Its length, in bytes.
        length: usize,
    },
    /// Shorter than its own header says, or of an unknown version or kind.
    #[error("binary frame is malformed: {what}")]
    Malformed {
        /// What is wrong with it.
        what: &'static str,
    },
    /// The header is not the JSON of its kind.
    #[error("binary frame has a bad header")]
    Header {
        /// What the JSON reader said.
        #[source]
        source: serde_json::Error,
    },
}

impl Binary {
    /// Reads a binary frame. The payload shares the frame's memory.
    ///
    /// # Errors
    /// [`BinaryError`] for any bytes that [`Binary::encode`] cannot have made; it never panics.
    pub fn decode(frame: Bytes) -> Result<Self, BinaryError> {
        if frame.len() > MAX_BINARY {
            return Err(BinaryError::TooLong { length: frame.len() });
        }
        let (prefix, rest) = frame.split_at_checked(PREFIX).ok_or(BinaryError::Malformed { what: "no header" })?;
        let &[version, kind, a, b, c, d] = prefix else { return Err(BinaryError::Malformed { what: "no header" }) };
        if version != VERSION {
            return Err(BinaryError::Malformed { what: "unknown version" });
        }
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if length > MAX_HEADER {
            return Err(BinaryError::Malformed { what: "header too long" });
        }
        let header = rest.get(..length).ok_or(BinaryError::Malformed { what: "header longer than the frame" })?;
        let bad = |source| BinaryError::Header { source };
        let payload = frame.slice(PREFIX + length..);
        match kind {
            KIND_DISPATCH => Ok(Self::Dispatch(serde_json::from_slice(header).map_err(bad)?, payload)),
            KIND_LOG => Ok(Self::Log(serde_json::from_slice(header).map_err(bad)?, payload)),
            _ => Err(BinaryError::Malformed { what: "unknown kind" }),
        }
    }

    /// Writes a binary frame.
    ///
    /// # Errors
    /// [`BinaryError::TooLong`] when it would be over [`MAX_BINARY`]; the caller must not send it.
    pub fn encode(&self) -> Result<Bytes, BinaryError> {
        let bad = |source| BinaryError::Header { source };
        let (kind, header, payload) = match self {
            Self::Dispatch(envelope, payload) => (KIND_DISPATCH, serde_json::to_vec(envelope).map_err(bad)?, payload),
            Self::Log(chunk, payload) => (KIND_LOG, serde_json::to_vec(chunk).map_err(bad)?, payload),
        };
        let length = PREFIX + header.len() + payload.len();
        if length > MAX_BINARY || header.len() > MAX_HEADER {
            return Err(BinaryError::TooLong { length });
        }
        let header_length = u32::try_from(header.len()).map_err(|_| BinaryError::TooLong { length })?;
        let mut frame = Vec::with_capacity(length);
        frame.extend_from_slice(&[VERSION, kind]);
        frame.extend_from_slice(&header_length.to_be_bytes());
        frame.extend_from_slice(&header);
        frame.extend_from_slice(payload);
        Ok(frame.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn envelope() -> DispatchEnvelope {
        let dispatch_id = DispatchId::from_random([1; 16]);
        let instance = dispatch_id.instance_name(Attempt(1));
        DispatchEnvelope {
            dispatch_id,
            attempt: Attempt(1),
            instance,
            install: "c1-0".into(),
            placement: Placement::Node("n1".parse().expect("a node name")),
            accepted_before: false,
        }
    }

    proptest! {
        #[test]
        fn decode_after_encode_is_identity(payload in proptest::collection::vec(any::<u8>(), 0..2000), offset in any::<u64>()) {
            let dispatch = Binary::Dispatch(envelope(), payload.clone().into());
            prop_assert_eq!(Binary::decode(dispatch.encode().expect("it fits")).expect("it was encoded"), dispatch);
            let resume = ResumePoint { container: "c".into(), timestamp: "2026-11-30T00:00:00.000000001Z".into(), lines: 2, partial: 3 };
            let log = Binary::Log(LogChunk { stream: 9, offset, resume }, payload.into());
            prop_assert_eq!(Binary::decode(log.encode().expect("it fits")).expect("it was encoded"), log);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), version in 0u8..3, kind in 0u8..4, length in 0u32..400) {
            let _ = Binary::decode(bytes.clone().into());
            let mut framed = vec![version, kind];
            framed.extend_from_slice(&length.to_be_bytes());
            framed.extend_from_slice(&bytes);
            let _ = Binary::decode(framed.into());
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_neither_written_nor_read() {
        let payload = Bytes::from(vec![0; MAX_BINARY]);
        assert!(matches!(Binary::Dispatch(envelope(), payload).encode(), Err(BinaryError::TooLong { .. })));
        assert!(matches!(Binary::decode(Bytes::from(vec![0; MAX_BINARY + 1])), Err(BinaryError::TooLong { .. })));
    }
}
