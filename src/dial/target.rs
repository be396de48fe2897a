//! Where to dial.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use secrecy::SecretString;

use crate::types::Placement;
use crate::wire::CONNECT_PATH;

/// A text that is not the URL of a control plane.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{text:?} is not a control plane URL: {why}; expected is wss://HOST[:PORT][/PATH]")]
pub struct InvalidUrl {
    text: String,
    why: &'static str,
}

/// The control plane's address, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Url {
    /// Whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// Host name or address, without the brackets of IPv6.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port; 443 or 80 when none was written.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `host:port`, as a `Host` header and a CONNECT request want it.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }

    /// The same place as `http` or `https`: proxy rules know no other schemes.
    pub(super) fn as_http(&self) -> String {
        format!("{}://{}{}", if self.tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the default port: some reverse proxies compare the Host header letter by letter.
        let default = self.port == if self.tls { 443 } else { 80 };
        let authority = self.authority();
        let authority = if default { authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host) } else { &authority };
        write!(f, "{}://{authority}{}", if self.tls { "wss" } else { "ws" }, self.path)
    }
}

impl FromStr for Url {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        // User and password in a URL end up in logs; they are not repeated in the error either.
        let shown = if text.contains('@') { String::from("(hidden)") } else { text.chars().take(300).collect() };
        let bad = |why| InvalidUrl { text: shown.clone(), why };
        let uri: http::Uri = text.parse().map_err(|_| bad("it cannot be read as a URL"))?;
        let tls = match uri.scheme_str() {
            Some("wss") => true,
            Some("ws") => false,
            Some("http" | "https") => return Err(bad("the scheme is that of a web page; write ws or wss")),
            _ => return Err(bad("the scheme must be ws or wss")),
        };
        let authority = uri.authority().ok_or_else(|| bad("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("it holds a user or password; the token belongs into control_plane.token_file"));
        }
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("it names no host"));
        }
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        // A path is the prefix that a reverse proxy serves the control plane under, or the whole connect path.
        let prefix = uri.path().trim_end_matches('/');
        let path = if prefix.ends_with(CONNECT_PATH) { prefix.to_owned() } else { format!("{prefix}{CONNECT_PATH}") };
        Ok(Self { tls, host, port, path })
    }
}

/// All that one dial needs. The files it names are read again at each dial, so that a renewed one is used.
#[derive(Clone, Debug)]
pub struct Target {
    /// The control plane.
    pub url: Url,
    /// What this daemon answers for.
    pub placement: Placement,
    /// The enrolment token.
    pub token: SecretString,
    /// The projected ServiceAccount token that proves who dials.
    pub identity: Option<SecretString>,
    /// PEM bundle that replaces the system's roots.
    pub ca_file: Option<PathBuf>,
    /// TLS name to expect instead of the URL's host.
    pub server_name: Option<String>,
    /// Proxy; `None` asks HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
    pub proxy: Option<SecretString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_completed_with_port_and_path() {
        for (text, full) in [
            ("wss://cp.example", "wss://cp.example/v1/daemon/connect"),
            ("ws://10.0.0.1:7420/", "ws://10.0.0.1:7420/v1/daemon/connect"),
            ("wss://cp.example/lakeshore/", "wss://cp.example/lakeshore/v1/daemon/connect"),
            ("wss://cp.example:8443/v1/daemon/connect", "wss://cp.example:8443/v1/daemon/connect"),
            ("wss://[fd00::1]:7420", "wss://[fd00::1]:7420/v1/daemon/connect"),
        ] {
            assert_eq!(text.parse::<Url>().expect(text).to_string(), full);
        }
    }

    #[test]
    fn a_bad_url_says_what_is_wrong_and_never_repeats_a_password() {
        for (text, why) in [
            ("https://cp.example", "write ws or wss"),
            ("cp.example", "scheme"),
            ("wss://", "URL"),
            ("wss://cp.example?token=x", "query"),
            ("wss://user:canary@cp.example", "token_file"),
        ] {
            let error = text.parse::<Url>().expect_err(text).to_string();
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
