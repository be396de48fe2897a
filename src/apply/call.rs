//! One call to the API server.

use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep, timeout};

use super::window::{Load, Window};

/// How long one call may take. Reads and writes of single objects take milliseconds; the API server itself gives up after 60 s.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How long 429 and write conflicts are waited out before the caller is told. A `Retry-After` beyond it is not waited for.
const BUSY_DEADLINE: Duration = Duration::from_secs(30);
/// Longest answer that is read. **Source:** etcd refuses requests over 1.5 MiB, so that no single object is longer than twice that as JSON.
const MAX_ANSWER: usize = 3 << 20;
/// Longest text of a refusal that is repeated; admission webhooks may write pages.
const MAX_MESSAGE: usize = 2000;

/// A call that did not succeed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The API server answered 4xx: the request was not carried out.
    #[error("the API server refused to {what} ({code} {reason}): {message}")]
    Refused {
        /// The deed: `create Pod ns/name`.
        what: String,
        /// HTTP status.
        code: u16,
        /// Kubernetes' reason, such as `Forbidden`.
        reason: String,
        /// Its words.
        message: String,
    },
    /// The API server answered 5xx: the request may or may not have been carried out.
    #[error("the API server failed to {what} ({code}): {message}")]
    Failed {
        /// The deed.
        what: String,
        /// HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// No answer in time.
    #[error("the API server did not answer within {after:?} when asked to {what}")]
    TimedOut {
        /// The deed.
        what: String,
        /// The deadline.
        after: Duration,
    },
    /// No connection could be opened: nothing was sent.
    #[error("the API server cannot be reached to {what}: {detail}")]
    NotSent {
        /// The deed.
        what: String,
        /// The client's words, with causes.
        detail: String,
    },
    /// The connection failed.
    #[error("the API server is unreachable: cannot {what}: {detail}")]
    Unreachable {
        /// The deed.
        what: String,
        /// The client's words, with causes.
        detail: String,
    },
    /// The answer is too long or not what was expected.
    #[error("the API server's answer makes no sense when asked to {what}: {detail}")]
    Unreadable {
        /// The deed.
        what: String,
        /// What is wrong with it; never its content.
        detail: String,
    },
}

impl CallError {
    /// Whether the API server said for certain that it did nothing.
    pub fn is_definite(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    /// The HTTP status, when there was an answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Refused { code, .. } | Self::Failed { code, .. } => Some(*code),
            Self::TimedOut { .. } | Self::NotSent { .. } | Self::Unreachable { .. } | Self::Unreadable { .. } => None,
        }
    }
}

/// The API server, for unary calls. Its client must not be shared with watches and log follows, so that these cannot use up
/// the connections that a delete needs.
#[derive(Clone)]
pub struct ApiServer {
    client: Client,
    window: Window,
}

impl ApiServer {
    /// Uses `client`, whose own retries must be off.
    pub fn new(client: Client) -> Self {
        Self { client, window: Window::new() }
    }

    /// How many calls may be under way. Whoever has many to make takes a place in it first; every call's fate moves it.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Makes the call, waits out 429 and conflicts that ask to try again, and reads the answer.
    pub(super) async fn call<T: DeserializeOwned>(&self, what: &str, request: &http::Request<Vec<u8>>) -> Result<T, CallError> {
        let deadline = Instant::now() + BUSY_DEADLINE;
        let mut pause = Duration::from_millis(200);
        loop {
            let (round, began) = (self.window.round(), Instant::now());
            let answer = timeout(CALL_DEADLINE, self.once(what, request)).await;
            self.window.ended(round, load(&answer, began.elapsed()));
            let busy = match answer {
                Err(_) => return Err(CallError::TimedOut { what: what.to_owned(), after: CALL_DEADLINE }),
                Ok(Ok(body)) => return read(what, &body),
                Ok(Err(failure)) => failure,
            };
            // Both say that nothing was done, so that every verb may be tried again.
            let (true, wait) = (busy.worth_retrying(), busy.retry_after.unwrap_or(pause)) else { return Err(busy.error) };
            if Instant::now() + wait > deadline {
                return Err(busy.error);
            }
            sleep(wait).await;
            pause *= 2;
        }
    }

