//! The only place of the CLI that names environment variables. (`serve` names its own beside its flags.)

use std::path::PathBuf;

use secrecy::SecretString;

use super::failure::Failure;

/// The control plane's URL.
pub(super) const SERVER: &str = "LAKESHORE_URL";
/// The caller token.
pub(super) const TOKEN: &str = "LAKESHORE_TOKEN";
/// A file that holds the caller token.
pub(super) const TOKEN_FILE: &str = "LAKESHORE_TOKEN_FILE";
/// The namespace of the control plane.
pub(super) const NAMESPACE: &str = "LAKESHORE_NAMESPACE";
/// A PEM bundle of certificate authorities.
pub(super) const CA_FILE: &str = "LAKESHORE_CA_FILE";

/// What the environment says. A variable that is set and empty counts as not set.
#[derive(Clone, Debug, Default)]
pub(super) struct Env {
    pub(super) server: Option<String>,
    pub(super) token: Option<SecretString>,
    pub(super) token_file: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) ca_file: Option<String>,
    /// Where the configuration file is looked for.
    pub(super) config_file: Option<PathBuf>,
}

impl Env {
    /// Reads this process's environment.
    pub(super) fn read() -> Result<Self, Failure> {
        // The XDG rule: a relative path there is to be ignored.
        let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(|home| PathBuf::from(home).join(".config"));
        Ok(Self {
            server: variable(SERVER)?,
            token: variable(TOKEN)?.map(SecretString::from),
            token_file: variable(TOKEN_FILE)?,
            namespace: variable(NAMESPACE)?,
            ca_file: variable(CA_FILE)?,
            config_file: xdg.or(home).map(|folder| folder.join("lakeshore/config.yaml")),
        })
    }
}

fn variable(name: &str) -> Result<Option<String>, Failure> {
    match std::env::var_os(name).filter(|value| !value.is_empty()).map(std::ffi::OsString::into_string) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(Failure::usage(format!("{name} is not UTF-8"))),
    }
}
