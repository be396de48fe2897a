//! Layer 0: prints an error with its causes on one line.

use std::error::Error;
use std::fmt;

/// Shows an error and each cause that the text so far does not already spell out.
///
/// kube's own errors put their source into `Display` *and* into `source()`; a plain chain printer would say it twice.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let text = error.to_string();
            if !said.contains(&text) {
                said.push_str(": ");
                said.push_str(&text);
            }
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

    #[test]
    fn a_cause_that_was_already_spelled_out_is_not_said_again() {
        assert_eq!(Chain(&Outer(Repeats(Inner))).to_string(), "outer: middle: inner");
    }
}
