//! What the control plane says when it refuses: `application/problem+json`.

use std::fmt;

use reqwest::StatusCode;
use serde::Deserialize;

use super::terminal::one_line;

/// A refusal, in the control plane's own words.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    /// The HTTP status; taken from the response, not from the body.
    #[serde(skip)]
    pub(super) status: StatusCode,
    /// A stable word for programs.
    pub(super) code: Option<String>,
    title: Option<String>,
    detail: Option<String>,
    field: Option<String>,
    rule: Option<String>,
    /// What the reader can do.
    pub(super) cure: Option<String>,
}

impl Problem {
    /// Reads the body of an answer with `status`; a body of another form (a proxy's page) is left out.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        Self { status, ..serde_json::from_slice(body).unwrap_or_default() }
    }

    /// Names the field at fault as the command line does; `words` are the API's name and the command line's.
    pub(super) fn in_words_of(&mut self, words: &[(&str, &str)]) {
        if let Some((_, word)) = words.iter().find(|(field, _)| self.field.as_deref() == Some(field)) {
            self.field = Some((*word).to_owned());
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match [&self.detail, &self.title].into_iter().flatten().find(|text| !text.is_empty()) {
            Some(said) => f.write_str(&one_line(said))?,
            None => write!(f, "the control plane answered {}", self.status)?,
        }
        for (name, value) in [("field", &self.field), ("rule", &self.rule)] {
            if let Some(value) = value.as_deref().filter(|value| !self.detail.as_deref().unwrap_or_default().contains(*value)) {
                write!(f, " ({name} `{}`)", one_line(value))?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_shown_by_its_detail_and_field() {
        let show = |body: &str| Problem::read(StatusCode::BAD_REQUEST, body.as_bytes()).to_string();
        assert_eq!(show(r#"{"title":"t","detail":"no image is set","field":"image"}"#), "no image is set");
        assert_eq!(show(r#"{"title":"missing value","field":"image"}"#), "missing value (field `image`)");
        assert_eq!(show(r#"{"detail":"refused","rule":"images"}"#), "refused (rule `images`)");
        assert_eq!(show("<html>proxy</html>"), "the control plane answered 400 Bad Request");
        assert_eq!(show(r#"{"detail":"evil \u001b[2J\nline"}"#), "evil ^[[2J line");
    }
}
