//! The work itself: the opaque bytes of a dispatch, once opened.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

use super::bounds::{MAX_DISPATCH_VALUES, most_values};

/// Longest script, in bytes of UTF-8. **Source:** `design.md` section 4; how much of it can start is the renderer's limit.
pub const MAX_SCRIPT: usize = 900 << 10;

/// What is asked for. Unknown fields are refused at every level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// Version of this structure: 1.
    pub version: u32,
    /// Who asked, as the control plane asserts it.
    pub caller: Caller,
    /// What to do.
    pub work: Work,
}

/// Who asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Caller {
    /// Control-plane namespace; not a Kubernetes one.
    pub namespace: String,
    /// Provider, as stored.
    pub provider: String,
    /// Name of the token or user that asked.
    pub user: String,
}

/// The kinds of work. `run` joins them with `kubernetes.run`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Run a Python script in one bare Pod.
    Launch(LaunchDispatch),
}

/// By hand, since the derived reader cannot name what stands beside the kind of work.
impl<'de> Deserialize<'de> for Work {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Kinds {
            launch: LaunchDispatch,
        }
        Kinds::deserialize(deserializer).map(|Kinds { launch }| Self::Launch(launch))
    }
}

/// One launch. What has no field here cannot be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LaunchDispatch {
    /// Kubernetes namespace; absent means the policy's default run namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Image reference.
    pub image: String,
    /// The script in base64, so that any text fits whatever the escaping.
    pub script_base64: String,
    /// Arguments that follow the script's name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment, in the order it is written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// The container's `resources`, as Kubernetes spells them, passed through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<serde_json::Value>,
    /// Labels made from the caller's tags, already normalised.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether and how a workdir is mounted at `/workdir`.
    #[serde(default)]
    pub workdir: Workdir,
}

impl LaunchDispatch {
    /// The script's text.
    ///
    /// # Errors
    /// [`InvalidDispatch`] when it is not base64 of UTF-8 text, longer than [`MAX_SCRIPT`], or holds a NUL.
    pub fn script(&self) -> Result<String, InvalidDispatch> {
        // Four characters carry three bytes: the length is known before anything is decoded.
        if self.script_base64.len() / 4 * 3 > MAX_SCRIPT + 3 {
            return Err(InvalidDispatch::ScriptTooLong);
        }
        let bytes = STANDARD.decode(&self.script_base64).map_err(|source| InvalidDispatch::NotBase64 { source })?;
        let text = String::from_utf8(bytes).map_err(|error| InvalidDispatch::NotUtf8 { at: error.utf8_error().valid_up_to() })?;
        match text.find('\0') {
            _ if text.len() > MAX_SCRIPT => Err(InvalidDispatch::ScriptTooLong),
            Some(at) => Err(InvalidDispatch::Nul { at }),
            None => Ok(text),
        }
    }

    /// Encodes a script for [`LaunchDispatch::script_base64`].
    pub fn encode_script(script: &str) -> String {
        STANDARD.encode(script)
    }
}

/// One environment variable; the value is literal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The kinds of workdir.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Workdir {
    /// A folder of the node, below the daemon's root. Ties the Pod to the node.
    #[default]
    HostPath,
    /// None.
    None,
}

/// A dispatch whose content cannot be work.
#[derive(Debug, thiserror::Error)]
pub enum InvalidDispatch {
    /// The bytes are not a dispatch, or hold a field that this release does not know.
    #[error("the dispatch is not understood: {detail}")]
    Malformed {
        /// What the reader said; it names the field, never a value.
        detail: String,
    },
    /// [`Dispatch::version`] is not 1.
    #[error("dispatch version {version} is not supported; this daemon understands 1")]
    Version {
        /// The version found.
        version: u32,
    },
    /// The dispatch holds more than [`MAX_DISPATCH_VALUES`].
    #[error(
        "the dispatch holds {values} JSON values, which is over the limit of {MAX_DISPATCH_VALUES}; give fewer arguments, variables or resources"
    )]
    TooManyValues {
        /// How many it can hold.
        values: usize,
    },
    /// The script is not base64.
    #[error("the script is not base64")]
    NotBase64 {
        /// What the decoder said.
        #[source]
        source: base64::DecodeError,
    },
    /// The script is not UTF-8.
    #[error("the script is not UTF-8 text: byte {at} is not valid")]
    NotUtf8 {
        /// Offset of the first bad byte.
        at: usize,
    },
    /// The script holds a NUL byte, which no program argument can carry.
    #[error("the script has a NUL byte at offset {at}, which a program argument cannot carry; remove it")]
    Nul {
        /// Its offset.
        at: usize,
    },
    /// The script is longer than [`MAX_SCRIPT`].
    #[error("the script is longer than {MAX_SCRIPT} bytes")]
    ScriptTooLong,
}

