//! Patterns of the policy file.

use super::image;

/// A pattern over a whole text: `*` stands for any run of characters, also none and also `/`; everything else for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pattern(String);

/// Why a pattern is refused: in all cases because no reference could ever match it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum BadPattern {
    #[error("it is empty; write \"*\" for every image, or leave the entry out")]
    Empty,
    #[error("it holds a space or another character that no image reference has")]
    Character,
    #[error("references are compared in their full form, which here is {full:?}; write that, or use '*'")]
    Short { full: String },
    #[error("references are compared in their full form, which begins with a registry; write \"docker.io/{rest}\"")]
    NoRegistry { rest: String },
}

impl Pattern {
    /// Takes a pattern for image references.
    pub(super) fn parse(text: &str) -> Result<Self, BadPattern> {
        if text.is_empty() {
            return Err(BadPattern::Empty);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(BadPattern::Character);
        }
        match text.split_once('*') {
            None => match image::normalise(text) {
                Ok(full) if full.as_str() == text => {}
                Ok(full) => return Err(BadPattern::Short { full: full.into() }),
                Err(_) => return Err(BadPattern::Character),
            },
            Some((literal, _)) => {
                if literal.split_once('/').is_some_and(|(first, _)| !image::is_domain(first)) {
                    return Err(BadPattern::NoRegistry { rest: text.to_owned() });
                }
            }
        }
        Ok(Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole of `text` fits. Time is linear in both lengths for each `*`; there is no backtracking.
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some((head, rest)) = self.0.split_once('*') else { return self.0 == text };
        let Some(mut text) = text.strip_prefix(head) else { return false };
        let (middle, tail) = rest.rsplit_once('*').unwrap_or(("", rest));
        for literal in middle.split('*') {
            // The leftmost place is the best one: it leaves the most for what follows.
            let Some(at) = text.find(literal) else { return false };
            text = text.get(at + literal.len()..).unwrap_or_default();
        }
        text.ends_with(tail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_star_is_any_run_of_characters_and_the_rest_is_itself() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "anything/at:all", true),
            ("docker.io/*", "docker.io/library/alpine:3", true),
            ("docker.io/*", "xdocker.io/library/alpine:3", false),
            ("docker.io/*", "Docker.io/library/alpine:3", false),
            ("*:3", "docker.io/library/alpine:3", true),
            ("*:3", "docker.io/library/alpine:31", false),
            ("*/a*b/*:1", "r.io/axxb/c:1", true),
            ("*/a*b/*:1", "r.io/ab:1", false),
            // Head and tail must not share characters of the text.
            ("aba*aba", "aba", false),
            ("aba*aba", "abaaba", true),
            ("a**b", "ab", true),
            ("r.example/x?", "r.example/xy", false),
            ("r.example/[a]", "r.example/a", false),
        ] {
            assert_eq!(Pattern(pattern.to_owned()).matches(text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_pattern_that_nothing_could_match_is_refused_with_the_one_that_was_meant() {
        assert_eq!(Pattern::parse(""), Err(BadPattern::Empty));
        assert_eq!(Pattern::parse("docker.io/a b*"), Err(BadPattern::Character));
        assert_eq!(Pattern::parse("python"), Err(BadPattern::Short { full: "docker.io/library/python:latest".into() }));
        assert_eq!(Pattern::parse("ghcr.io/org/app"), Err(BadPattern::Short { full: "ghcr.io/org/app:latest".into() }));
        assert_eq!(Pattern::parse("library/python:*"), Err(BadPattern::NoRegistry { rest: "library/python:*".into() }));
        for good in ["*", "docker.io/library/python:*", "ghcr.io/org/app:1", "localhost/*", "*.example/*"] {
            assert!(Pattern::parse(good).is_ok(), "{good}");
        }
    }

    /// The textbook definition, with every choice tried.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some((b'*', rest)), _) => (0..=text.len()).any(|n| slow(rest, &text[n..])),
            (Some((p, rest)), Some((t, more))) => p == t && slow(rest, more),
            (Some(_), None) => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_definition(pattern in "[ab*]{0,8}", text in "[ab]{0,10}") {
            prop_assert_eq!(Pattern(pattern.clone()).matches(&text), slow(pattern.as_bytes(), text.as_bytes()));
        }
    }
}
