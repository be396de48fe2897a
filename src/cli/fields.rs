//! `--kwarg k=v` and `--field k=v`: which values are JSON, and which are texts whatever they look like.
//!
//! **Source:** \[L\] S107, S108.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::failure::Failure;

/// Fields whose value is a JSON object.
const OBJECTS: [&str; 5] = ["env", "env_secrets", "node_selector", "resources", "tags"];
/// Fields whose value is a JSON list.
const LISTS: [&str; 3] = ["args", "image_pull_secrets", "tolerations"];

/// Reads pairs given by `flag` (`--kwarg`, `--field`): split at the first `=`, JSON only where the field is an object or a list.
///
/// # Errors
///
/// [`Failure::Usage`], naming the field, for a pair without `=`, an empty or repeated key, and for JSON that is invalid or of another
/// kind. Values are not repeated: they may be secret.
pub(super) fn parse(flag: &str, pairs: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut fields = Map::new();
    for pair in pairs {
        let (key, text) = split(flag, pair)?;
        if fields.insert(key.to_owned(), value(flag, key, text)?).is_some() {
            return Err(Failure::usage(format!("{flag} {key} is given more than once")));
        }
    }
    Ok(fields)
}

/// Reads pairs whose values are all texts (`--env`).
///
/// # Errors
///
/// As [`parse`].
pub(super) fn texts(flag: &str, pairs: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut fields = Map::new();
    for pair in pairs {
        let (key, text) = split(flag, pair)?;
        if fields.insert(key.to_owned(), Value::from(text)).is_some() {
            return Err(Failure::usage(format!("{flag} {key} is given more than once")));
        }
    }
    Ok(fields)
}

fn split<'a>(flag: &str, pair: &'a str) -> Result<(&'a str, &'a str), Failure> {
    match pair.split_once('=') {
        Some(("", _)) => Err(Failure::usage(format!("{flag} has no name before its `=`: write {flag} name=value"))),
        Some(pair) => Ok(pair),
        None => Err(Failure::usage(format!("{flag} {pair:?} has no `=`: write {flag} name=value"))),
    }
}

fn value(flag: &str, key: &str, text: &str) -> Result<Value, Failure> {
    let wrong = |what: &str, example: &str, fault: String| {
        Failure::usage(format!("{flag} {key} must be a JSON {what}: {fault}; for example {flag} '{key}={example}'"))
    };
    if OBJECTS.contains(&key) {
        let example = if key == "resources" { r#"{"limits":{"memory":"1Gi"}}"# } else { r#"{"NAME":"value"}"# };
        json::<Unique>(text, '{').map(|object| Value::Object(object.0)).map_err(|fault| wrong("object", example, fault))
    } else if LISTS.contains(&key) {
        json::<Vec<Value>>(text, '[').map(Value::Array).map_err(|fault| wrong("list", r#"["value"]"#, fault))
    } else {
        Ok(Value::from(text))
    }
}

/// Reads JSON that begins with `open`. The reader's own message for a value of another kind would repeat the value.
fn json<T: for<'de> Deserialize<'de>>(text: &str, open: char) -> Result<T, String> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|e| e.to_string())?;
    if !text.trim_start().starts_with(open) {
        return Err("it is of another kind".to_owned());
    }
    serde_json::from_str(text).map_err(|e| e.to_string())
}

/// A JSON object none of whose own keys stands twice; the usual reader would keep the last in silence.
struct Unique(Map<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Unique, A::Error> {
                let mut map = Map::new();
                while let Some((key, value)) = access.next_entry::<String, Value>()? {
                    if map.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("the key {key:?} stands twice")));
                    }
                    map.insert(key, value);
                }
                Ok(Unique(map))
            }
        }
        deserializer.deserialize_map(Keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn one(pair: &str) -> Result<Value, String> {
        parse("--kwarg", &[pair.to_owned()]).map(Value::Object).map_err(|e| e.to_string())
    }

    #[test]
    fn a_pair_is_split_at_its_first_equals_sign() {
        assert_eq!(one("image=a=b=c"), Ok(json!({"image": "a=b=c"})));
        assert_eq!(one("image="), Ok(json!({"image": ""})));
        assert_eq!(one("image=two\nlines"), Ok(json!({"image": "two\nlines"})));
    }

    #[test]
    fn a_text_field_stays_a_text_whatever_it_looks_like() {
        assert_eq!(one("image=123"), Ok(json!({"image": "123"})));
        assert_eq!(one("namespace=true"), Ok(json!({"namespace": "true"})));
        assert_eq!(one("image={\"a\":1}"), Ok(json!({"image": "{\"a\":1}"})));
        assert_eq!(one("unheard_of=null"), Ok(json!({"unheard_of": "null"})));
    }

    #[test]
    fn object_and_list_fields_are_json() {
        assert_eq!(one(r#"env={"A":"=x","N":1.0,"B":true}"#), Ok(json!({"env": {"A": "=x", "N": 1.0, "B": true}})));
        assert_eq!(one(r#"resources={"limits":{"cpu":"500m"}}"#), Ok(json!({"resources": {"limits": {"cpu": "500m"}}})));
        assert_eq!(one(r#"args=["a","b"]"#), Ok(json!({"args": ["a", "b"]})));
    }

    #[test]
    fn a_fault_names_the_field_and_never_repeats_a_value() {
        let faults =
            ["env=secret", "env=\"secret\"", "env=", r#"env={"A":"1","A":"2"}"#, "args={}", "=x", "image"].map(|pair| one(pair).expect_err(pair));
        insta::assert_snapshot!(faults.join("\n"), @r#"
        --kwarg env must be a JSON object: expected value at line 1 column 1; for example --kwarg 'env={"NAME":"value"}'
        --kwarg env must be a JSON object: it is of another kind; for example --kwarg 'env={"NAME":"value"}'
        --kwarg env must be a JSON object: EOF while parsing a value at line 1 column 0; for example --kwarg 'env={"NAME":"value"}'
        --kwarg env must be a JSON object: the key "A" stands twice at line 1 column 17; for example --kwarg 'env={"NAME":"value"}'
        --kwarg args must be a JSON list: it is of another kind; for example --kwarg 'args=["value"]'
        --kwarg has no name before its `=`: write --kwarg name=value
        --kwarg "image" has no `=`: write --kwarg name=value
        "#);
        assert!(faults.iter().all(|fault| !fault.contains("secret")));
    }

    #[test]
    fn a_repeated_key_is_an_error_that_names_it() {
        let pairs = ["image=a".to_owned(), "image=b".to_owned()];
        assert_eq!(parse("--field", &pairs).expect_err("repeated").to_string(), "--field image is given more than once");
        assert_eq!(texts("--env", &["A=1".to_owned(), "A=2".to_owned()]).expect_err("repeated").to_string(), "--env A is given more than once");
    }
}
