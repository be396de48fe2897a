//! Why an admitted dispatch cannot become a manifest.

use std::path::PathBuf;

use super::manifest::MAX_MANIFEST;
use super::wrapper::MAX_COMMAND;
use crate::policy::{Rejection, RejectionCode, invalid};

/// An admitted dispatch that cannot become a manifest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RenderError {
    /// Script and arguments do not fit into one program argument.
    #[error(
        "the script has {script} bytes and its arguments {args}; with the lines that start it that makes a command of {command} bytes, \
         and a program argument holds at most {MAX_COMMAND}; make the script smaller, or put its bulk into the image"
    )]
    CommandTooLong {
        /// Length of the script, in bytes.
        script: usize,
        /// Length of all arguments, in bytes.
        args: usize,
        /// Length of the whole command, in bytes.
        command: usize,
    },
    /// The manifest is larger than a cluster's store takes.
    #[error("the manifest has {length} bytes, most of it environment or script; at most {MAX_MANIFEST} are sent to a cluster")]
    ManifestTooLong {
        /// Its length, in bytes of JSON.
        length: usize,
    },
    /// A workdir is a folder of a node, and the launch is placed on none.
    #[error("the launch is placed `cluster`, on no certain node, and has a workdir of a node; ask for `workdir: none`, or name a node")]
    NoNode,
    /// The daemon's workdir root is not an absolute path without `..`, in UTF-8.
    #[error("the workdir root {root:?} is not an absolute path without '..'; correct `workdir.root` in the daemon's configuration")]
    Root {
        /// The root.
        root: PathBuf,
    },
}

impl RenderError {
    /// The refusal that the sender gets.
    pub fn rejection(&self) -> Rejection {
        match self {
            Self::CommandTooLong { .. } => invalid("script", self.to_string()),
            Self::ManifestTooLong { .. } => invalid("env", self.to_string()),
            Self::NoNode => invalid("workdir", self.to_string()),
            Self::Root { .. } => Rejection { code: RejectionCode::Unavailable, rule: "workdir".to_owned(), message: self.to_string() },
        }
    }
}
