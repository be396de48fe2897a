//! The four forms in which something travels, each with a folder of the corpus.

use bytes::Bytes;
use nymph::wire::{self, Binary, Dispatch, ToControlPlane, ToDaemon};
use serde_json::Value;

use crate::variants;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Text, from a daemon.
    ToControlPlane,
    /// Text, to a daemon.
    ToDaemon,
    /// A binary frame.
    Binary,
    /// What a binary frame of kind 1 carries: the dispatch itself.
    Dispatch,
}

pub(crate) const FORMS: [Form; 4] = [Form::ToControlPlane, Form::ToDaemon, Form::Binary, Form::Dispatch];

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Read {
    ToControlPlane(ToControlPlane),
    ToDaemon(ToDaemon),
    Binary(Binary),
    Dispatch(Dispatch),
}

impl Form {
    pub(crate) fn folder(self) -> &'static str {
        match self {
            Self::ToControlPlane => "to_control_plane",
            Self::ToDaemon => "to_daemon",
            Self::Binary => "binary",
            Self::Dispatch => "dispatch",
        }
    }

    /// Ending of its files.
    pub(crate) fn ending(self) -> &'static str {
        if self == Self::Binary { "bin" } else { "json" }
    }

    /// Variants that must stand in the corpus.
    pub(crate) fn variants(self) -> &'static [&'static str] {
        match self {
            Self::ToControlPlane => variants::TO_CONTROL_PLANE,
            Self::ToDaemon => variants::TO_DAEMON,
            Self::Binary => variants::BINARY,
            Self::Dispatch => variants::WORK,
        }
    }

    pub(crate) fn read(self, bytes: &[u8]) -> Result<Read, String> {
        let text = || std::str::from_utf8(bytes).map_err(|error| error.to_string());
        let told = |error: &dyn std::error::Error| format!("{error}: {:?}", error.source());
        match self {
            Self::ToControlPlane => wire::decode_text(text()?).map(Read::ToControlPlane).map_err(|error| told(&error)),
            Self::ToDaemon => wire::decode_text(text()?).map(Read::ToDaemon).map_err(|error| told(&error)),
            Self::Binary => Binary::decode(Bytes::copy_from_slice(bytes)).map(Read::Binary).map_err(|error| told(&error)),
            Self::Dispatch => Dispatch::decode(bytes).map(Read::Dispatch).map_err(|error| told(&error)),
        }
    }

    /// Takes a frame apart: its JSON, and the payload of a binary one.
    pub(crate) fn open(self, bytes: &[u8]) -> (Value, &[u8]) {
        let (json, payload) = match self {
            Self::Binary => {
                let length = u32::from_be_bytes(bytes[2..6].try_into().expect("four bytes")) as usize;
                bytes[6..].split_at(length)
            }
            _ => (bytes, &[] as &[u8]),
        };
        (serde_json::from_slice(json).expect("JSON"), payload)
    }

    /// Puts it together again; `from` is the frame whose JSON was changed.
    pub(crate) fn close(self, json: &Value, from: &[u8]) -> Vec<u8> {
        let text = json.to_string().into_bytes();
        match self {
            Self::Binary => {
                let length = u32::try_from(text.len()).expect("short").to_be_bytes();
                [&from[..2], &length, &text, self.open(from).1].concat()
            }
            _ => text,
        }
    }
}

impl Read {
    pub(crate) fn variant(&self) -> &'static str {
        match self {
            Self::ToControlPlane(message) => variants::to_control_plane(message),
            Self::ToDaemon(message) => variants::to_daemon(message),
            Self::Binary(frame) => variants::binary(frame),
            Self::Dispatch(dispatch) => variants::work(&dispatch.work),
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        match self {
            Self::ToControlPlane(message) => wire::encode_text(message).expect("it fits").into_bytes(),
            Self::ToDaemon(message) => wire::encode_text(message).expect("it fits").into_bytes(),
            Self::Binary(frame) => frame.encode().expect("it fits").to_vec(),
            Self::Dispatch(dispatch) => dispatch.encode(),
        }
    }
}

/// Ways to the objects inside a value, the outermost first; `skip` names fields that are not entered.
pub(crate) fn objects(value: &Value, skip: &[&str]) -> Vec<String> {
    fn walk(value: &Value, at: &str, skip: &[&str], found: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                found.push(at.to_owned());
                for (key, value) in map.iter().filter(|(key, _)| !skip.contains(&key.as_str())) {
                    walk(value, &format!("{at}/{key}"), skip, found);
                }
            }
            Value::Array(list) => list.iter().enumerate().for_each(|(n, value)| walk(value, &format!("{at}/{n}"), skip, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", skip, &mut found);
    found
}

/// The object there.
pub(crate) fn object<'a>(value: &'a mut Value, at: &str) -> &'a mut serde_json::Map<String, Value> {
    value.pointer_mut(at).and_then(Value::as_object_mut).expect("objects() found it")
}
