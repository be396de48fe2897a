//! What decides who may do what, told for good: one JSON line a fact in the log, target `audit`, one function a fact.
//!
//! No line ever holds a token. Words of a peer are fields of their own, shortened where they were read.

use std::sync::Mutex;
use std::time::Duration;

use super::clock::milliseconds;
use super::hub::locked;
use super::identity::{Refusal, Unproven, Verified};
use super::store::{Place, Proof, Trust};
use crate::types::Placement;

/// How often strangers are told of; what comes in between is counted.
const STRANGERS_EVERY: Duration = Duration::from_secs(1);

/// A daemon was not let in.
pub(super) fn connection_refused(place: &Place, enrolment: &str, why: &Refusal) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    tracing::warn!(target: "audit", event = "connection_refused", %cluster, %daemon, enrolment, why = %why, "A daemon was refused: its proof does not hold");
}

/// An enrolment token was revoked, or expired, between a daemon's handshake and its session.
pub(super) fn enrolment_ended(place: &Place, enrolment: &str) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    let why = "its enrolment token was revoked or has expired";
    tracing::warn!(target: "audit", event = "connection_refused", %cluster, %daemon, enrolment, why, "A daemon was refused");
}

/// A daemon without a proof wanted the place of one that is connected.
pub(super) fn occupied(place: &Place, enrolment: &str, silent: Duration) {
    let (cluster, daemon, silent_ms) = (&place.cluster, &place.placement, milliseconds(silent));
    let why = "a session of this place is alive, and only a proof displaces it";
    tracing::warn!(target: "audit", event = "connection_refused", %cluster, %daemon, enrolment, why, silent_ms, "A second daemon of one place was refused");
}

/// Who dials without an enrolment token that is known. Anybody can, as often as they like: lines are limited, and say how many are left out.
#[derive(Debug, Default)]
pub(super) struct Strangers {
    last: Mutex<(Option<Duration>, u64)>,
}

impl Strangers {
    /// `now` is on the monotonic clock.
    pub(super) fn refused(&self, claimed: Option<&Placement>, now: Duration) {
        let left_out = {
            let mut last = locked(&self.last);
            if last.0.is_some_and(|last| now.saturating_sub(last) < STRANGERS_EVERY) {
                last.1 += 1;
                return;
            }
            std::mem::replace(&mut *last, (Some(now), 0)).1
        };
        let daemon = claimed.map_or_else(|| "(none)".to_owned(), ToString::to_string);
        let why = "its enrolment token is missing, malformed, unknown, revoked or expired";
        tracing::warn!(target: "audit", event = "connection_refused", daemon, why, left_out, "A stranger was refused");
    }
}

/// A session is open.
pub(super) fn connected(place: &Place, enrolment: &str, epoch: u64, proof: Option<&Proof>) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    match proof {
        Some(Proof { account, pod, pod_uid, .. }) => {
            tracing::info!(target: "audit", event = "connected", %cluster, %daemon, enrolment, epoch, %account, pod, pod_uid, "A daemon proved who it is");
        }
        None => {
            tracing::warn!(target: "audit", event = "connected_unproven", %cluster, %daemon, enrolment, epoch, "A daemon is connected without a proof of who it is");
        }
    }
}

/// Why a session has no proof.
pub(super) fn unproven(place: &Place, enrolment: &str, why: &Unproven) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    tracing::warn!(target: "audit", event = "unproven", %cluster, %daemon, enrolment, why = %why, "UNPROVEN: only the enrolment token says which daemon this is");
}

/// A newer session took the place of an older one.
pub(super) fn displaced(place: &Place, older: Option<&Proof>, newer: Option<&Proof>, silent: Duration) {
    let (cluster, daemon, silent_ms) = (&place.cluster, &place.placement, milliseconds(silent));
    let pod = |proof: Option<&Proof>| proof.map_or_else(|| "(unproven)".to_owned(), |proof| format!("{} {}", proof.pod, proof.pod_uid));
    let (old, new) = (pod(older), pod(newer));
    if old == new {
        tracing::info!(target: "audit", event = "displaced", %cluster, %daemon, pod = new, silent_ms, "A daemon came back before its old session had ended");
    } else {
        tracing::warn!(target: "audit", event = "displaced", %cluster, %daemon, old, new, silent_ms, "ALARM: another Pod took over the place of a connected daemon");
    }
}

/// The cluster's keys were recorded by an enrolment token.
pub(super) fn keys_recorded(place: &Place, enrolment: &str, trust: &Trust, keys: &str, verified: &Verified, replaced: bool) {
    let (cluster, daemon, issuer, account) = (&place.cluster, &place.placement, &trust.issuer, &verified.account);
    let (cluster_uid, pod) = (trust.cluster_uid.as_deref(), &verified.pod);
    if replaced {
        tracing::warn!(target: "audit", event = "keys_replaced", %cluster, %daemon, enrolment, issuer, keys, cluster_uid, %account, pod, "ALARM: a fresh enrolment token replaced the signing keys of a cluster");
    } else {
        tracing::info!(target: "audit", event = "keys_recorded", %cluster, %daemon, enrolment, issuer, keys, cluster_uid, %account, pod, "The signing keys of a cluster are recorded");
    }
}

/// The account of a role, or the UID, was recorded beside keys that are known.
pub(super) fn account_recorded(place: &Place, enrolment: &str, trust: &Trust, verified: &Verified) {
    let (cluster, daemon, role, account, pod) = (&place.cluster, &place.placement, place.placement.role(), &verified.account, &verified.pod);
    let cluster_uid = trust.cluster_uid.as_deref();
    tracing::info!(target: "audit", event = "account_recorded", %cluster, %daemon, enrolment, %role, %account, pod, cluster_uid, "The ServiceAccount of a role is recorded");
}

/// A daemon says that the keys have changed.
pub(super) fn keys_proposed(place: &Place, keys: &str) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    tracing::warn!(target: "audit", event = "keys_proposed", %cluster, %daemon, keys, "A daemon tells other signing keys; they count when a second place tells the same");
}

/// They were recorded.
pub(super) fn keys_rotated(place: &Place, before: &str, after: &str) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    tracing::warn!(target: "audit", event = "keys_rotated", %cluster, %daemon, before, after, "The signing keys of a cluster have changed");
}

/// They were not taken.
pub(super) fn keys_refused(place: &Place, why: &dyn std::fmt::Display) {
    let (cluster, daemon) = (&place.cluster, &place.placement);
    tracing::warn!(target: "audit", event = "keys_refused", %cluster, %daemon, why = %why, "Signing keys that a daemon told are not taken");
}

/// A person made an enrolment token.
pub(super) fn enrolment_created(cluster: &str, enrolment: &str, by: &str, expires_at: Option<jiff::Timestamp>) {
    let expires_at = expires_at.map(|expires_at| expires_at.to_string());
    tracing::info!(target: "audit", event = "enrolment_created", cluster, enrolment, by, expires_at, "An enrolment token was made");
}

/// A person revoked one.
pub(super) fn enrolment_revoked(cluster: &str, enrolment: &str, by: &str, sessions: usize) {
    tracing::info!(target: "audit", event = "enrolment_revoked", cluster, enrolment, by, sessions, "An enrolment token was revoked");
}
