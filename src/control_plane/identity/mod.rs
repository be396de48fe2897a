//! Who a daemon is: its projected ServiceAccount token, checked against the signing keys that its cluster's first proof recorded.
//!
//! The enrolment token says which cluster a daemon claims to be of; the proof says which ServiceAccount, Pod and node it is. Pure: keys,
//! tokens, what was recorded and the time are arguments. `hub` asks and stores, `audit` tells.
//!
//! What a thief can do, by what was stolen:
//!
//! | stolen | can | cannot |
//! |---|---|---|
//! | the enrolment token | enrol a cluster that never had a proof; pose as a daemon of one that has no keys, while that is away | connect to a cluster that has keys |
//! | a daemon's two tokens (its node) | be that daemon, until the kubelet's hour is over; its sessions are displaced loudly | be another node or role; change the keys alone |
//! | a never-used enrolment token | record other keys while no daemon of the cluster that proved itself is connected, loudly | that, while one is |

mod judge;
mod keys;
mod rotation;
mod token;

pub(crate) use judge::{Circumstances, Claim, Recorded, Refusal, Unproven, Verdict, after_hello, before_upgrade};
pub(crate) use keys::{KeySet, KeysRefused};
pub(crate) use rotation::{Change, Rotation};
pub(crate) use token::Verified;

/// Longest identity token, in bytes; a projected token has about 1,200.
const MAX_TOKEN: usize = 8 << 10;
/// Longest key set, as JSON, in bytes; a set of two RSA keys has about 900.
const MAX_KEYS: usize = 64 << 10;
/// How far a cluster's clock may be off, in seconds.
const SKEW: i64 = 60;

#[cfg(test)]
mod tests;
