//! Bounds on what JSON may make of its bytes, checked before any of it is read.
//!
//! A parsed value takes far more than its text: `{"":0}` has 6 bytes and becomes a tree's node of over 600. A frame's length alone would let
//! 1 MiB take 100 MiB, and the daemon has 128. So the values are counted too. Depth is bounded by `serde_json` itself, at 128.

use super::MAX_TEXT;

/// Most JSON values in a text frame: a message of ours has over 16 bytes a value.
pub const MAX_VALUES: usize = MAX_TEXT / 16;
/// Most JSON values in a dispatch: thousands of arguments and variables. What comes of `resources` is copied until it is a manifest.
pub const MAX_DISPATCH_VALUES: usize = 16 << 10;

/// How many values a JSON text can hold at most, counted without reading one: each but the first stands behind a bracket or a comma.
pub fn most_values(json: &[u8]) -> usize {
    let (mut values, mut in_string, mut escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' | b',' if !in_string => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn held(value: &Value) -> usize {
        1 + match value {
            Value::Array(list) => list.iter().map(held).sum::<usize>(),
            Value::Object(map) => map.values().map(held).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), any::<i32>().prop_map(Value::from), r#"[a-z\\"\[{,]{0,6}"#.prop_map(Value::from)];
        leaf.prop_recursive(4, 40, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(r#"[a-z\\"\[{,]{0,4}"#, inner, 0..6).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        /// An empty array or object counts as one value more than it holds; nothing counts as less.
        #[test]
        fn no_value_escapes_the_count(value in any_json()) {
            let (held, most) = (held(&value), most_values(value.to_string().as_bytes()));
            prop_assert!((held..=2 * held).contains(&most), "{held} held, {most} counted in {value}");
        }
    }

    #[test]
    fn what_stands_in_a_string_is_not_counted() {
        for (text, expected) in [(r#""[,{""#, 1), (r#"["\"",1]"#, 3), (r#"{"a\\":[,"#, 4), ("", 1), (r#"{"a":{"b":[1,2]}}"#, 5)] {
            assert_eq!(most_values(text.as_bytes()), expected, "{text}");
        }
    }
}
