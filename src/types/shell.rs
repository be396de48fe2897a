//! Text as a word of a shell: in commands that a message suggests, and in the script that a container runs.

use std::borrow::Cow;

/// `text` between single quotes, where nothing is special to a shell but the single quote itself.
pub fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// `text` as one word of a shell: quoted when a shell would take it for several words or for anything else than itself.
pub fn shell_word(text: &str) -> Cow<'_, str> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | '@' | '%' | '+' | ',');
    if !text.is_empty() && text.chars().all(plain) { text.into() } else { shell_quoted(text).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_it_for_one_word() {
        for text in ["c1", "c 1 \u{fc}", "", "it's", "$HOME", "a;b", "~", "/var/lib/x", "-x", "a\nb"] {
            let command = format!("printf %s. {}", shell_word(text));
            let ended = std::process::Command::new("sh").args(["-c", &command]).output().expect("it runs");
            assert_eq!(String::from_utf8(ended.stdout).expect("text"), format!("{text}."), "{command}");
        }
        assert_eq!(shell_word("c1"), "c1", "without quotes where none are needed");
    }
}
