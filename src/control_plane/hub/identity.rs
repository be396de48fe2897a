//! Who gets in: judges what a daemon shows in its handshake and its `hello`, stores what is recorded by it, and tells the audit.

use std::time::Duration;

use super::Hub;
use super::session::Session;
use crate::control_plane::audit;
use crate::control_plane::clock::milliseconds;
use crate::control_plane::identity::{Change, Circumstances, Claim, KeySet, Recorded, Refusal, Verdict, Verified, after_hello, before_upgrade};
use crate::control_plane::store::{Cluster, Enrolled, Place, Proof, StoreError, Trust};
use crate::control_plane::tokens::TokenHash;
use crate::types::Placement;
use crate::wire::{Close, CloseCode, ClusterKeys, HEARTBEAT_INTERVAL, Hello, MISSED_BEATS};

/// How often a judgement is made anew because what it was made by has changed meanwhile: many daemons of one cluster may be its first.
const TRIES: usize = 20;
/// When a daemon shall try again that is refused for what may pass by itself.
const RETRY_AFTER: Duration = HEARTBEAT_INTERVAL;

/// A daemon whose enrolment token is known.
#[derive(Debug)]
pub(super) struct Visitor {
    hash: TokenHash,
    pub(super) claim: Claim,
    pub(super) enrolled: Enrolled,
}

/// A daemon that gets in.
#[derive(Clone, Debug)]
pub(crate) struct Admitted {
    pub(crate) cluster: Cluster,
    /// Id of its enrolment token.
    pub(crate) enrolment: String,
    /// Who it proved to be; `None` where nothing can be checked.
    pub(crate) proof: Option<Proof>,
}

/// Why a daemon does not get in.
#[derive(Debug)]
pub(crate) enum Away {
    Told(Close),
    Store(StoreError),
}

impl From<StoreError> for Away {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Visitor {
    pub(super) fn place(&self) -> Place {
        Place { cluster: self.enrolled.cluster.name.clone(), placement: self.claim.placement.clone() }
    }
}

impl Hub {
    /// Looks at a handshake; `None`, after telling the audit, for one that is refused.
    pub(super) async fn at_the_door(
        &self,
        hash: Option<TokenHash>,
        placement: Option<Placement>,
        token: Option<secrecy::SecretString>,
    ) -> Result<Option<Visitor>, StoreError> {
        let found = match hash {
            Some(hash) => self.store.cluster_by_token(hash, self.clock.wall()).await?.map(|enrolled| (hash, enrolled)),
            None => None,
        };
        let Some((hash, enrolled)) = found else {
            self.strangers.refused(placement.as_ref(), self.clock.mono());
            return Ok(None);
        };
        // One that names no place is told so when it gets that far: with keys recorded, it does not.
        let claim = Claim { placement: placement.unwrap_or(Placement::Cluster), token };
        let visitor = Visitor { hash, claim, enrolled };
        match before_upgrade(&visitor.claim, visitor.enrolled.trust.as_ref(), &self.circumstances(&visitor)) {
            Some(Verdict::Refused(why)) => {
                audit::connection_refused(&visitor.place(), &visitor.enrolled.enrolment.id, &why);
                Ok(None)
            }
            _ => Ok(Some(visitor)),
        }
    }

    fn circumstances(&self, visitor: &Visitor) -> Circumstances<'_> {
        let place = visitor.place();
        let live = self.live(&place.cluster);
        Circumstances {
            audience: &self.settings.audience,
            now: self.clock.wall(),
            fresh: visitor.enrolled.enrolment.last_used_at.is_none(),
            proven_live: live.iter().any(|session| session.proof().is_some()),
            others_live: live.iter().any(|session| *session.place() != place),
        }
    }

