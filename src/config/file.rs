//! The file, as a flat map from key to text.

use std::collections::BTreeMap;

use serde_yaml::Value;

use super::ConfigError;
use super::key::KEYS;
use crate::types::nearest;

/// Reads the file's text. Keys that are null or empty are left out.
pub(super) fn flatten(text: &str) -> Result<BTreeMap<&'static str, String>, ConfigError> {
    // Through `Value`, which refuses a key that is given twice.
    let value: Value = serde_yaml::from_str(text).map_err(|source| ConfigError::Malformed { source })?;
    let mut found = BTreeMap::new();
    walk("", &value, &mut found)?;
    Ok(found)
}

fn walk(at: &str, value: &Value, found: &mut BTreeMap<&'static str, String>) -> Result<(), ConfigError> {
    let shape = |key: &str, expected| Err(ConfigError::Shape { key: key.to_owned(), expected });
    let mapping = match value {
        Value::Null => return Ok(()),
        Value::Mapping(mapping) => mapping,
        _ if at.is_empty() => return shape("(the whole file)", "a mapping of keys to values"),
        _ => return shape(at, "a section: keys and values below it"),
    };
    for (key, value) in mapping {
        let Some(key) = key.as_str() else { return shape(at, "a section whose keys are words") };
        let path = if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
        if let Some(known) = KEYS.iter().find(|known| known.path == path) {
            match value {
                Value::Null => continue,
                Value::String(text) if text.is_empty() => continue,
                Value::String(text) => found.insert(known.path, text.clone()),
                Value::Number(number) => found.insert(known.path, number.to_string()),
                Value::Bool(truth) => found.insert(known.path, truth.to_string()),
                Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => return shape(&path, "one value, not a list or section"),
            };
        } else if KEYS.iter().any(|known| known.path.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with('.'))) {
            walk(&path, value, found)?;
        } else {
            return Err(unknown(at, &path));
        }
    }
    Ok(())
}

/// The error for a key that does not exist: names the nearest below the same section, else the nearest of all, else what there is.
fn unknown(section: &str, path: &str) -> ConfigError {
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let name = path.rsplit('.').next().unwrap_or(path);
    let siblings = siblings(section);
    let among = |paths: &[&'static str]| {
        nearest(name, paths.iter().map(|path| last(path))).and_then(|near| paths.iter().copied().find(|path| last(path) == near))
    };
    let guess = among(&siblings).or_else(|| among(&KEYS.map(|key| key.path)));
    let cure = match guess {
        Some(guess) => format!("did you mean `{guess}`?"),
        None => format!("known here: {}", siblings.join(", ")),
    };
    ConfigError::UnknownKey { key: path.chars().take(200).collect(), cure }
}

/// What may stand directly below `section`: keys and sections, by their whole path, in the table's order.
fn siblings(section: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for key in &KEYS {
        let prefix = if section.is_empty() { 0 } else { section.len() + 1 };
        let Some(rest) = key.path.get(prefix..).filter(|_| section.is_empty() || key.path.starts_with(&format!("{section}."))) else { continue };
        let name = key.path.get(..prefix + rest.find('.').unwrap_or(rest.len())).unwrap_or(key.path);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
