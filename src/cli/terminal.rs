//! What a script printed is not to be obeyed by the terminal that shows it.

use std::fmt::Write as _;
use std::io::Write as _;

/// Writes a line to stderr. Nothing can be done, and nothing is lost for programs, when nobody reads it.
pub(super) fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// `text` on one line, with control characters made visible; for words that come from a cluster or a script.
pub(super) fn one_line(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            _ => push_visible(&mut line, c),
        }
        line
    })
}

/// Makes control characters visible in a stream of bytes; keeps what it needs of a character that is cut between two chunks.
///
/// Line feeds, tabs and carriage returns pass: a carriage return is how a progress bar is drawn. Everything else below U+0020, DEL and
/// U+0080–U+009F (CSI in one character, for some terminals) is written as `^[` or `\u{9b}`; a byte that is not UTF-8 as `\xff`.
#[derive(Debug, Default)]
pub(super) struct Neutraliser {
    /// The beginning of a character whose end has not come; at most three bytes.
    cut: Vec<u8>,
}

impl Neutraliser {
    /// What to write for `bytes`, which follow on those of the last call.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        let mut input = std::mem::take(&mut self.cut);
        input.extend_from_slice(bytes);
        let mut out = String::with_capacity(input.len());
        let mut rest = input.as_slice();
        loop {
            let error = match std::str::from_utf8(rest) {
                Ok(text) => {
                    push_text(&mut out, text);
                    return out;
                }
                Err(error) => error,
            };
            let (valid, behind) = rest.split_at(error.valid_up_to());
            push_text(&mut out, std::str::from_utf8(valid).unwrap_or_default());
            let Some(wrong) = error.error_len() else {
                self.cut = behind.to_vec();
                return out;
            };
            let (wrong, behind) = behind.split_at(wrong);
            push_bytes(&mut out, wrong);
            rest = behind;
        }
    }

    /// What is left when the stream has ended inside a character.
    pub(super) fn end(&mut self) -> String {
        let mut out = String::new();
        push_bytes(&mut out, &std::mem::take(&mut self.cut));
        out
    }
}

fn push_text(out: &mut String, text: &str) {
    for c in text.chars() {
        if matches!(c, '\n' | '\t' | '\r') { out.push(c) } else { push_visible(out, c) }
    }
}

fn push_visible(out: &mut String, c: char) {
    // Writing to a String cannot fail.
    match c {
        '\0'..='\x1f' => {
            out.push('^');
            out.push(char::from(c as u8 + b'@'));
        }
        '\x7f' => out.push_str("^?"),
        '\u{80}'..='\u{9f}' => {
            let _ = write!(out, "{}", c.escape_unicode());
        }
        _ => out.push(c),
    }
}

fn push_bytes(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(out, "\\x{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(bytes: &[u8]) -> String {
        let mut neutraliser = Neutraliser::default();
        neutraliser.push(bytes) + &neutraliser.end()
    }

    #[test]
    fn a_terminal_is_not_driven_by_output() {
        assert_eq!(whole(b"\x1b]0;title\x07\x1b[2J"), "^[]0;title^G^[[2J");
        assert_eq!(whole("\u{9b}31m".as_bytes()), "\\u{9b}31m");
        assert_eq!(whole(b"\x9b31m\xff"), "\\x9b31m\\xff");
        assert_eq!(whole(b"a\tb\r 50%\r100%\nnul\0del\x7f"), "a\tb\r 50%\r100%\nnul^@del^?");
    }

    #[test]
    fn text_of_any_language_passes() {
        let text = "grüße, 日本, 🐍\n";
        assert_eq!(whole(text.as_bytes()), text);
    }

    #[test]
    fn a_stream_that_ends_inside_a_character_shows_its_bytes() {
        assert_eq!(whole(b"ok\xf0\x9f"), "ok\\xf0\\x9f");
    }

    proptest! {
        #[test]
        fn chunk_borders_change_nothing(bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\xe6'), Just(b'\x97'), Just(b'\xa5')], 0..60), cuts in prop::collection::vec(0_usize..60, 0..6)) {
            let mut neutraliser = Neutraliser::default();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut pieces: String = cuts.windows(2).map(|w| neutraliser.push(&bytes[w[0]..w[1]])).collect();
            pieces.push_str(&neutraliser.end());
            prop_assert_eq!(&pieces, &whole(&bytes));
            prop_assert!(pieces.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t' | '\r')));
        }
    }
}
