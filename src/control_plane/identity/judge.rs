//! Whether a daemon gets in, and what is recorded when it is the first to prove itself.

use std::collections::BTreeMap;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};

use super::keys::KeySet;
use super::token::{Expected, Refused, Verified, verify};
use crate::control_plane::store::{Account, Trust};
use crate::types::{Placement, Role};
use crate::wire::Hello;

/// What a daemon claims in its handshake.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) placement: Placement,
    /// Its projected token.
    pub(crate) token: Option<SecretString>,
}

/// What else bears on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    pub(crate) audience: &'a str,
    pub(crate) now: Timestamp,
    /// No session was ever opened with the enrolment token.
    pub(crate) fresh: bool,
    /// A daemon of the cluster that proved itself is connected.
    pub(crate) proven_live: bool,
    /// A daemon of another place of the cluster is connected, proven or not.
    pub(crate) others_live: bool,
}

/// What comes of a claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Verdict {
    /// It is who it says.
    Proven(Verified),
    /// It is, and this is to be recorded first.
    Record {
        verified: Verified,
        trust: Trust,
        what: Recorded,
    },
    /// Nothing can be checked, since the cluster's keys were never read: the enrolment token's word counts.
    Unproven(Unproven),
    Refused(Refusal),
}

/// What changes by recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The first keys of the cluster.
    First,
    /// Other keys, issuer or UID than before.
    Replaced,
    /// The account of a role that had none, or the UID that could not be read before.
    More,
}

/// Why there is no proof in a cluster without keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unproven {
    #[error("the daemon could not read the cluster's signing keys")]
    NoKeys,
    #[error("the cluster's signing keys cannot be used: {0}")]
    Keys(#[from] super::KeysRefused),
    #[error("{0}")]
    Token(#[from] Refused),
    #[error(
        "its enrolment token was used before, and other daemons of the cluster are connected without a proof: `lakeshore clusters rotate` makes a token that records the keys"
    )]
    UsedToken,
}

/// Why a daemon is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Proof(#[from] Refused),
    #[error("the recorded keys cannot be used: {0}")]
    Keys(#[from] super::KeysRefused),
    #[error("the ServiceAccount {found} is in another Kubernetes namespace than {known}, the recorded one of role {role}")]
    OtherNamespace { found: Account, known: Account, role: Role },
    #[error("the ServiceAccount {0} is recorded for another role already")]
    OtherRole(Account),
    #[error("the cluster's UID is {found}, and {recorded} is recorded")]
    OtherCluster { found: String, recorded: String },
    #[error("the proof is not of the recorded keys ({0}), and daemons that prove themselves by these are connected")]
    Contested(Refused),
}

/// Judges a handshake. `None`: it takes `hello` to tell.
pub(crate) fn before_upgrade(claim: &Claim, trust: Option<&Trust>, circumstances: &Circumstances<'_>) -> Option<Verdict> {
    let trust = trust?;
    match prove(claim, trust, circumstances) {
        Ok(verified) => Some(Verdict::Proven(verified)),
        Err(_) if circumstances.fresh => None, // its `hello` may bring the keys that replace the recorded ones
        Err(refusal) => Some(Verdict::Refused(refusal)),
    }
}

/// Judges a `hello`.
pub(crate) fn after_hello(claim: &Claim, trust: Option<&Trust>, circumstances: &Circumstances<'_>, hello: &Hello) -> Verdict {
    let Some(trust) = trust else { return first(claim, circumstances, hello) };
    let uid = hello.cluster_uid.as_ref();
    let other_cluster = uid.zip(trust.cluster_uid.as_ref()).filter(|(found, recorded)| found != recorded);
    match (prove(claim, trust, circumstances), other_cluster) {
        (Ok(verified), None) => known(verified, trust, claim, circumstances.now, uid),
        (Ok(_), Some((found, recorded))) if !circumstances.fresh || circumstances.proven_live => {
            Verdict::Refused(Refusal::OtherCluster { found: found.clone(), recorded: recorded.clone() })
        }
        (Err(refusal), _) if !circumstances.fresh => Verdict::Refused(refusal),
        (Err(Refusal::Proof(refused)), _) if circumstances.proven_live => Verdict::Refused(Refusal::Contested(refused)),
        (Err(refusal), _) if circumstances.proven_live => Verdict::Refused(refusal),
        (proved, _) => match enrol(claim, circumstances, hello) {
            Ok((verified, trust)) => Verdict::Record { verified, trust, what: Recorded::Replaced },
            Err(_) => Verdict::Refused(proved.err().unwrap_or(Refusal::Proof(Refused::Missing))),
        },
    }
}

