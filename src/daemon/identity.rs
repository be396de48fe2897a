//! The daemon's proof of who it is: its projected ServiceAccount token, and the keys by which the control plane can check it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::event::Event;
use crate::apply::ApiServer;
use crate::error::Chain;

/// How often the keys are read: they change when the cluster's owner changes them.
const INTERVAL: Duration = Duration::from_secs(240);
/// How often it is tried while they could not be read.
const RETRY: Duration = Duration::from_secs(30);
/// How long the first dial waits for the first reading. The first `hello` of a cluster is the one that should carry them.
pub(super) const FIRST_READING: Duration = Duration::from_secs(10);
/// Longest identity file; a projected token has about 1,200 characters.
const MAX_IDENTITY: usize = 16 << 10;

/// Reads the proof anew, since the kubelet renews it.
///
/// # Errors
/// A text that names the file and the cure: it cannot be read, holds no token, or one that has expired.
pub(super) async fn read(path: &Path, now: Timestamp) -> Result<SecretString, String> {
    let at = format!("control_plane.identity_token_file {}", path.display());
    let cure = "mount a projected volume with a serviceAccountToken there, as the chart nymph does";
    let text = tokio::fs::read_to_string(path).await.map_err(|error| format!("{at} cannot be read: {error}; {cure}"))?;
    let token = text.trim();
    if token.is_empty() || token.len() > MAX_IDENTITY {
        return Err(format!("{at} holds no token; {cure}"));
    }
    match expiry(token) {
        None => Err(format!("{at} holds no ServiceAccount token; {cure}")),
        Some(expires) if expires <= now => {
            Err(format!("the token in {at} has expired at {expires}: the kubelet did not renew it; look at this node's kubelet and its clock"))
        }
        Some(_) => Ok(SecretString::from(token.to_owned())),
    }
}

/// When a token says that it expires. Whether it is true is for the control plane to check.
fn expiry(token: &str) -> Option<Timestamp> {
    #[derive(serde::Deserialize)]
    struct Claims {
        exp: i64,
    }
    let payload = URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    Timestamp::from_second(serde_json::from_slice::<Claims>(&payload).ok()?.exp).ok()
}

/// Reads the cluster's signing keys until cancelled, and tells what it read. `first` is told when the first reading is over, whatever came of it.
pub(super) async fn keep_reading_keys(api: ApiServer, events: mpsc::Sender<Event>, first: oneshot::Sender<()>, cancel: CancellationToken) {
    let (mut first, mut said) = (Some(first), false);
    loop {
        let pause = match api.signing_keys().await {
            Ok(keys) => {
                let cluster_uid = api.cluster_uid().await.ok().flatten();
                if events.send(Event::KeysRead { keys: Box::new(keys), cluster_uid }).await.is_err() {
                    return;
                }
                said = false;
                INTERVAL
            }
            Err(error) if said => {
                debug!(error = %Chain(&error), "Still cannot read the cluster's signing keys");
                RETRY
            }
            Err(error) => {
                said = true;
                let cure = "every ServiceAccount may read them by the ClusterRoleBinding system:service-account-issuer-discovery; restore it";
                warn!(error = %Chain(&error), cure, "The cluster's signing keys cannot be read: without them the control plane cannot check who a daemon is");
                RETRY
            }
        };
        if let Some(first) = first.take() {
            let _ = first.send(()); // nobody waits any more when it took too long
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

/// Waits for the first reading, not for ever.
pub(super) async fn first_reading(read: oneshot::Receiver<()>) {
    if tokio::time::timeout(FIRST_READING, read).await.is_err() {
        debug!("Dialling before the cluster's signing keys were read");
    }
}

/// Says once that this daemon has no proof to show.
pub(super) fn warn_without(file: Option<&PathBuf>) {
    if file.is_none() {
        let cure = "set control_plane.identity_token_file to a projected ServiceAccount token for the control plane";
        warn!(cure, "This daemon has no proof of who it is: the control plane has the enrolment token's word only");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(claims: &str) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
    }

    #[tokio::test]
    async fn a_file_that_proves_nothing_is_named_with_its_cure() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let now = Timestamp::from_second(1_000).expect("a time");
        let absent = read(&path, now).await.expect_err("there is none");
        assert!(absent.contains(&path.display().to_string()) && absent.contains("serviceAccountToken"), "{absent}");
        for (text, word) in [
            (String::new(), "holds no token"),
            ("canary".into(), "no ServiceAccount token"),
            (token("{}"), "no ServiceAccount token"),
            (token(r#"{"exp":1000}"#), "expired at 1970-01-01T00:16:40Z"),
            ("x".repeat(MAX_IDENTITY + 1), "holds no token"),
        ] {
            std::fs::write(&path, &text).expect("the folder is ours");
            let error = read(&path, now).await.expect_err("it proves nothing");
            assert!(error.contains(word) && error.contains(&path.display().to_string()) && !error.contains("canary"), "{error}");
        }
        std::fs::write(&path, token(r#"{"exp":1001}"#)).expect("the folder is ours");
        assert!(read(&path, now).await.is_ok());
    }
}
