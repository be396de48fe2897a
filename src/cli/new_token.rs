//! A token that was just made. Its text is known at no other moment: where it cannot be shown, it must be revoked.

use std::io;

use serde_json::Value;

use super::failure::Failure;
use super::output::{self, Format};
use super::terminal::note;

/// The words for one kind of token.
#[derive(Clone, Debug)]
pub(super) struct Words {
    /// What lists such tokens.
    pub(super) list: &'static str,
    /// What revokes one; its id goes behind.
    pub(super) revoke: String,
    /// Said beside a token that is shown.
    pub(super) shown: String,
}

impl Words {
    /// Writes the token alone to stdout, or the whole `answer` where a program is to read it.
    ///
    /// # Errors
    /// [`Failure::NotShown`] with the token's id, never the token, when stdout takes nothing.
    pub(super) fn show(&self, format: Format, answer: &Value, token: &str) -> Result<(), Failure> {
        let written = match format {
            Format::Table => output::write(&format!("{token}\n")),
            Format::Json | Format::Yaml => output::object(format, answer),
        };
        match written {
            Ok(()) if format == Format::Table => note(&self.shown),
            Ok(()) => {}
            Err(Failure::Stdout(why)) => return Err(self.lost(answer.get("id").and_then(Value::as_str), why)),
            Err(other) => return Err(other),
        }
        Ok(())
    }

    fn lost(&self, id: Option<&str>, why: io::Error) -> Failure {
        let Self { list, revoke, .. } = self;
        let (named, ends) = match id {
            Some(id) => (format!("the token {id}"), format!("`{revoke} {id}` ends it")),
            None => ("the token".to_owned(), format!("`{list}` shows its id; `{revoke} ID` ends it")),
        };
        Failure::NotShown { message: format!("{named} was made, and nobody has its text"), cure: format!("{ends}; then make another"), why }
    }

    /// What a request for a token means that was sent and not answered.
    pub(super) fn unanswered(&self, failure: Failure) -> Failure {
        let message = match &failure {
            Failure::Unreachable { server, cause, unsent: false, .. } => format!("no answer from the control plane at {server} ({cause})"),
            Failure::CutOff { .. } => failure.to_string(),
            _ => return failure,
        };
        self.unknown(&message)
    }

    /// A token of which nobody knows whether it was made.
    pub(super) fn unknown(&self, message: &str) -> Failure {
        Failure::UnknownOutcome {
            message: format!("{message}; the token may have been made"),
            cure: format!("see `{}`, and revoke it with `{} ID`", self.list, self.revoke),
        }
    }
}
