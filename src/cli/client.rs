//! Requests to the control plane, and its answers or refusals.

use std::error::Error;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::failure::Failure;
use super::problem::Problem;
use super::settings::{Setting, Settings};
use super::{env, tls};

/// A server that does not take a connection within this time is taken for unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// For an answer as a whole; the control plane's own waits are well below it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// A launch is answered within `launch_wait`, which the server's operator sets: 10 s unless told otherwise.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(600);
/// How often a silent connection is probed: a stream has no time-out of its own, and a server may vanish without a word.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// Unanswered bytes or probes end the connection after this time.
const DEAD_AFTER: Duration = Duration::from_secs(45);
/// Refusals are short; of a longer body no more than this is read.
const MAX_PROBLEM_BYTES: usize = 64 << 10;

/// The problem's code of a control plane that has no such path.
const NO_ROUTE: &str = "route_not_found";

/// A client of one control plane.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    server: Setting<Url>,
    token: Option<Setting<SecretString>>,
}

impl Client {
    /// A client for these settings. Nothing is contacted.
    pub(super) fn new(settings: &Settings) -> Result<Self, Failure> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("lakeshore/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(tls::config(settings.ca_file.as_deref())?)
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(KEEPALIVE)
            .tcp_keepalive_interval(KEEPALIVE)
            .tcp_user_timeout(DEAD_AFTER)
            // A redirected POST would turn into a GET; the message says where to go instead.
            .redirect(reqwest::redirect::Policy::none());
        if is_loopback(&settings.server.value) {
            builder = builder.no_proxy(); // the proxy's own loopback is not ours
        }
        let http = builder.build().map_err(|e| Failure::usage(format!("cannot set up HTTP: {}", innermost(&e))))?;
        Ok(Self { http, server: settings.server.clone(), token: settings.token.clone() })
    }

    /// The server's URL, for messages.
    pub(super) fn server(&self) -> &str {
        self.server.value.as_str().trim_end_matches('/')
    }

    /// Reads what is at `path`.
    pub(super) async fn get(&self, path: &[&str], query: &[(&str, String)]) -> Result<Value, Failure> {
        self.json(self.request(Method::GET, path).query(query).timeout(ANSWER_TIMEOUT)).await
    }

    /// Makes something below `path`.
    pub(super) async fn post(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.json(self.request(Method::POST, path).json(body).timeout(ANSWER_TIMEOUT)).await
    }

    /// Replaces what is at `path`.
    pub(super) async fn put(&self, path: &[&str], body: &Value) -> Result<Value, Failure> {
        self.json(self.request(Method::PUT, path).json(body).timeout(ANSWER_TIMEOUT)).await
    }

    /// Removes what is at `path`.
    pub(super) async fn delete(&self, path: &[&str]) -> Result<(), Failure> {
        self.json(self.request(Method::DELETE, path).timeout(ANSWER_TIMEOUT)).await.map(drop)
    }

    /// Asks for a launch; the same `key` twice makes one instance.
    pub(super) async fn launch(&self, path: &[&str], body: &Value, key: &str) -> Result<Value, Failure> {
        self.json(self.request(Method::POST, path).header("Idempotency-Key", key).json(body).timeout(LAUNCH_TIMEOUT)).await
    }

    /// Opens a stream of bytes, with no limit to how long it lasts.
    pub(super) async fn open(&self, path: &[&str], query: &[(&str, String)]) -> Result<Response, Failure> {
        self.send(self.request(Method::GET, path).query(query)).await
    }

    /// The server's version, without a token, and without patience.
    pub(super) async fn version(&self, patience: Duration) -> Result<Value, Failure> {
        self.json(self.http.get(below(&self.server.value, &["v1", "version"])).timeout(patience)).await
    }

    /// An answer that makes no sense.
    pub(super) fn confused(&self, what: impl Into<String>) -> Failure {
        Failure::Confused { server: self.server().to_owned(), what: what.into() }
    }

    /// What an error while a body was read means.
    pub(super) fn cut_off(&self, error: &reqwest::Error) -> Failure {
        Failure::CutOff { server: self.server().to_owned(), cause: cause(error) }
    }

    /// What an error before an answer came means.
    fn unreachable(&self, error: &reqwest::Error) -> Failure {
        let cause = cause(error);
        let cure = self.cure(&cause);
        Failure::Unreachable { server: self.server().to_owned(), cause, cure, unsent: error.is_connect() }
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let request = self.http.request(method, below(&self.server.value, path));
        match &self.token {
            Some(token) => request.bearer_auth(token.value.expose_secret()),
            None => request,
        }
    }

