//! The owner's file.

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::admitted::Admitted;
use super::pattern::{BadPattern, Pattern};
use super::rejection::Rejection;
use super::validate;
use crate::types::{KubeNamespace, hex};
use crate::wire::{Dispatch, Workdir};

/// A policy file that was read and understood.
#[derive(Clone, Debug)]
pub struct Policy {
    file: PolicyFile,
    digest: String,
}

/// The file's content, as types.
#[derive(Clone, Debug)]
pub(super) struct PolicyFile {
    pub(super) run_namespaces: Vec<KubeNamespace>,
    pub(super) default_namespace: KubeNamespace,
    pub(super) images: Vec<Pattern>,
    pub(super) workdir_kinds: Vec<Workdir>,
}

/// A policy file that cannot be used. The one in force stays in force.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Not YAML, or a key is unknown, missing, given twice or of the wrong kind.
    #[error("the policy is not understood")]
    Malformed {
        /// What the reader said, with key and position.
        #[source]
        source: serde_yaml::Error,
    },
    /// `version` is not 1.
    #[error("policy version {version} is not supported; this daemon understands `version: 1`")]
    Version {
        /// The version found.
        version: u32,
    },
    /// `run_namespaces` is empty.
    #[error("`run_namespaces` is empty; name at least one Kubernetes namespace in which work may run")]
    NoRunNamespace,
    /// `default_namespace` is not one of `run_namespaces`.
    #[error("`default_namespace` is \"{namespace}\", which is not one of `run_namespaces`; add it there or choose one of them")]
    DefaultNotListed {
        /// The namespace.
        namespace: KubeNamespace,
    },
    /// A run namespace is the daemon's own.
    #[error("`run_namespaces` holds \"{namespace}\", where the daemon itself lives; give work a namespace of its own")]
    OwnNamespace {
        /// The namespace.
        namespace: KubeNamespace,
    },
    /// An entry of `images` could never match.
    #[error("`images` entry {pattern:?} matches nothing: {why}")]
    Pattern {
        /// The entry.
        pattern: String,
        /// Why it matches nothing, and what to write.
        why: String,
    },
    /// `workdir.kinds` is empty.
    #[error("`workdir.kinds` is empty, so nothing could ever start; list `host_path`, `none` or both, or leave the key out")]
    NoWorkdirKind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    version: u32,
    run_namespaces: Vec<KubeNamespace>,
    #[serde(default)]
    default_namespace: Option<KubeNamespace>,
    images: Vec<String>,
    #[serde(default)]
    workdir: RawWorkdir,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWorkdir {
    kinds: Vec<Workdir>,
}

impl Default for RawWorkdir {
    fn default() -> Self {
        Self { kinds: vec![Workdir::HostPath, Workdir::None] }
    }
}

