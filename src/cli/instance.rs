//! An instance as the control plane shows it, and how it is told to a person.

use serde::Deserialize;
use serde_json::Value;

use super::client::Client;
use super::failure::Failure;
use super::output::Column;
use super::terminal::one_line;
use crate::types::State;

/// The columns of every list of instances.
pub(super) const COLUMNS: [Column; 8] = [
    ("INSTANCE", "instanceId"),
    ("STATE", "state"),
    ("REASON", "reason"),
    ("EXIT CODE", "exitCode"),
    ("PROVIDER", "providerName"),
    ("NODE", "node"),
    ("LAUNCHED", "launchedAt"),
    ("MESSAGE", "message"),
];

/// What is shown of an instance. Words are texts here, so that a newer control plane's are shown as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Instance {
    pub(super) instance_id: String,
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) provider_name: String,
    pub(super) node: Option<String>,
    pub(super) started_at: Option<String>,
    pub(super) log_dropped_bytes: u64,
    pub(super) log_complete: Option<bool>,
}

impl Instance {
    /// Reads an answer of `client`.
    pub(super) fn read(client: &Client, answer: Value) -> Result<Self, Failure> {
        let instance: Self = serde_json::from_value(answer).map_err(|e| client.confused(format!("an instance of another form: {e}")))?;
        if instance.instance_id.is_empty() || instance.state.is_empty() {
            return Err(client.confused("an instance without id or state"));
        }
        Ok(instance)
    }

    /// Whether it is in `state`.
    pub(super) fn is(&self, state: State) -> bool {
        self.state == state.to_string()
    }

    /// Whether it ended for good.
    pub(super) fn ended(&self) -> bool {
        self.is(State::Stopped)
    }

    /// A line on where it stands: `starting: image_pull: …`, `running on node-1`.
    pub(super) fn progress(&self) -> String {
        let mut line = one_line(&self.state);
        if self.is(State::Running) {
            if let Some(node) = &self.node {
                line = format!("{line} on {}", one_line(node));
            }
            return line;
        }
        for part in self.words() {
            line = format!("{line}: {part}");
        }
        line
    }

    /// How it ended, in one truthful line.
    pub(super) fn verdict(&self) -> String {
        let reason = one_line(self.reason.as_deref().unwrap_or("no reason given"));
        let code = self.exit_code.map_or_else(|| "exit code unknown".to_owned(), |code| format!("exit code {code}"));
        let mut line = format!("{} {}: {reason} ({code})", self.instance_id, one_line(&self.state));
        if let Some(message) = self.message.as_deref().filter(|message| !message.is_empty()) {
            line = format!("{line}: {}", one_line(message));
        }
        line
    }

    /// What of this is news: a message that only counts seconds is not.
    pub(super) fn news(&self) -> String {
        if self.is(State::Unknown) { format!("{} {:?}", self.state, self.reason) } else { self.progress() }
    }

    /// What is missing of its output for good, if anything is.
    pub(super) fn log_gap(&self) -> Option<String> {
        if self.log_dropped_bytes > 0 {
            return Some(format!("{} bytes at the end of the output went over the control plane's limit and are not kept", self.log_dropped_bytes));
        }
        let unread = self.ended() && self.started_at.is_some() && self.log_complete == Some(false);
        unread.then(|| "the end of the output may be missing: the daemon could not read the log to its end".to_owned())
    }

    fn words(&self) -> impl Iterator<Item = String> {
        [&self.reason, &self.message].into_iter().flatten().filter(|word| !word.is_empty() && **word != self.state).map(|word| one_line(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(state: &str, reason: &str, message: &str, exit_code: Option<i32>) -> Instance {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (reason, message) = (text(reason), text(message));
        Instance {
            instance_id: "lakeshore-0a1b2c3d".into(),
            state: state.into(),
            reason,
            message,
            exit_code,
            node: text("node-1"),
            ..Default::default()
        }
    }

    #[test]
    fn what_is_told_of_an_instance() {
        let lines = [
            instance("starting", "queued", "", None).progress(),
            instance("starting", "image_pull", "Back-off pulling image \"x\"", None).progress(),
            instance("running", "running", "", None).progress(),
            instance("unknown", "daemon_unreachable", "no word for 60 s", None).progress(),
            instance("stopped", "completed", "", Some(0)).verdict(),
            instance("stopped", "exit_code", "Error", Some(3)).verdict(),
            instance("stopped", "lost", "it is not known to have run", None).verdict(),
            instance("stopped", "", "", None).verdict(),
            instance("stopped", "exit_code", "evil\u{1b}[2J", Some(1)).verdict(),
        ];
        insta::assert_snapshot!(lines.join("\n"), @r#"
        starting: queued
        starting: image_pull: Back-off pulling image "x"
        running on node-1
        unknown: daemon_unreachable: no word for 60 s
        lakeshore-0a1b2c3d stopped: completed (exit code 0)
        lakeshore-0a1b2c3d stopped: exit_code (exit code 3): Error
        lakeshore-0a1b2c3d stopped: lost (exit code unknown): it is not known to have run
        lakeshore-0a1b2c3d stopped: no reason given (exit code unknown)
        lakeshore-0a1b2c3d stopped: exit_code (exit code 1): evil^[[2J
        "#);
    }
}
