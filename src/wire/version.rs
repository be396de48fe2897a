//! Which version of the protocol a connection speaks.
//!
//! Versions are the protocol's own, not a release's. A release speaks its newest and the one before (N and N−1), each for at least 12 months.
//! The daemon offers all it knows as websocket subprotocols; the control plane takes the newest that both know.

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `nymph.v1`, the first.
    V1,
}

/// All that this release speaks, newest first.
pub const VERSIONS: &[Version] = &[Version::V1];

impl Version {
    /// Its websocket subprotocol.
    pub fn subprotocol(self) -> &'static str {
        match self {
            Self::V1 => super::SUBPROTOCOL,
        }
    }
}

/// What a daemon offers: the value of `Sec-WebSocket-Protocol`.
pub fn offer() -> String {
    VERSIONS.iter().map(|version| version.subprotocol()).collect::<Vec<_>>().join(", ")
}

/// The newest version that both know; `None` when there is none. `offered` is the header's value, in any order.
pub fn negotiate(offered: &str) -> Option<Version> {
    let offers = |version: &Version| offered.split(',').any(|name| name.trim() == version.subprotocol());
    VERSIONS.iter().copied().find(offers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_is_taken_whatever_else_is_offered() {
        for (offered, expected) in [
            ("nymph.v1", Some(Version::V1)),
            ("nymph.v2, nymph.v1", Some(Version::V1)),
            ("nymph.v1,nymph.v0", Some(Version::V1)),
            ("nymph.v2", None),
            ("nymph.v10", None),
            ("", None),
        ] {
            assert_eq!(negotiate(offered), expected, "{offered:?}");
        }
        assert_eq!(negotiate(&offer()), VERSIONS.first().copied());
    }

    #[test]
    fn versions_are_listed_newest_first() {
        assert!(VERSIONS.is_sorted_by(|newer, older| newer > older) && VERSIONS.len() <= 2, "N and N-1: {VERSIONS:?}");
    }
}
