//! The hash chain, without I/O.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::fact::Fact;
use crate::types::{Placement, hex};

/// What the first line of a chain carries as the hash before it.
pub(super) const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// One line, in the order it is written. `hash` follows as the last member: SHA-256 over the line without it.
#[derive(Serialize)]
struct Line<'a> {
    time: Timestamp,
    level: &'static str,
    target: &'static str,
    boot_id: &'a str,
    seq: u64,
    event: &'static str,
    node: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest_sha256: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    policy: &'a str,
    prev: &'a str,
}

/// The end of a chain: what the next line must follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) hash: String,
    pub(super) seq: u64,
}

impl Default for Head {
    fn default() -> Self {
        Self { hash: GENESIS.to_owned(), seq: 0 }
    }
}

/// Turns facts into chained lines. A line counts only after [`Chain::commit`], so that one that could not be written
/// leaves no hole.
pub(super) struct Chain {
    boot_id: String,
    placement: Placement,
    policy: String,
    head: Head,
}

impl Chain {
    pub(super) fn new(boot_id: String, placement: Placement, head: Head) -> Self {
        Self { boot_id, placement, policy: String::new(), head }
    }

    /// The line that says `fact`, with its newline, and the head that the chain has once it is written.
    pub(super) fn line(&mut self, fact: &Fact, time: Timestamp) -> Result<(String, Head), serde_json::Error> {
        if let Fact::PolicyLoaded { digest } = fact {
            self.policy.clone_from(digest);
        }
        let (rule, verdict) = fact.verdict();
        let (subject, object) = (fact.subject(), fact.object());
        let seq = self.head.seq + 1;
        let line = Line {
            time,
            level: "INFO",
            target: "audit",
            boot_id: &self.boot_id,
            seq,
            event: fact.event(),
            node: self.placement.to_string(),
            dispatch: subject.map(|s| s.dispatch.as_str()),
            attempt: subject.map(|s| s.attempt.0),
            requested_by: subject.map(|s| s.requested_by.as_str()),
            uid: object.as_ref().and_then(|(_, uid)| *uid),
            object: object.as_ref().map(|(place, _)| place.clone()),
            manifest_sha256: fact.manifest(),
            rule,
            verdict,
            message: fact.message(),
            policy: &self.policy,
            prev: &self.head.hash,
        };
        let mut text = serde_json::to_string(&line)?;
        let hash = hex(&Sha256::digest(text.as_bytes()));
        text.truncate(text.len() - 1); // the closing brace comes after the hash
        text.push_str(&format!(",\"hash\":\"{hash}\"}}\n"));
        Ok((text, Head { hash, seq }))
    }

    pub(super) fn commit(&mut self, head: Head) {
        self.head = head;
    }
}

/// What is read of a line in order to check it.
#[derive(Deserialize)]
struct Link {
    seq: u64,
    prev: String,
    hash: String,
}

/// A line that does not follow from the one before it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BrokenChain {
    /// It is not an audit line.
    #[error("line {line} is not an audit line")]
    NotALine {
        /// Counted from 1.
        line: usize,
    },
    /// Its content is not what was hashed.
    #[error("line {line} was changed: its hash does not match its content")]
    Changed {
        /// Counted from 1.
        line: usize,
    },
    /// Lines are missing before it, or it was moved.
    #[error("line {line} does not follow the line before it: lines are missing or were moved")]
    Gap {
        /// Counted from 1.
        line: usize,
    },
}

/// The head that `line` makes, when its content matches its hash.
pub(super) fn head_of(line: &str) -> Option<Head> {
    let link: Link = serde_json::from_str(line).ok()?;
    let body = line.strip_suffix(&format!(",\"hash\":\"{}\"}}", link.hash))?;
    let hash = hex(&Sha256::new().chain_update(body.as_bytes()).chain_update(b"}").finalize());
    (hash == link.hash).then_some(Head { hash, seq: link.seq })
}

