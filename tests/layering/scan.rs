//! Just enough of Rust's grammar to read paths out of a source file: comments, literals and test modules are blanked, then
//! every `a::b::{c, d}` is flattened. Not a parser: what it cannot see (macros that build paths) no rule here depends on.

/// A path as it stands in the source, flattened: `use a::{b, c::d}` gives `a::b` and `a::c::d`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Path {
    pub(crate) line: usize,
    pub(crate) segments: Vec<String>,
}

/// Replaces comments, strings and character literals by spaces; line breaks stay, so that line numbers hold.
pub(crate) fn blank(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while let Some(&c) = chars.get(at) {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(c);
            at += 1;
        } else {
            out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        }
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = |offset: usize| chars.get(at + offset).copied().unwrap_or('\0');
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    match chars[at] {
        '/' if next(1) == '/' => find(chars, at, &['\n']),
        '/' if next(1) == '*' => block_comment_end(chars, at),
        '"' => string_end(chars, at),
        'r' if !in_word && matches!(next(1), '"' | '#') => raw_string_end(chars, at, 1),
        'b' if !in_word && next(1) == 'r' && matches!(next(2), '"' | '#') => raw_string_end(chars, at, 2),
        '\'' if next(1) == '\\' => find(chars, at + 3, &['\'']) + 1, // from behind the escaped character
        '\'' if next(2) == '\'' => at + 3,                           // otherwise it is a lifetime
        _ => at,
    }
}

fn find(chars: &[char], from: usize, what: &[char]) -> usize {
    (from..chars.len()).find(|&i| chars[i..].starts_with(what)).unwrap_or(chars.len())
}

fn block_comment_end(chars: &[char], at: usize) -> usize {
    let (mut depth, mut i) = (0, at);
    while i < chars.len() {
        if chars[i..].starts_with(&['/', '*']) {
            (depth, i) = (depth + 1, i + 2);
        } else if chars[i..].starts_with(&['*', '/']) {
            (depth, i) = (depth - 1, i + 2);
            if depth == 0 {
                break;
            }
        } else {
            i += 1;
        }
    }
    i.min(chars.len())
}

