//! Any bytes as a frame, both ways: nothing panics, and what is read is written and read again as the same.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use nymph::types::Placement;
use nymph::wire::{self, Binary, BinaryError, ControlPlaneSession, DaemonSession, Dispatch, Frame, TextError, ToControlPlane, ToDaemon};

pub(crate) fn run(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        text_frame::<ToControlPlane>(text);
        text_frame::<ToDaemon>(text);
        sessions(&Frame::Text(text.to_owned()));
    }
    let bytes = Bytes::copy_from_slice(data);
    if let Ok(frame) = Binary::decode(bytes.clone()) {
        match frame.encode() {
            Ok(written) => assert_eq!(Binary::decode(written).expect("it was written"), frame),
            // A header that leaves things out grows when it is written.
            Err(error) => assert!(matches!(error, BinaryError::TooLong { .. }), "{error}"),
        }
    }
    sessions(&Frame::Binary(bytes));
    if let Ok(dispatch) = Dispatch::decode(data) {
        assert_eq!(Dispatch::decode(&dispatch.encode()).expect("it was written"), dispatch);
    }
}

fn text_frame<M: serde::Serialize + serde::de::DeserializeOwned + PartialEq + Debug>(text: &str) {
    let Ok(message) = wire::decode_text::<M>(text) else { return };
    match wire::encode_text(&message) {
        Ok(written) => assert_eq!(wire::decode_text::<M>(&written).expect("it was written"), message),
        Err(error) => assert!(matches!(error, TextError::TooLong { .. } | TextError::TooManyValues { .. }), "{error}"),
    }
}

/// Both machines hear it first and once more, whatever they made of it.
fn sessions(frame: &Frame) {
    let (start, later) = (Duration::ZERO, Duration::from_secs(1));
    let mut daemon = DaemonSession::new(start);
    let mut plane = ControlPlaneSession::new(Placement::Cluster, wire::HEARTBEAT_INTERVAL, start);
    for now in [start, later] {
        let _ = (daemon.heard(frame.clone(), now), plane.heard(frame.clone(), now));
        let _ = (daemon.due(now), plane.due(now));
    }
}
