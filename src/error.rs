//! Layer 0: prints an error with its causes on one line.

use std::error::Error;
use std::fmt;

/// Shows an error and each cause that the text so far does not already spell out.
///
/// kube's own errors put their source into `Display` *and* into `source()`, rusqlite's put their `Display` into their source's; a plain chain
/// printer would say either twice.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        let mut last = said.clone();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !said.contains(&text) {
                if !last.is_empty() && text.contains(&last) && said.ends_with(&last) {
                    said.truncate(said.len() - last.len());
                } else {
                    said.push_str(": ");
                }
                said.push_str(&text);
            }
            last = text;
            cause = error.source();
        }
        f.write_str(&said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("inner")]
    struct Inner;
    #[derive(Debug, thiserror::Error)]
    #[error("middle: inner")]
    struct Repeats(#[source] Inner);
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] Repeats);

    #[derive(Debug, thiserror::Error)]
    #[error("middle")]
    struct Bare(#[source] Longer);
    #[derive(Debug, thiserror::Error)]
    #[error("code 26: middle")]
    struct Longer;
    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Over(#[source] Bare);

    #[test]
    fn what_a_cause_says_again_with_more_words_is_said_once() {
        assert_eq!(Chain(&Over(Bare(Longer))).to_string(), "outer: code 26: middle");
    }

    #[test]
    fn a_cause_that_was_already_spelled_out_is_not_said_again() {
        assert_eq!(Chain(&Outer(Repeats(Inner))).to_string(), "outer: middle: inner");
    }
}
