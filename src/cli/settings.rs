//! Which server, token and namespace: a flag wins over the environment, which wins over the file, which wins over the default.

use std::path::{Path, PathBuf};

use reqwest::Url;
use secrecy::SecretString;

use super::config_file::ConfigFile;
use super::env::{self, Env};
use super::failure::Failure;
use crate::types::ResourceName;

/// Where `lakeshore serve` listens unless it is told otherwise.
const DEFAULT_SERVER: &str = "http://127.0.0.1:7420";
/// Exists from the start on every control plane.
const DEFAULT_NAMESPACE: &str = "default";
/// A token file longer than this is some other file.
const MAX_TOKEN_BYTES: usize = 4096;

/// How to reach the control plane.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct ConnectionArgs {
    /// URL of the control plane [env: LAKESHORE_URL] [default: http://127.0.0.1:7420]
    #[arg(long, global = true, value_name = "URL")]
    pub(super) server: Option<String>,
    /// Caller token; other users of this machine can see it here, so prefer --token-file or the environment [env: LAKESHORE_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN", value_parser = secret, conflicts_with = "token_file")]
    pub(super) token: Option<SecretString>,
    /// File that holds the caller token [env: LAKESHORE_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) token_file: Option<PathBuf>,
    /// Namespace of the control plane; not the Kubernetes one [env: LAKESHORE_NAMESPACE] [default: default]
    #[arg(short, long = "namespace", global = true, value_name = "NAME")]
    pub(super) namespaces: Vec<String>,
    /// PEM bundle of the authorities to trust, instead of the system's [env: LAKESHORE_CA_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) ca_file: Option<PathBuf>,
}

#[expect(clippy::unnecessary_wraps, reason = "the form that clap wants of a value parser")]
fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text))
}

/// A value, and where it was set, for messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    pub(super) origin: String,
}

/// Everything that a command needs to know to talk to the control plane.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) server: Setting<Url>,
    pub(super) token: Option<Setting<SecretString>>,
    pub(super) namespace: String,
    /// Whether the namespace is one that the next command would not have by itself.
    pub(super) namespace_by_flag: bool,
    pub(super) ca_file: Option<PathBuf>,
}

/// Decides between the sources. `read_token` reads a token file.
///
/// # Errors
///
/// [`Failure::Usage`] when a value is not what it should be; it names the source, and never repeats a token.
pub(super) fn resolve(
    flags: &ConnectionArgs,
    env: Env,
    file: ConfigFile,
    read_token: impl Fn(&Path) -> std::io::Result<Vec<u8>>,
) -> Result<Settings, Failure> {
    let config = env.config_file.as_ref().map_or_else(|| "the configuration file".to_owned(), |path| path.display().to_string());
    let pick = |flag: (Option<String>, &str), env: (Option<String>, &str), file: Option<String>, key: &str| {
        let set = |value: Option<String>, origin: String| value.map(|value| Setting { value, origin });
        set(flag.0, flag.1.to_owned()).or_else(|| set(env.0, env.1.to_owned())).or_else(|| set(file, format!("`{key}` in {config}")))
    };

    let server = pick((flags.server.clone(), "--server"), (env.server, env::SERVER), file.server, "server")
        .unwrap_or_else(|| Setting { value: DEFAULT_SERVER.to_owned(), origin: "the default".to_owned() });
    let server = Setting { value: parse_server(&server)?, origin: server.origin };

    // One source at a time, so that `--token-file` is not outdone by a token in the environment.
    let sources = [
        (flags.token.clone(), "--token".to_owned(), flags.token_file.clone(), "--token-file".to_owned()),
        (env.token, env::TOKEN.to_owned(), env.token_file.map(PathBuf::from), env::TOKEN_FILE.to_owned()),
        (file.token, format!("`token` in {config}"), file.token_file, format!("`token_file` in {config}")),
    ];
    let mut token = None;
    for (text, text_origin, path, path_origin) in sources {
        token = match (text, path) {
            (Some(value), _) => Some(Setting { value, origin: text_origin }),
            (None, Some(path)) => Some(Setting { value: token_from(&path, &path_origin, &read_token)?, origin: path_origin }),
            (None, None) => continue,
        };
        break;
    }
    if let Some(token) = &token {
        check_token(token)?;
    }

    let mut by_flag = flags.namespaces.iter().cloned();
    let flag = by_flag.next();
    if by_flag.next().is_some() {
        return Err(Failure::usage("--namespace is given more than once; only `tokens create` takes several"));
    }
    let namespace_by_flag = flag.is_some();
    let namespace = match pick((flag, "--namespace"), (env.namespace, env::NAMESPACE), file.namespace, "namespace") {
        Some(setting) => parse_namespace(setting)?,
        None => DEFAULT_NAMESPACE.to_owned(),
    };
    let ca_file = flags.ca_file.clone().or(env.ca_file.map(PathBuf::from)).or(file.ca_file);
    Ok(Settings { server, token, namespace, namespace_by_flag, ca_file })
}