/// A proof against what is recorded.
fn prove(claim: &Claim, trust: &Trust, circumstances: &Circumstances<'_>) -> Result<Verified, Refusal> {
    let keys = KeySet::read(&trust.keys())?;
    let role = claim.placement.role();
    let verified = check(claim, &keys, trust.accounts.get(&role), circumstances)?;
    if trust.accounts.contains_key(&role) {
        return Ok(verified);
    }
    // The first of its role. Who may start Pods beside the recorded daemon is the cluster's owner; anybody may elsewhere.
    for (role, known) in &trust.accounts {
        if known.namespace != verified.account.namespace {
            return Err(Refusal::OtherNamespace { found: verified.account, known: known.clone(), role: *role });
        }
        if *known == verified.account {
            return Err(Refusal::OtherRole(verified.account));
        }
    }
    Ok(verified)
}

fn check(claim: &Claim, keys: &KeySet, account: Option<&Account>, circumstances: &Circumstances<'_>) -> Result<Verified, Refused> {
    let token = claim.token.as_ref().ok_or(Refused::Missing)?;
    let expected = Expected { audience: circumstances.audience, account, placement: &claim.placement, now: circumstances.now };
    verify(token.expose_secret(), keys, &expected)
}

/// A proof that holds: what it adds is recorded.
fn known(verified: Verified, trust: &Trust, claim: &Claim, now: Timestamp, uid: Option<&String>) -> Verdict {
    let role = claim.placement.role();
    if trust.accounts.contains_key(&role) && (trust.cluster_uid.is_some() || uid.is_none()) {
        return Verdict::Proven(verified);
    }
    let mut more = Trust { recorded_at: now, cluster_uid: trust.cluster_uid.clone().or_else(|| uid.cloned()), ..trust.clone() };
    more.accounts.entry(role).or_insert_with(|| verified.account.clone());
    Verdict::Record { verified, trust: more, what: Recorded::More }
}

/// A cluster without keys.
fn first(claim: &Claim, circumstances: &Circumstances<'_>, hello: &Hello) -> Verdict {
    match enrol(claim, circumstances, hello) {
        Err(unproven) => Verdict::Unproven(unproven),
        // A thief's first proof must not lock out daemons that are at work.
        Ok(_) if !circumstances.fresh && circumstances.others_live => Verdict::Unproven(Unproven::UsedToken),
        Ok((verified, trust)) => Verdict::Record { verified, trust, what: Recorded::First },
    }
}

/// A proof by the keys that come with it: no more than that they belong together, which is what enrolling is.
fn enrol(claim: &Claim, circumstances: &Circumstances<'_>, hello: &Hello) -> Result<(Verified, Trust), Unproven> {
    let said = hello.keys.as_ref().ok_or(Unproven::NoKeys)?;
    let keys = KeySet::read(said)?;
    let verified = check(claim, &keys, None, circumstances)?;
    let trust = Trust {
        cluster_uid: hello.cluster_uid.clone(),
        issuer: said.issuer.clone(),
        jwks: said.jwks.clone(),
        recorded_at: circumstances.now,
        accounts: BTreeMap::from([(claim.placement.role(), verified.account.clone())]),
    };
    Ok((verified, trust))
}
