//! Every way in which a command can fail; which exit code each has is said in `exit`.

use std::io;
use std::path::PathBuf;

use super::problem::Problem;
use crate::control_plane::{BackupError, ServeError, TokenError};
use crate::error::Chain;

/// A command that did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The command line, a file or a setting is wrong; nothing was sent.
    #[error("{message}")]
    Usage {
        /// What is wrong with what.
        message: String,
        /// What to do, when the message does not already say it.
        cure: Option<String>,
    },
    /// The control plane understood and refused (4xx).
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The control plane failed, or cannot serve this now (5xx).
    #[error("{0}")]
    Faulty(Box<Problem>),
    /// No answer came.
    #[error("cannot reach the control plane at {server}: {cause}")]
    Unreachable {
        /// Its URL.
        server: String,
        /// The innermost cause.
        cause: String,
        /// What to look at.
        cure: String,
        /// Whether the request never left this machine's side: it had no effect.
        unsent: bool,
    },
    /// An answer broke off in the middle.
    #[error("the connection to {server} broke: {cause}")]
    CutOff {
        /// Its URL.
        server: String,
        /// The innermost cause.
        cause: String,
    },
    /// The answer is not one that a control plane gives.
    #[error("cannot understand the answer of {server}: {what}")]
    Confused {
        /// Its URL.
        server: String,
        /// What is odd.
        what: String,
    },
    /// A check came out wrong; what was found has been printed.
    #[error("{0}")]
    CheckFailed(String),
    /// What happened to a launch is not known.
    #[error("{message}")]
    UnknownOutcome {
        /// What is known.
        message: String,
        /// How to find out.
        cure: String,
    },
    /// A token was made and could not be written to stdout.
    #[error("cannot write to stdout: {why}; {message}")]
    NotShown {
        /// Which token it is.
        message: String,
        /// How to end it.
        cure: String,
        /// What the system said.
        why: io::Error,
    },
    /// SIGTERM or another signal that asks to end; what it means has been printed.
    #[error("ended by {name}")]
    Ended {
        /// The signal's name.
        name: &'static str,
        /// Its number.
        number: u8,
    },
    /// Ctrl-C; what it means for the instance has been printed.
    #[error("interrupted")]
    Interrupted,
    /// stdout could not be written to.
    #[error("cannot write to stdout")]
    Stdout(#[source] io::Error),
    /// A helper of this process could not start.
    #[error("cannot start the runtime")]
    Runtime {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// `serve` could not start or run.
    #[error("cannot serve")]
    Serve(#[source] ServeError),
    /// The store refused a new token.
    #[error("cannot create the token")]
    Token(#[source] TokenError),
    /// No backup was made.
    #[error("cannot make the backup")]
    Backup(#[source] BackupError),
    /// A file that was to be written could not be.
    #[error("cannot write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Failure {
    /// A [`Failure::Usage`] whose message says all.
    pub(super) fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), cure: None }
    }

    /// Names the field of a refusal as the command line does: see [`Problem::in_words_of`].
    pub(super) fn in_words_of(mut self, words: &[(&str, &str)]) -> Self {
        if let Self::Refused(problem) = &mut self {
            problem.in_words_of(words);
        }
        self
    }

    /// Whether trying again later may help.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::CutOff { .. } | Self::Faulty(_))
    }

    /// The lines for stderr; `None` when there is nothing to say.
    pub(super) fn report(&self) -> Option<String> {
        if matches!(self, Self::Interrupted) || self.is_broken_pipe() {
            return None;
        }
        let mut text = format!("error: {}", Chain(self));
        if let Some(cure) = self.cure() {
            text.push_str("\n  cure: ");
            text.push_str(&super::terminal::one_line(cure));
        }
        Some(text)
    }

    fn cure(&self) -> Option<&str> {
        match self {
            Self::Usage { cure, .. } => cure.as_deref(),
            Self::Refused(problem) | Self::Faulty(problem) => problem.cure.as_deref(),
            Self::Unreachable { cure, .. } | Self::UnknownOutcome { cure, .. } | Self::NotShown { cure, .. } => Some(cure),
            Self::CutOff { .. }
            | Self::Confused { .. }
            | Self::CheckFailed(_)
            | Self::Interrupted
            | Self::Ended { .. }
            | Self::Stdout(_)
            | Self::Runtime { .. }
            | Self::Serve(_)
            | Self::Token(_)
            | Self::Backup(_)
            | Self::File { .. } => None,
        }
    }

    /// Whether the reader of stdout has gone: no fault, and nobody to tell.
    pub(super) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Stdout(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}