    async fn json(&self, request: RequestBuilder) -> Result<Value, Failure> {
        let response = self.send(request).await?;
        let status = response.status();
        let body = response.bytes().await.map_err(|e| self.cut_off(&e))?;
        if status == StatusCode::NO_CONTENT || body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|e| self.confused(format!("{status} with a body that is not JSON ({e}); is a lakeshore serving there?")))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let mut response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status.is_redirection() {
            let to = response.headers().get(header::LOCATION).and_then(|v| v.to_str().ok()).unwrap_or("somewhere else");
            return Err(self.confused(format!("{status} to {to}; set the server to where it really is")));
        }
        let mut body = Vec::new();
        // What is missing of a refusal's body is only words.
        while let Ok(Some(chunk)) = response.chunk().await {
            body.extend_from_slice(&chunk);
            if body.len() > MAX_PROBLEM_BYTES {
                break;
            }
        }
        let mut problem = Problem::read(status, &body);
        if status == StatusCode::UNAUTHORIZED {
            problem.cure = Some(self.token_cure());
        }
        if status == StatusCode::NOT_FOUND && problem.code.as_deref().is_none_or(|code| code == NO_ROUTE) {
            problem.cure = Some(self.path_cure());
        }
        let problem = Box::new(problem);
        Err(if status.is_server_error() { Failure::Faulty(problem) } else { Failure::Refused(problem) })
    }

    fn token_cure(&self) -> String {
        let how = "where the server runs, `lakeshore tokens create --data DIR --name NAME --admin` makes a new one";
        match &self.token {
            Some(token) => format!("the token came from {}; {how}", token.origin),
            None => format!("{how}; set it as {} or by --token-file", env::TOKEN),
        }
    }

    /// What to do when what answered knows no such path at all.
    fn path_cure(&self) -> String {
        let Setting { origin, .. } = &self.server;
        format!(
            "the server's URL {} (from {origin}) seems wrong: what answers there is not lakeshore's API, or that of another release",
            self.server()
        )
    }

    /// What to look at when no answer came, by its cause.
    fn cure(&self, cause: &str) -> String {
        let (origin, url) = (&self.server.origin, &self.server.value);
        if cause.contains("UnknownIssuer") {
            return format!("trust the authority that signed its certificate: --ca-file FILE or {}", env::CA_FILE);
        }
        if cause.contains("InvalidContentType") || cause.contains("corrupt message") {
            return "the server seems not to speak TLS: try http:// in its URL".to_owned();
        }
        if cause.contains("invalid HTTP version") && url.scheme() == "http" {
            return "the server seems to speak TLS: try https:// in its URL".to_owned();
        }
        let start = if is_loopback(url) { "start one with `lakeshore serve`, or " } else { "check that it runs there, or " };
        format!("{start}set another URL by --server, {} or `server` in the configuration file (this one is from {origin})", env::SERVER)
    }
}

/// The URL of `path` below the server's own.
fn below(server: &Url, path: &[&str]) -> Url {
    let mut url = server.clone();
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path); // percent-encodes what a name may hold
    }
    url
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Why a request failed, in as few words as tell it.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() { "no answer came in time".to_owned() } else { innermost(error) }
}

/// The last cause of an error: the layers above it only say that a request was sent.
fn innermost(error: &dyn Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_behind_the_servers_own_path() {
        for (server, expected) in [
            ("http://h:1", "http://h:1/v1/namespaces/team%20a%2Fb"),
            ("https://h/lakeshore", "https://h/lakeshore/v1/namespaces/team%20a%2Fb"),
            ("https://h/lakeshore/", "https://h/lakeshore/v1/namespaces/team%20a%2Fb"),
            ("http://[::1]:7420/", "http://[::1]:7420/v1/namespaces/team%20a%2Fb"),
        ] {
            assert_eq!(below(&Url::parse(server).expect(server), &["v1", "namespaces", "team a/b"]).as_str(), expected);
        }
    }

    #[test]
    fn loopback_is_known_in_each_spelling() {
        for (url, expected) in [
            ("http://localhost:1", true),
            ("http://127.0.0.9", true),
            ("http://[::1]:7420", true),
            ("http://10.0.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(is_loopback(&Url::parse(url).expect(url)), expected, "{url}");
        }
    }
}
