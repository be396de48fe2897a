//! Why a dial failed, and the cure.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A dial that did not lead to an open connection. Each text ends with what to do; none holds the token.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// Nothing answers at the host and port.
    #[error("control plane URL unreachable: cannot connect to {address}; check control_plane.url, the network policy and the proxy")]
    Unreachable {
        /// `host:port` that was dialled: the control plane's, or the proxy's.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The host's name has no address.
    #[error("control plane URL unreachable: the name {host} does not resolve; check control_plane.url and the cluster's DNS")]
    Unresolved {
        /// The name.
        host: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// A step took too long.
    #[error("control plane URL unreachable: no answer from {address} within {after:?} while {step}")]
    TimedOut {
        /// `host:port`.
        address: String,
        /// What was being done.
        step: &'static str,
        /// The deadline.
        after: Duration,
    },
    /// The proxy is not one that can be used.
    #[error("the proxy cannot be used: {why}; set control_plane.proxy to http://HOST:PORT, or NO_PROXY to go without")]
    BadProxy {
        /// What is wrong with it, without its password.
        why: String,
    },
    /// The proxy answered, and refused.
    #[error("the proxy {proxy} refused to connect to {address}: {answer}")]
    ProxyRefused {
        /// `host:port` of the proxy.
        proxy: String,
        /// `host:port` of the control plane.
        address: String,
        /// The first line of its answer, or what went wrong.
        answer: String,
    },
    /// The CA file cannot be used.
    #[error("control_plane.ca_file {path} cannot be used: {why}")]
    CaFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// This system has no roots of trust.
    #[error("this system has no CA certificates: set control_plane.ca_file")]
    NoRoots,
    /// `server_name` or the URL's host is no TLS name.
    #[error("{name:?} is not a TLS server name: set control_plane.server_name")]
    ServerName {
        /// The name.
        name: String,
    },
    /// The server's certificate is not accepted.
    #[error("certificate not trusted: {cure}")]
    Untrusted {
        /// What to set.
        cure: &'static str,
        /// What TLS said.
        #[source]
        source: io::Error,
    },
    /// TLS failed for another reason.
    #[error("no TLS connection to {address}; is it a wss address?")]
    Tls {
        /// `host:port`.
        address: String,
        /// What TLS said.
        #[source]
        source: io::Error,
    },
    /// The control plane does not accept the enrolment token or the proof of identity. Dialling again with the same ones cannot help.
    #[error(
        "enrolment token or identity not accepted (HTTP {status}): {detail}; the control plane's audit lines say which and why, and `lakeshore clusters rotate` makes a new token"
    )]
    TokenRefused {
        /// 401 or 403.
        status: u16,
        /// The control plane's words.
        detail: String,
    },
    /// A token file holds no token that can be sent.
    #[error("the token in {key} cannot be sent: it holds characters that no token has; check the file")]
    TokenMalformed {
        /// The configuration key that names the file.
        key: &'static str,
    },
    /// Something answers HTTP there, and it did not upgrade.
    #[error("the control plane answered HTTP {status} instead of opening a websocket: {detail}")]
    NotUpgraded {
        /// The status.
        status: u16,
        /// Its words, or what they mean.
        detail: String,
        /// How long it asks to be left alone.
        retry_after: Option<Duration>,
    },
    /// The server speaks websocket, and not ours.
    #[error("the server did not agree to the subprotocol {}: it is no control plane of this version", crate::wire::SUBPROTOCOL)]
    Subprotocol,
    /// The websocket handshake failed.
    #[error("the websocket handshake with {address} failed; is it a control plane, and is ws/wss right?")]
    Handshake {
        /// `host:port`.
        address: String,
        /// What went wrong.
        #[source]
        source: tokio_tungstenite::tungstenite::Error,
    },
}

impl DialError {
    /// How long the other side asked to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::NotUpgraded { retry_after, .. } = self { *retry_after } else { None }
    }

    /// Whether dialling again with the same token cannot help.
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::TokenRefused { .. } | Self::TokenMalformed { .. } => true,
            Self::Unreachable { .. }
            | Self::Unresolved { .. }
            | Self::TimedOut { .. }
            | Self::BadProxy { .. }
            | Self::ProxyRefused { .. }
            | Self::CaFile { .. }
            | Self::NoRoots
            | Self::ServerName { .. }
            | Self::Untrusted { .. }
            | Self::Tls { .. }
            | Self::NotUpgraded { .. }
            | Self::Subprotocol
            | Self::Handshake { .. } => false,
        }
    }
}
