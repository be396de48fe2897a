//! Labels from free text.

use sha2::{Digest, Sha256};

use super::ids::hex;

/// Longest label value, in characters. **Source:** `LabelValueMaxLength` in `k8s.io/apimachinery/pkg/util/validation`.
pub const MAX_LABEL_VALUE: usize = 63;

/// Lower-cases `text`, turns each run of other characters into one `-`, and trims and cuts to a valid label value.
/// Empty when nothing of `text` is a letter or digit of ASCII.
///
/// **Source:** \[L\] S89; cut text is trimmed again, since a value must end in a letter or digit.
pub fn slug(text: &str) -> String {
    let mut slug = String::with_capacity(text.len().min(MAX_LABEL_VALUE));
    for c in text.chars() {
        if slug.len() == MAX_LABEL_VALUE {
            break;
        }
        if c.is_ascii_alphanumeric() {
            slug.push(c.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

/// A label value that stands for `text`, one to one: `text` itself when it is valid, else its cut slug and a hash.
///
/// Used where two texts must never share a value (a node's name), unlike [`slug`].
pub fn label_value(text: &str) -> String {
    if is_label_value(text) {
        return text.to_owned();
    }
    let digest = hex(Sha256::digest(text.as_bytes()).get(..5).unwrap_or_default());
    let mut head = slug(text);
    head.truncate(MAX_LABEL_VALUE - digest.len() - 1);
    let head = head.trim_end_matches('-');
    if head.is_empty() { digest } else { format!("{head}-{digest}") }
}

/// A caller's tag key as a label key: trimmed, lower-cased, other characters to `-`; `None` when nothing valid remains.
///
/// Normalised before it is compared with the reserved keys, so that ` Lakeshore` cannot slip in (\[L\] S91).
pub fn label_key(text: &str) -> Option<String> {
    let key: String =
        text.trim().chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c.to_ascii_lowercase() } else { '-' }).collect();
    let mut key = key.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned();
    key.truncate(MAX_LABEL_VALUE);
    let key = key.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    (!key.is_empty()).then(|| key.to_owned())
}

fn is_label_value(text: &str) -> bool {
    let edge = |b: u8| b.is_ascii_alphanumeric();
    (1..=MAX_LABEL_VALUE).contains(&text.len())
        && text.bytes().all(|b| edge(b) || matches!(b, b'-' | b'_' | b'.'))
        && text.bytes().next().is_some_and(edge)
        && text.bytes().next_back().is_some_and(edge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slug_is_cut_and_trimmed_again() {
        assert_eq!(slug("My Provider_1"), "my-provider-1");
        assert_eq!(slug("~me"), "me");
        assert_eq!(slug("日本"), "");
        assert_eq!(slug(&format!("{}-tail", "a".repeat(62))), "a".repeat(62));
    }

    #[test]
    fn a_long_node_name_keeps_its_identity() {
        let (one, two) = (format!("{}.one", "n".repeat(100)), format!("{}.two", "n".repeat(100)));
        assert_ne!(label_value(&one), label_value(&two));
        assert_eq!(label_value("node-1.example"), "node-1.example");
    }

    proptest! {
        #[test]
        fn every_slug_is_empty_or_a_valid_label_value(text in ".{0,200}") {
            let slug = slug(&text);
            prop_assert!(slug.is_empty() || is_label_value(&slug), "{slug:?}");
            prop_assert!(is_label_value(&label_value(&text)));
            if let Some(key) = label_key(&text) { prop_assert!(is_label_value(&key), "{key:?}"); }
        }
    }
}