    /// Judges a `hello`, and records what its proof is the first to show.
    ///
    /// # Errors
    /// [`Away`] for a daemon that does not get in; the audit was told.
    pub(super) async fn admit(&self, mut visitor: Visitor, hello: &Hello) -> Result<Admitted, Away> {
        let (place, enrolment) = (visitor.place(), visitor.enrolled.enrolment.id.clone());
        for _ in 0..TRIES {
            // Read again each time: it may have been revoked, or used, since the handshake.
            let Some(enrolled) = self.store.cluster_by_token(visitor.hash, self.clock.wall()).await? else { break };
            visitor.enrolled = enrolled;
            let known = visitor.enrolled.trust.as_ref();
            let verified = match after_hello(&visitor.claim, known, &self.circumstances(&visitor), hello) {
                Verdict::Proven(verified) => Some(verified),
                Verdict::Unproven(why) => {
                    audit::unproven(&place, &enrolment, &why);
                    None
                }
                Verdict::Refused(why) => {
                    audit::connection_refused(&place, &enrolment, &why);
                    return Err(Away::Told(refusal(&why)));
                }
                Verdict::Record { verified, trust, what } => {
                    let before = known.map(|known| known.recorded_at);
                    if !self.store.record_trust(place.cluster.clone(), before, trust.clone()).await? {
                        continue;
                    }
                    tell_recorded(&place, &enrolment, &trust, &verified, what);
                    self.ask_for_proof(&place.cluster);
                    Some(verified)
                }
            };
            if !self.store.use_enrolment(enrolment.clone(), self.clock.wall()).await? {
                break;
            }
            if let (Some(_), Some(keys)) = (&verified, &hello.keys) {
                self.told_keys(&place, keys).await?;
            }
            return Ok(Admitted { cluster: visitor.enrolled.cluster, enrolment, proof: verified.map(proof) });
        }
        audit::enrolment_ended(&place, &enrolment);
        let message = "the enrolment token is no longer valid".to_owned();
        Err(Away::Told(Close { code: CloseCode::BadToken, message, retry_after_ms: None }))
    }

    /// Takes the keys that a daemon tells. From one that proved itself they may be the cluster's new ones.
    pub(super) async fn told_keys(&self, place: &Place, keys: &ClusterKeys) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let Some(trust) = self.store.trust(place.cluster.clone()).await? else { return Ok(()) };
            let daemons = self.store.daemons().await?;
            let alone = !daemons.iter().any(|row| row.place.cluster == place.cluster && row.place != *place);
            match self.rotation.told(place, &trust, keys, alone, self.clock.wall()) {
                Change::None | Change::StillProposed => {}
                Change::Proposed => audit::keys_proposed(place, &names(keys)),
                Change::Refused(why) => audit::keys_refused(place, &why),
                Change::Confirmed(changed) => {
                    if !self.store.record_trust(place.cluster.clone(), Some(trust.recorded_at), changed).await? {
                        continue;
                    }
                    audit::keys_rotated(place, &names(&trust.keys()), &names(keys));
                }
            }
            return Ok(());
        }
        Ok(()) // others record without end: they tell the same, or the next `hello` says it again
    }

    /// Takes the keys that a daemon tells within its session.
    pub(super) async fn session_told_keys(&self, session: &Session, keys: &ClusterKeys) -> Result<(), StoreError> {
        if session.proof().is_some() {
            return self.told_keys(session.place(), keys).await;
        }
        // It can read them now: with its next dial it may prove who it is.
        let message = "the cluster's signing keys can be read now: dial again, with a proof".to_owned();
        session.close(Close { code: CloseCode::GoAway, message, retry_after_ms: None });
        Ok(())
    }

    /// For how long a session was silent.
    pub(super) fn silent(&self, session: &Session) -> Duration {
        Duration::try_from(self.clock.wall().duration_since(session.heard())).unwrap_or_default()
    }
}

/// What a second daemon of a place is told that has no proof.
pub(super) fn occupied() -> Close {
    let message = format!(
        "another session of this place is alive, and only a daemon that proves who it is may displace it; it counts as gone after {} missed heartbeats",
        MISSED_BEATS
    );
    Close { code: CloseCode::Occupied, message, retry_after_ms: Some(milliseconds(RETRY_AFTER)) }
}

/// What a daemon is told whose `hello` is refused. It has a valid enrolment token; what is wrong with its proof stands in the audit.
fn refusal(why: &Refusal) -> Close {
    let message = "the daemon's proof of identity is not accepted; the control plane's audit lines say why".to_owned();
    let passes = matches!(why, Refusal::Contested(_));
    Close { code: CloseCode::BadToken, message, retry_after_ms: passes.then_some(milliseconds(RETRY_AFTER)) }
}

/// Names of the keys, for an audit line.
fn names(keys: &ClusterKeys) -> String {
    KeySet::read(keys).map(|keys| keys.names().join(" ")).unwrap_or_default()
}

fn tell_recorded(place: &Place, enrolment: &str, trust: &Trust, verified: &Verified, what: Recorded) {
    let keys = names(&trust.keys());
    match what {
        Recorded::First => audit::keys_recorded(place, enrolment, trust, &keys, verified, false),
        Recorded::Replaced => audit::keys_recorded(place, enrolment, trust, &keys, verified, true),
        Recorded::More => audit::account_recorded(place, enrolment, trust, verified),
    }
}

fn proof(verified: Verified) -> Proof {
    let Verified { account, node_uid, pod, pod_uid, expires: _ } = verified;
    Proof { account, node_uid, pod, pod_uid }
}