fn parse_server(server: &Setting<String>) -> Result<Url, Failure> {
    let (text, origin) = (server.value.trim(), &server.origin);
    let wrong = |why: &str| Err(Failure::usage(format!("the server {text:?} (from {origin}) {why}: write it as in https://lakeshore.example")));
    match Url::parse(text) {
        Ok(url) if !matches!(url.scheme(), "http" | "https") || url.host().is_none() => wrong("is not an http or https URL"),
        Ok(url) if url.password().is_some() || !url.username().is_empty() => {
            // Not repeated: it holds a password.
            Err(Failure::usage(format!("the server (from {origin}) has a user or password in its URL: use a token instead")))
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => wrong("has a query or a fragment"),
        Ok(url) => Ok(url),
        Err(_) => wrong("is not a URL"),
    }
}

/// Refuses what no namespace is called: as part of a path it would name something else.
fn parse_namespace(Setting { value, origin }: Setting<String>) -> Result<String, Failure> {
    match value.parse::<ResourceName>() {
        Ok(name) => Ok(name.into()),
        Err(error) => Err(Failure::usage(format!("the namespace from {origin}: {error}"))),
    }
}

/// Reads an id of a token: an empty one, or one of dots, would name another path.
pub(super) fn parse_id(text: &str) -> Result<String, String> {
    match text.trim() {
        "" | "." | ".." => Err("an id is 16 digits and letters, and the list of tokens shows it".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn token_from(path: &Path, origin: &str, read: impl Fn(&Path) -> std::io::Result<Vec<u8>>) -> Result<SecretString, Failure> {
    let place = format!("the token file {} (from {origin})", path.display());
    let bytes = read(path).map_err(|e| Failure::usage(format!("cannot read {place}: {e}")))?;
    match std::str::from_utf8(&bytes).map(str::trim) {
        Ok("") => Err(Failure::usage(format!("{place} is empty"))),
        Ok(text) if bytes.len() <= MAX_TOKEN_BYTES => Ok(SecretString::from(text)),
        _ => Err(Failure::usage(format!("{place} does not hold a token"))),
    }
}

/// Refuses what cannot travel in a header, or is plainly the other kind of token.
fn check_token(token: &Setting<SecretString>) -> Result<(), Failure> {
    use secrecy::ExposeSecret;
    let (text, origin) = (token.value.expose_secret(), &token.origin);
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Failure::usage(format!("the token from {origin} is empty, or holds spaces or characters that no token has")));
    }
    if text.starts_with("nymph_enrol_") {
        return Err(Failure::usage(format!(
            "the token from {origin} is a daemon's enrolment token; callers use one that `lakeshore tokens create` made"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;

    fn with(flags: &ConnectionArgs, env: Env, file: ConfigFile) -> Result<Settings, Failure> {
        resolve(flags, env, file, |path| {
            if path == Path::new("/token") { Ok(b"lakeshore_file\n".to_vec()) } else { Err(std::io::ErrorKind::NotFound.into()) }
        })
    }

    fn text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let flags = ConnectionArgs { server: text("http://flag"), namespaces: vec!["flag".to_owned()], ..Default::default() };
        let env = Env { server: text("http://env"), namespace: text("env"), ..Default::default() };
        let file = ConfigFile { server: text("http://file"), namespace: text("file"), ..Default::default() };
        for (flags, env, file, expected) in [
            (flags.clone(), env.clone(), file.clone(), ("http://flag/", "flag", "--server")),
            (Default::default(), env, file.clone(), ("http://env/", "env", "LAKESHORE_URL")),
            (Default::default(), Env::default(), file, ("http://file/", "file", "`server` in the configuration file")),
            (Default::default(), Env::default(), ConfigFile::default(), ("http://127.0.0.1:7420/", "default", "the default")),
        ] {
            let settings = with(&flags, env, file).expect("is valid");
            assert_eq!((settings.server.value.as_str(), settings.namespace.as_str(), settings.server.origin.as_str()), expected);
        }
    }

    #[test]
    fn a_token_file_of_the_flags_wins_over_a_token_of_the_environment() {
        let flags = ConnectionArgs { token_file: Some("/token".into()), ..Default::default() };
        let settings = with(&flags, Env { token: Some("lakeshore_env".into()), ..Default::default() }, ConfigFile::default()).expect("is valid");
        assert_eq!(settings.token.expect("is set").value.expose_secret(), "lakeshore_file");
    }

    #[test]
    fn a_wrong_value_names_its_source_and_never_a_secret() {
        let fault = |env: Env| with(&ConnectionArgs::default(), env, ConfigFile::default()).expect_err("is refused").to_string();
        insta::assert_snapshot!([
            fault(Env { server: text("lakeshore:7420"), ..Default::default() }),
            fault(Env { server: text("lakeshore"), ..Default::default() }),
            fault(Env { server: text("https://me:secret-password@host"), ..Default::default() }),
            fault(Env { token: Some("secret token".into()), ..Default::default() }),
            fault(Env { token: Some("nymph_enrol_secret".into()), ..Default::default() }),
            fault(Env { token_file: text("/nowhere"), ..Default::default() }),
        ].join("\n"), @r#"
        the server "lakeshore:7420" (from LAKESHORE_URL) is not an http or https URL: write it as in https://lakeshore.example
        the server "lakeshore" (from LAKESHORE_URL) is not a URL: write it as in https://lakeshore.example
        the server (from LAKESHORE_URL) has a user or password in its URL: use a token instead
        the token from LAKESHORE_TOKEN is empty, or holds spaces or characters that no token has
        the token from LAKESHORE_TOKEN is a daemon's enrolment token; callers use one that `lakeshore tokens create` made
        cannot read the token file /nowhere (from LAKESHORE_TOKEN_FILE): entity not found
        "#);
    }
}
