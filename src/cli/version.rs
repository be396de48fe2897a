//! `lakeshore version`: this program's version, and the control plane's if it answers.

use std::time::Duration;

use serde_json::{Value, json};

use super::client::Client;
use super::failure::Failure;
use super::output::{self, Format};
use super::session;
use super::settings::ConnectionArgs;

/// Nobody waits long for a version.
const PATIENCE: Duration = Duration::from_secs(3);

/// Shows both. A server that cannot be asked is no failure: this program's own version is known.
pub(super) async fn run(flags: &ConnectionArgs, format: Format) -> Result<(), Failure> {
    let client = Client::new(&session::settings(flags)?)?;
    let own = env!("CARGO_PKG_VERSION");
    let answer = client.version(PATIENCE).await;
    let server = answer.as_ref().ok().and_then(|answer| answer.get("version")).and_then(Value::as_str);
    match format {
        Format::Table => {
            output::write(&format!("lakeshore {own}\n"))?;
            match (&answer, server) {
                (_, Some(version)) => output::write(&format!("server {version} at {}\n", client.server())),
                (Err(failure), None) => output::write(&format!("server unknown: {failure}\n")),
                (Ok(_), None) => output::write(&format!("server unknown: {} does not say\n", client.server())),
            }
        }
        Format::Json | Format::Yaml => output::object(format, &json!({"client": own, "server": server})),
    }
}