/// Checks that `lines` are an unbroken stretch of one chain. The first line may be anywhere in its chain.
///
/// # Errors
/// [`BrokenChain`] names the first line that is not as it was written.
pub fn verify<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<(), BrokenChain> {
    let mut before: Option<Head> = None;
    for (index, text) in lines.into_iter().enumerate() {
        let line = index + 1;
        let link: Link = serde_json::from_str(text).map_err(|_| BrokenChain::NotALine { line })?;
        let head = head_of(text).ok_or(BrokenChain::Changed { line })?;
        if before.is_some_and(|b| b.hash != link.prev || b.seq + 1 != link.seq) {
            return Err(BrokenChain::Gap { line });
        }
        before = Some(head);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Subject;
    use crate::types::{Attempt, DispatchId};
    use crate::wire::{Rejection, RejectionCode};

    fn lines(facts: &[Fact]) -> Vec<String> {
        let mut chain = Chain::new("boot".into(), Placement::Node("node-1".parse().expect("a name")), Head::default());
        facts
            .iter()
            .map(|fact| {
                let (line, head) = chain.line(fact, Timestamp::UNIX_EPOCH).expect("plain values");
                chain.commit(head);
                line.trim_end().to_owned()
            })
            .collect()
    }

    fn three() -> Vec<String> {
        let subject = Subject { dispatch: DispatchId::from_random([1; 16]), attempt: Attempt(2), requested_by: "default/ann".into() };
        let rejection = Rejection { code: RejectionCode::PolicyDenied, rule: "images".into(), message: "no".into() };
        lines(&[Fact::DaemonStarted { version: "1" }, Fact::PolicyLoaded { digest: "abc".into() }, Fact::DispatchRejected { subject, rejection }])
    }

    fn check(lines: &[String]) -> Result<(), BrokenChain> {
        verify(lines.iter().map(String::as_str))
    }

    #[test]
    fn an_untouched_chain_holds_from_any_line_on() {
        let lines = three();
        assert_eq!(check(&lines), Ok(()));
        assert_eq!(check(&lines[1..]), Ok(()));
        let first: serde_json::Value = serde_json::from_str(&lines[0]).expect("JSON");
        assert_eq!(first["prev"], GENESIS);
    }

    #[test]
    fn a_changed_missing_or_moved_line_is_named() {
        let mut changed = three();
        changed[1] = changed[1].replace("abc", "abd");
        assert_eq!(check(&changed), Err(BrokenChain::Changed { line: 2 }));
        let mut missing = three();
        missing.remove(1);
        assert_eq!(check(&missing), Err(BrokenChain::Gap { line: 2 }));
        let mut moved = three();
        moved.swap(1, 2);
        assert_eq!(check(&moved), Err(BrokenChain::Gap { line: 2 }));
        assert_eq!(check(&["{}".to_owned()]), Err(BrokenChain::NotALine { line: 1 }));
    }

    #[test]
    fn a_line_says_who_what_and_under_which_policy() {
        let line: serde_json::Value = serde_json::from_str(&three()[2]).expect("JSON");
        for (key, value) in
            [("event", "dispatch_rejected"), ("requested_by", "default/ann"), ("rule", "images"), ("verdict", "rejected"), ("policy", "abc")]
        {
            assert_eq!(line[key], value, "{key}");
        }
        assert_eq!((line["attempt"].as_u64(), line["seq"].as_u64()), (Some(2), Some(3)));
        assert_eq!(line["target"], "audit");
    }

    #[test]
    fn a_line_that_was_not_committed_leaves_no_hole() {
        let mut chain = Chain::new("boot".into(), Placement::Cluster, Head::default());
        let (_, _) = chain.line(&Fact::DaemonStarted { version: "1" }, Timestamp::UNIX_EPOCH).expect("plain values");
        let (again, _) = chain.line(&Fact::DaemonStarted { version: "1" }, Timestamp::UNIX_EPOCH).expect("plain values");
        assert!(again.contains("\"seq\":1,"), "{again}");
    }
}
