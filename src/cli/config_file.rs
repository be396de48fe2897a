//! `~/.config/lakeshore/config.yaml`: the same settings as the flags, for every day.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use serde_yaml::Value;

use super::failure::Failure;
use super::terminal;

/// The keys, as they may be written.
const KEYS: [&str; 5] = ["server", "token", "token_file", "namespace", "ca_file"];
/// More is not a configuration; it is refused before it is parsed.
const MAX_BYTES: u64 = 64 << 10;
/// How alike two words must be, of 1, for one to be offered for the other. clap uses the same.
const ALIKE: f64 = 0.7;

/// What the file says. A key with the value `null` counts as absent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigFile {
    pub(super) server: Option<String>,
    #[serde(deserialize_with = "secret")]
    pub(super) token: Option<SecretString>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) namespace: Option<String>,
    pub(super) ca_file: Option<PathBuf>,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(SecretString::from))
}

/// Reads the file; a file that is not there says nothing.
///
/// # Errors
///
/// [`Failure::Usage`], naming the file and the key, when it is not readable, not YAML, or holds an unknown key.
pub(super) fn read(path: &Path) -> Result<ConfigFile, Failure> {
    let unreadable = |e: std::io::Error| Failure::usage(format!("cannot read {}: {e}", path.display()));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(ConfigFile::default()),
        Err(e) => return Err(unreadable(e)),
    };
    if metadata.len() > MAX_BYTES {
        return Err(Failure::usage(format!(
            "{} is {} bytes long, more than the {MAX_BYTES} that a configuration may be",
            path.display(),
            metadata.len()
        )));
    }
    let file = parse(&std::fs::read_to_string(path).map_err(unreadable)?).map_err(|fault| Failure::usage(format!("{}: {fault}", path.display())))?;
    if file.token.is_some() && metadata.mode() & 0o077 != 0 {
        terminal::note(&format!("note: {path} holds a token and others may read it: chmod 600 {path}", path = path.display()));
    }
    Ok(file)
}

fn parse(text: &str) -> Result<ConfigFile, String> {
    if text.trim().is_empty() {
        return Ok(ConfigFile::default());
    }
    // Never the parser's own excerpt: the file may hold a token. Its message names position and path only.
    let value: Value = serde_yaml::from_str(text).map_err(|e| format!("not valid YAML: {e}"))?;
    let mut keys = match &value {
        Value::Null => return Ok(ConfigFile::default()),
        Value::Mapping(mapping) => mapping.keys().map(|key| key.as_str().unwrap_or("?")),
        _ => return Err("a mapping such as `server: https://lakeshore.example` is expected".to_owned()),
    };
    if let Some(key) = keys.find(|key| !KEYS.contains(key)) {
        let hint = nearest(key, &KEYS).map_or_else(|| format!("the keys are {}", KEYS.join(", ")), |near| format!("did you mean `{near}`?"));
        return Err(format!("unknown key `{key}`: {hint}"));
    }
    for key in KEYS {
        if value.get(key).is_some_and(|value| !(value.is_string() || value.is_null())) {
            return Err(format!("`{key}` must be a text; put it in quotes"));
        }
    }
    serde_yaml::from_value(value).map_err(|e| e.to_string())
}

/// The word of `known` that `word` was probably meant to be.
fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let likeness = |known: &str| strsim::jaro_winkler(&word, known);
    known.iter().copied().map(|k| (likeness(k), k)).filter(|(likeness, _)| *likeness > ALIKE).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, k)| k)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        parse(text).expect_err("is refused")
    }

    #[test]
    fn every_key_may_be_absent() {
        for empty in ["", "\n", "# nothing\n", "~", "server:\n"] {
            let file = parse(empty).expect(empty);
            assert!(file.server.is_none() && file.token.is_none() && file.namespace.is_none(), "{empty:?}");
        }
        let file = parse("server: http://a:1\nca_file: /ca.crt\n").expect("is valid");
        assert_eq!((file.server.as_deref(), file.ca_file), (Some("http://a:1"), Some(PathBuf::from("/ca.crt"))));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_right_one() {
        assert_eq!(fault("sever: x"), "unknown key `sever`: did you mean `server`?");
        assert_eq!(fault("ca-file: x"), "unknown key `ca-file`: did you mean `ca_file`?");
        assert_eq!(fault("zzz: x"), "unknown key `zzz`: the keys are server, token, token_file, namespace, ca_file");
    }

    #[test]
    fn a_value_of_another_type_is_refused_and_not_repeated() {
        assert_eq!(fault("token: [secret-token]"), "`token` must be a text; put it in quotes");
        assert_eq!(fault("namespace: 1"), "`namespace` must be a text; put it in quotes");
        assert!(!fault("token: \"secret-token\nserver: {").contains("secret-token"));
        assert!(!fault("secret-token").contains("secret-token"));
    }
}
