//! Keys that a connected daemon says are now the cluster's.
//!
//! One stolen daemon must not be able to bring keys of its own, by which it could be any node. So a change counts when a second place of the
//! cluster says the same; a cluster that never had a second place has only the one's word.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::keys::{KeySet, KeysRefused};
use jiff::Timestamp;

use crate::control_plane::store::{Place, Trust};
use crate::wire::ClusterKeys;

/// What comes of keys that were told.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// They are the recorded ones.
    None,
    /// They differ, and a second place has yet to say the same.
    Proposed,
    /// As before, and this place had said so already.
    StillProposed,
    /// They are to be recorded.
    Confirmed(Trust),
    Refused(RotationRefused),
}

/// Keys that are not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RotationRefused {
    #[error("{0}")]
    Keys(#[from] KeysRefused),
    #[error("they are of the issuer {0:?}, another one than recorded: only a fresh enrolment token changes it")]
    Issuer(String),
}

/// What each place last said that differs from what is recorded. Lost with the process: daemons say their keys again when they connect.
#[derive(Debug, Default)]
pub(crate) struct Rotation {
    said: Mutex<BTreeMap<Place, KeySet>>,
}

impl Rotation {
    /// Takes what a daemon that proved itself says. `alone`: the cluster never had another place. A std mutex: never held over an await.
    pub(crate) fn told(&self, place: &Place, trust: &Trust, told: &ClusterKeys, alone: bool, now: Timestamp) -> Change {
        let keys = match KeySet::read(told) {
            Ok(keys) => keys,
            Err(refused) => return Change::Refused(refused.into()),
        };
        if told.issuer != trust.issuer {
            return Change::Refused(RotationRefused::Issuer(told.issuer.chars().take(128).collect()));
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = KeySet::read(&trust.keys());
        if recorded.as_ref() == Ok(&keys) {
            said.remove(place);
            return Change::None;
        }
        let seconded = said.iter().any(|(other, theirs)| other.cluster == place.cluster && other != place && *theirs == keys);
        if seconded || alone {
            said.retain(|other, theirs| other.cluster != place.cluster || *theirs != keys);
            return Change::Confirmed(Trust { jwks: told.jwks.clone(), recorded_at: now, ..trust.clone() });
        }
        match said.insert(place.clone(), keys.clone()) {
            Some(before) if before == keys => Change::StillProposed,
            _ => Change::Proposed,
        }
    }
}