    async fn once(&self, what: &str, request: &http::Request<Vec<u8>>) -> Result<Vec<u8>, Failure> {
        let sent = self.client.send(request.clone().map(Body::from)).await;
        let response = sent.map_err(|error| {
            let (what, detail) = (what.to_owned(), crate::error::Chain(&error).to_string());
            Failure::from(if was_not_sent(&error) { CallError::NotSent { what, detail } } else { CallError::Unreachable { what, detail } })
        })?;
        let status = response.status();
        let header = response.headers().get(http::header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await.map_err(|error| {
            // The status line is there, the rest is not: for a POST that is as unclear as no answer at all.
            Failure::from(CallError::Unreadable { what: what.to_owned(), detail: error.to_string().chars().take(MAX_MESSAGE).collect() })
        })?;
        let body = body.to_bytes().to_vec();
        if status.is_success() {
            return Ok(body);
        }
        let code = status.as_u16();
        let said = serde_json::from_slice::<Status>(&body).ok();
        let (reason, message) = match said {
            Some(status) => (status.reason, status.message),
            None => (status.canonical_reason().unwrap_or_default().to_owned(), String::from_utf8_lossy(&body).into_owned()),
        };
        let message = message.trim().chars().take(MAX_MESSAGE).collect();
        let error = if (400..500).contains(&code) && code != 408 {
            CallError::Refused { what: what.to_owned(), code, reason, message }
        } else {
            CallError::Failed { what: what.to_owned(), code, message }
        };
        Err(Failure { error, retry_after: header.map(Duration::from_secs) })
    }
}

/// What an answer, or its absence, says about the server.
fn load(answer: &Result<Result<Vec<u8>, Failure>, tokio::time::error::Elapsed>, took: Duration) -> Load {
    let Ok(answer) = answer else { return Load::Heavy };
    match answer.as_ref().map_err(|failure| &failure.error) {
        Ok(_) => Load::of(200, took),
        Err(CallError::Refused { code, .. } | CallError::Failed { code, .. }) => Load::of(*code, took),
        Err(CallError::NotSent { .. } | CallError::Unreachable { .. }) => Load::Away,
        Err(CallError::TimedOut { .. } | CallError::Unreadable { .. }) => Load::Heavy,
    }
}

/// A failed call, and how long the server asks to wait.
struct Failure {
    error: CallError,
    retry_after: Option<Duration>,
}

impl Failure {
    /// 429, and a conflict on something else than the object (a quota being counted): neither did anything.
    fn worth_retrying(&self) -> bool {
        matches!(&self.error, CallError::Refused { code: 429, .. })
            || matches!(&self.error, CallError::Refused { code: 409, reason, message, .. } if reason == "Conflict" && message.contains("resourcequotas"))
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self { error, retry_after: None }
    }
}

/// Whether the failure came before the first byte: opening the connection is a step of its own.
fn was_not_sent(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(client) = error.downcast_ref::<hyper_util::client::legacy::Error>() {
            return client.is_connect();
        }
        cause = error.source();
    }
    false
}

fn read<T: DeserializeOwned>(what: &str, body: &[u8]) -> Result<T, CallError> {
    serde_json::from_slice(body).map_err(|error| {
        let detail = format!("{:?} error at line {} column {}", error.classify(), error.line(), error.column());
        CallError::Unreadable { what: what.to_owned(), detail }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_that_is_refused_is_not_told_as_load() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
        let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().expect("a URL")); // nobody listens there any more
        let api = ApiServer::new(Client::try_from(config).expect("a client"));
        let request = http::Request::get("/version").body(vec![]).expect("a request");
        let answer = timeout(CALL_DEADLINE, api.once("ask for its version", &request)).await;
        assert!(matches!(&answer, Ok(Err(Failure { error: CallError::NotSent { .. }, .. }))));
        let told = load(&answer, Duration::ZERO).told();
        assert!(told.contains("cannot be reached") && !told.contains("load"), "{told}");
    }
}