impl Policy {
    /// Reads a policy file.
    ///
    /// # Errors
    /// [`PolicyError`], which names the key at fault and what to write.
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let raw: Raw = serde_yaml::from_str(text).map_err(|source| PolicyError::Malformed { source })?;
        if raw.version != 1 {
            return Err(PolicyError::Version { version: raw.version });
        }
        let default_namespace = match (raw.default_namespace, raw.run_namespaces.first()) {
            (_, None) => return Err(PolicyError::NoRunNamespace),
            (None, Some(first)) => first.clone(),
            (Some(named), Some(_)) if raw.run_namespaces.contains(&named) => named,
            (Some(named), Some(_)) => return Err(PolicyError::DefaultNotListed { namespace: named }),
        };
        let pattern = |text: &String| {
            Pattern::parse(text).map_err(|why: BadPattern| PolicyError::Pattern { pattern: text.chars().take(300).collect(), why: why.to_string() })
        };
        let images = raw.images.iter().map(pattern).collect::<Result<_, _>>()?;
        if raw.workdir.kinds.is_empty() {
            return Err(PolicyError::NoWorkdirKind);
        }
        let file = PolicyFile { run_namespaces: raw.run_namespaces, default_namespace, images, workdir_kinds: raw.workdir.kinds };
        Ok(Self { file, digest: hex(&Sha256::digest(text.as_bytes())) })
    }

    /// Refuses a policy that would let work run beside the daemon, where the daemon's own account and token are.
    ///
    /// # Errors
    /// [`PolicyError::OwnNamespace`].
    pub fn keep_out_of(&self, own: &KubeNamespace) -> Result<(), PolicyError> {
        if self.file.run_namespaces.contains(own) { Err(PolicyError::OwnNamespace { namespace: own.clone() }) } else { Ok(()) }
    }

    /// SHA-256 of the file's bytes, in hex.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The Kubernetes namespaces in which work may run; at least one.
    pub fn run_namespaces(&self) -> &[KubeNamespace] {
        &self.file.run_namespaces
    }

    /// Where work runs that names no namespace.
    pub fn default_namespace(&self) -> &KubeNamespace {
        &self.file.default_namespace
    }

    /// Decides over a dispatch.
    ///
    /// # Errors
    /// A [`Rejection`] that names the field or rule at fault, what was asked and what is allowed.
    pub fn judge(&self, dispatch: &Dispatch) -> Result<Admitted, Rejection> {
        validate::admit(&self.file, dispatch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Chain;

    const GOOD: &str = "version: 1\nrun_namespaces: [nymph-runs, extra]\nimages: [\"*\"]\n";

    #[test]
    fn the_first_run_namespace_is_the_default_and_the_digest_is_of_the_bytes() {
        let policy = Policy::parse(GOOD).expect("a good policy");
        assert_eq!(policy.default_namespace().as_str(), "nymph-runs");
        assert_eq!(policy.digest(), hex(&Sha256::digest(GOOD.as_bytes())));
        let named = Policy::parse(&format!("{GOOD}default_namespace: extra\n")).expect("a good policy");
        assert_eq!(named.default_namespace().as_str(), "extra");
        assert_ne!(named.digest(), policy.digest());
    }

    #[test]
    fn a_bad_file_is_refused_and_the_message_names_what_to_change() {
        for (text, expected) in [
            ("", "the policy is not understood"),
            ("version: 1\nrun_namespaces: [a]\n", "missing field `images`"),
            ("version: 1\nrun_namespaces: [a]\nimage: [\"*\"]\n", "unknown field `image`"),
            ("version: 1\nversion: 1\nrun_namespaces: [a]\nimages: []\n", "duplicate"),
            ("version: 2\nrun_namespaces: [a]\nimages: []\n", "version 2 is not supported"),
            ("version: 1\nrun_namespaces: []\nimages: []\n", "`run_namespaces` is empty"),
            ("version: 1\nrun_namespaces: [Nymph]\nimages: []\n", "\"Nymph\" is not a valid Kubernetes namespace"),
            ("version: 1\nrun_namespaces: [a]\ndefault_namespace: b\nimages: []\n", "not one of `run_namespaces`"),
            ("version: 1\nrun_namespaces: [a]\nimages: [python]\n", "docker.io/library/python:latest"),
            ("version: 1\nrun_namespaces: [a]\nimages: []\nworkdir: {kinds: []}\n", "`workdir.kinds` is empty"),
            ("version: 1\nrun_namespaces: [a]\nimages: []\nworkdir: {kinds: [hostpath]}\n", "unknown variant `hostpath`"),
        ] {
            let error = Policy::parse(text).expect_err(text);
            assert!(Chain(&error).to_string().contains(expected), "{text:?} gives {}", Chain(&error));
        }
    }

    #[test]
    fn work_never_runs_in_the_daemons_own_namespace() {
        let policy = Policy::parse(GOOD).expect("a good policy");
        let own = |name: &str| name.parse::<KubeNamespace>().expect("a namespace");
        assert!(policy.keep_out_of(&own("nymph-system")).is_ok());
        assert!(matches!(policy.keep_out_of(&own("extra")), Err(PolicyError::OwnNamespace { .. })));
    }
}
