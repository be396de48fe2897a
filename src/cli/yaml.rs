//! YAML that every reader understands alike.
//!
//! The usual writers leave `yes`, `22:22` or `2026-11-30` bare, which a YAML 1.1 reader (kubectl's is one) takes for a boolean, a
//! number or a date. Here a text is bare only when it cannot be anything else, and otherwise stands in quotes as JSON writes it.

use std::fmt::Write as _;

use serde_json::Value;

/// Words that some reader takes for something other than a text.
const RESERVED: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// `value` as one YAML document, with a line break at its end.
pub(super) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    block(&mut out, value, 0);
    let begin = out.strip_prefix('\n').unwrap_or(&out);
    let mut out = begin.trim_start_matches(' ').to_owned();
    if !out.ends_with('\n') {
        out.push('\n');
    }
    out
}

/// Writes `value` behind a `key:`: a scalar on the same line, anything else below it.
fn block(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                new_line(out, indent);
                out.push_str(&text(key));
                out.push(':');
                block(out, value, indent + 2);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                new_line(out, indent);
                out.push('-');
                let mut inner = String::new();
                block(&mut inner, item, indent + 2);
                // The first line of what is nested goes beside its dash.
                out.push(' ');
                out.push_str(inner.trim_start_matches(['\n', ' ']));
            }
        }
        scalar => {
            out.push(' ');
            match scalar {
                Value::String(string) => out.push_str(&text(string)),
                other => {
                    let _ = write!(out, "{other}"); // null, true, 1, {} and [] are the same in JSON; a String takes any write
                }
            }
        }
    }
}

fn new_line(out: &mut String, indent: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n(' ', indent));
}

fn text(text: &str) -> String {
    let bare = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/'))
        && !RESERVED.contains(&text.to_ascii_lowercase().as_str());
    if bare {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Not printable for YAML, or a line break for it.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn what_another_reader_would_misread_is_quoted() {
        let value = json!({
            "answer": "yes", "time": "22:22", "date": "2026-11-30", "octal": "0644", "image": "python:3.13", "plain": "demo-1", "n": 1,
            "none": null, "empty": {}, "list": [], "env": {"A b": "x\ny", "off": true}, "items": [{"a": 1, "b": [1, "2"]}, "x", [["deep"]]],
        });
        insta::assert_snapshot!(to_string(&value), @r#"
        answer: "yes"
        date: "2026-11-30"
        empty: {}
        env:
          "A b": "x\ny"
          "off": true
        image: "python:3.13"
        items:
          - a: 1
            b:
              - 1
              - "2"
          - x
          - - - deep
        list: []
        "n": 1
        none: null
        octal: "0644"
        plain: demo-1
        time: "22:22"
        "#);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let word = prop_oneof![any::<String>(), "[a-zA-Z0-9:_. -]{0,8}", Just("on".to_owned()), Just("~".to_owned()), Just("- a".to_owned())];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            word.clone().prop_map(Value::from)
        ];
        leaf.prop_recursive(4, 32, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map(word.clone(), inner, 0..5).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_reader_gets_back_what_was_written(value in any_json()) {
            let text = to_string(&value);
            let read: Value = serde_yaml::from_str(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(read, value, "{}", text);
        }
    }
}
