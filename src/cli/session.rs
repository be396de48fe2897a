//! What every command that talks to the control plane is given: a client, a namespace, and how to write.

use reqwest::StatusCode;
use secrecy::ExposeSecret;
use serde_json::Value;

use super::client::Client;
use super::config_file;
use super::env::{self, Env};
use super::failure::Failure;
use super::output::Format;
use super::settings::{self, ConnectionArgs, Settings};
use crate::types::shell_quoted;

/// One run of one command.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) format: Format,
    namespace_by_flag: bool,
}

impl Session {
    /// Reads the settings; contacts nothing.
    ///
    /// # Errors
    ///
    /// [`Failure::Usage`] for a wrong setting, and when there is no token.
    pub(super) fn open(flags: &ConnectionArgs, format: Format) -> Result<Self, Failure> {
        let settings = settings(flags)?;
        if settings.token.as_ref().is_none_or(|token| token.value.expose_secret().is_empty()) {
            return Err(Failure::Usage {
                message: format!("no token is set for {}", settings.server.value.as_str().trim_end_matches('/')),
                cure: Some(format!(
                    "where the server runs, `lakeshore tokens create --data DIR --name NAME --admin` prints one; set it as {} or by --token-file",
                    env::TOKEN
                )),
            });
        }
        Ok(Self { client: Client::new(&settings)?, namespace: settings.namespace, format, namespace_by_flag: settings.namespace_by_flag })
    }

    /// The path below this session's namespace.
    pub(super) fn path<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["v1", "namespaces", self.namespace.as_str()], rest].concat()
    }

    /// Adds the thing called `name` to a collection; with `force`, replaces the one that is there.
    pub(super) async fn add(&self, collection: &str, name: &str, body: &Value, force: bool) -> Result<Value, Failure> {
        match self.client.post(&self.path(&[collection]), body).await {
            Err(Failure::Refused(problem)) if problem.status == StatusCode::CONFLICT && force => {
                // A conflict may also be with another name (two that share a slug): then there is nothing to replace, and
                // what the first answer said is what matters.
                match self.client.put(&self.path(&[collection, name]), body).await {
                    Err(Failure::Refused(second)) if second.status == StatusCode::NOT_FOUND => Err(Failure::Refused(problem)),
                    replaced => replaced,
                }
            }
            Err(Failure::Refused(mut problem)) if problem.status == StatusCode::CONFLICT => {
                problem.cure.get_or_insert_with(|| "--force replaces it".to_owned());
                Err(Failure::Refused(problem))
            }
            added => added,
        }
    }

    /// A command to suggest, such that it finds the same namespace.
    pub(super) fn suggest(&self, command: &str) -> String {
        match self.namespace_by_flag {
            true => format!("lakeshore --namespace {} {command}", shell_quoted(&self.namespace)),
            false => format!("lakeshore {command}"),
        }
    }
}

/// The settings from flags, environment and file.
pub(super) fn settings(flags: &ConnectionArgs) -> Result<Settings, Failure> {
    let env = Env::read()?;
    let file = env.config_file.as_deref().map(config_file::read).transpose()?.unwrap_or_default();
    settings::resolve(flags, env, file, |path| std::fs::read(path))
}