fn string_end(chars: &[char], at: usize) -> usize {
    let mut i = at + 1;
    while i < chars.len() && chars[i] != '"' {
        i += if chars[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(chars.len())
}

/// `at` itself for a raw identifier (`r#type`), which looks the same at its first two characters.
fn raw_string_end(chars: &[char], at: usize, prefix: usize) -> usize {
    let hashes = chars[at + prefix..].iter().take_while(|&&c| c == '#').count();
    let open = at + prefix + hashes;
    if chars.get(open) != Some(&'"') {
        return at;
    }
    let mut close = vec!['"'];
    close.resize(1 + hashes, '#');
    (find(chars, open + 1, &close) + close.len()).min(chars.len())
}

/// Blanks each item under `#[cfg(test)]`, and counts the lines they had; takes what [`blank`] gave.
pub(crate) fn without_tests(blanked: &str) -> (String, usize) {
    const MARK: &str = "#[cfg(test)]";
    let (mut out, mut lines) = (blanked.to_owned(), 0);
    while let Some(start) = out.find(MARK) {
        let item = &out[start + MARK.len()..];
        let mut depth = 0_usize;
        let end = item.char_indices().find_map(|(i, c)| {
            match c {
                '{' | '[' | '(' => depth += 1,
                '}' | ']' | ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0 && matches!(c, '}' | ';')).then(|| i + c.len_utf8())
        });
        let end = start + MARK.len() + end.unwrap_or(item.len());
        let spaces: String = out[start..end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
        lines += spaces.lines().count();
        out.replace_range(start..end, &spaces);
    }
    (out, lines)
}

/// The modules that a file declares for its tests only (`#[cfg(test)] mod name;`); takes what [`blank`] gave.
pub(crate) fn test_files(blanked: &str) -> Vec<&str> {
    let items = blanked.split("#[cfg(test)]").skip(1);
    items
        .filter_map(|item| item.trim_start().split_once(['{', ';'])?.0.trim_start_matches("pub(crate) ").strip_prefix("mod "))
        .map(str::trim)
        .collect()
}

/// Every path of two segments or more in code that [`blank`] has been over.
pub(crate) fn paths(code: &str) -> Vec<Path> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let leads = is_word(&tokens[at].1) && tokens.get(at + 1).is_some_and(|t| t.1 == "::");
        at = if leads { tree(&tokens, at, &[], &mut found) } else { at + 1 };
    }
    found
}

/// Reads the tree that begins at `at` under `prefix`, and answers where it ends.
fn tree(tokens: &[(usize, String)], mut at: usize, prefix: &[String], found: &mut Vec<Path>) -> usize {
    let mut segments = prefix.to_vec();
    let line = tokens.get(at).map_or(0, |t| t.0);
    while let Some((_, token)) = tokens.get(at) {
        if token == "{" && tokens.get(at.wrapping_sub(1)).is_some_and(|t| t.1 == "::") {
            at += 1;
            while tokens.get(at).is_some_and(|t| t.1 != "}") {
                at = if tokens[at].1 == "," { at + 1 } else { tree(tokens, at, &segments, found).max(at + 1) };
            }
            return at + 1;
        }
        if !is_word(token) && token != "*" {
            break; // a turbofish, a call…
        }
        segments.push(token.clone());
        at += 1;
        if tokens.get(at).is_none_or(|t| t.1 != "::") {
            break;
        }
        at += 1;
    }
    if segments.len() > 1 {
        found.push(Path { line, segments });
    }
    while tokens.get(at).is_some_and(|t| t.1 == "as") {
        at += 2; // the name that a `use` gives
    }
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Words, `::` and single characters, each with its line.
pub(crate) fn tokens(code: &str) -> Vec<(usize, String)> {
    let (mut tokens, mut line, mut rest) = (Vec::new(), 1, code);
    while let Some(c) = rest.chars().next() {
        let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let length = if word > 0 { word } else { if rest.starts_with("::") { 2 } else { c.len_utf8() } };
        if !c.is_whitespace() {
            tokens.push((line, rest[..length].to_owned()));
        }
        line += usize::from(c == '\n');
        rest = &rest[length..];
    }
    tokens
}

#[test]
fn comments_and_literals_are_not_code() {
    let source =
        "// crate::a\n/* crate::b /* nested */ crate::c */ let x = \"crate::d \\\" crate::e\"; let y = r#\"crate::f\"#; let z = '\"'; crate::g::h()";
    assert_eq!(paths(&blank(source)), [Path { line: 2, segments: vec!["crate".into(), "g".into(), "h".into()] }]);
}

#[test]
fn a_lifetime_does_not_open_a_literal() {
    assert_eq!(paths(&blank("fn f<'a>(x: &'a str) -> crate::g::H<'a> {}")).len(), 1);
}

#[test]
fn nested_use_trees_are_flattened() {
    let flat = |source| paths(source).into_iter().map(|p| p.segments.join("::")).collect::<Vec<_>>();
    assert_eq!(flat("use a::{b, c::{self, d as e}, f::*}; x"), ["a::b", "a::c::self", "a::c::d", "a::f::*"]);
    assert_eq!(flat("let v = a::b::<c::D>(e::f);"), ["a::b", "c::D", "e::f"]);
}

#[test]
fn modules_for_tests_are_found() {
    assert_eq!(test_files("mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\npub(crate) mod c;\n#[cfg(test)]\nfn d() {}\nmod e;"), ["b", "c"]);
}

#[test]
fn test_modules_are_left_out() {
    let (code, removed) = without_tests(&blank("use a::b;\n#[cfg(test)]\nmod tests {\n  use c::d;\n  fn f() { g(\"}\"); }\n}\nuse e::f;"));
    let lines: Vec<_> = paths(&code).into_iter().map(|p| (p.line, p.segments.join("::"))).collect();
    assert_eq!(lines, [(1, "a::b".to_owned()), (7, "e::f".to_owned())]);
    assert_eq!(removed, 5);
}