impl Dispatch {
    /// Opens the opaque bytes of a dispatch.
    ///
    /// # Errors
    /// [`InvalidDispatch::Malformed`], [`InvalidDispatch::Version`] or [`InvalidDispatch::TooManyValues`].
    pub fn decode(bytes: &[u8]) -> Result<Self, InvalidDispatch> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let values = most_values(bytes);
        if values > MAX_DISPATCH_VALUES {
            return Err(InvalidDispatch::TooManyValues { values });
        }
        let malformed = |source: serde_json::Error| InvalidDispatch::Malformed { detail: describe(&source) };
        let Versioned { version } = serde_json::from_slice(bytes).map_err(malformed)?;
        if version != 1 {
            return Err(InvalidDispatch::Version { version });
        }
        serde_json::from_slice(bytes).map_err(malformed)
    }

    /// The bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default() // string keys and plain values only: it cannot fail
    }
}

/// What a JSON error says, without the value that serde quotes ("invalid type: string \"…\""): it may be a secret.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let safe = ["unknown field", "missing field", "unknown variant", "duplicate field", "recursion limit"];
    if safe.iter().any(|start| text.starts_with(start)) && text.len() < 400 {
        text
    } else {
        format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(script: &[u8]) -> LaunchDispatch {
        LaunchDispatch {
            namespace: None,
            image: "localhost/python:1".into(),
            script_base64: STANDARD.encode(script),
            args: vec![],
            env: vec![],
            resources: None,
            labels: BTreeMap::new(),
            workdir: Workdir::HostPath,
        }
    }

    #[test]
    fn an_unknown_field_in_a_dispatch_is_refused_and_named() {
        let text = r#"{"version":1,"caller":{"namespace":"d","provider":"p","user":"u"},"work":{"launch":{"image":"i","script_base64":"","privileged":true}}}"#;
        let error = Dispatch::decode(text.as_bytes()).expect_err("the field is unknown");
        assert!(error.to_string().contains("unknown field `privileged`"), "{error}");
    }

    #[test]
    fn a_newer_dispatch_is_refused_by_its_version_first() {
        let error = Dispatch::decode(br#"{"version":2,"anything":1}"#).expect_err("version 2");
        assert!(matches!(error, InvalidDispatch::Version { version: 2 }), "{error}");
    }

    #[test]
    fn an_error_never_quotes_a_value() {
        let text = r#"{"version":1,"caller":"canary-secret","work":{}}"#;
        let error = Dispatch::decode(text.as_bytes()).expect_err("a caller is an object");
        assert!(!error.to_string().contains("canary"), "{error}");
    }

    #[test]
    fn a_script_is_utf8_without_nul_and_of_bounded_length() {
        assert_eq!(launch("naïve $PATH `x`".as_bytes()).script().expect("plain text"), "naïve $PATH `x`");
        assert!(matches!(launch(b"a\xff").script(), Err(InvalidDispatch::NotUtf8 { at: 1 })));
        assert!(matches!(launch(b"ab\0").script(), Err(InvalidDispatch::Nul { at: 2 })));
        assert!(matches!(launch(&vec![b'x'; MAX_SCRIPT + 1]).script(), Err(InvalidDispatch::ScriptTooLong)));
        assert!(launch(&vec![b'x'; MAX_SCRIPT]).script().is_ok());
    }
}
