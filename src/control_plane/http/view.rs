//! An instance as callers see it. Pure but for the clock that its caller reads.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::App;
use crate::control_plane::store::{Instance, Phase, Place};
use crate::types::{Reason, State};
use crate::wire::LogEndReason;

/// A time as it is sent: RFC 3339 in UTC with milliseconds (A25).
pub(super) fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// What is shown of a state: what is known, and what must be said of how old that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) state: State,
    pub(super) reason: Reason,
    pub(super) message: String,
}

/// How old news about a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    /// Its daemon is connected.
    pub(super) connected: bool,
    /// Time since it was last heard.
    pub(super) away: Duration,
}

/// Overlays what is known with a wish to delete and with the daemon's absence. A wish shows first: it was answered with 204.
pub(super) fn shown(row: &Instance, reach: Reach, stale_after: Duration) -> Shown {
    let known = Shown { state: row.seen.state, reason: row.seen.reason, message: row.seen.message.clone() };
    let whose = row.place.placement.whose();
    match row.phase {
        Phase::Ended => known,
        Phase::Queued if reach.connected => Shown { message: format!("waiting for the daemon of {whose}"), ..known },
        Phase::Queued => Shown { message: format!("waiting for the daemon of {whose}, which is not connected"), ..known },
        Phase::Accepted | Phase::Created if row.delete_requested && known.state != State::Stopping => {
            let message = match reach.connected {
                true => "the deletion was asked for and is not confirmed yet".to_owned(),
                false => format!("the deletion was asked for; the daemon of {whose} is not connected and will be told when it is"),
            };
            let reason = if known.reason == Reason::DeleteRefused { Reason::DeleteRefused } else { Reason::DeletedByRequest };
            Shown { state: State::Stopping, reason, message }
        }
        Phase::Accepted | Phase::Created if !row.delete_requested && !reach.connected && reach.away > stale_after => {
            let message =
                format!("the daemon of {whose} was last heard {} s ago; last known: {} ({})", reach.away.as_secs(), known.state, known.reason);
            Shown { state: State::Unknown, reason: Reason::DaemonUnreachable, message }
        }
        Phase::Accepted | Phase::Created => known,
    }
}

/// Looks up how far away daemons are.
pub(super) struct Reaches<'a> {
    app: &'a App,
}

impl<'a> Reaches<'a> {
    pub(super) fn new(app: &'a App) -> Self {
        Self { app }
    }

    pub(super) fn of(&self, place: &Place) -> Reach {
        Reach { connected: self.app.hub.session(place).is_some(), away: self.app.hub.away(place) }
    }

    /// The JSON of an instance.
    pub(super) fn instance(&self, row: &Instance) -> Value {
        let shown = shown(row, self.of(&row.place), self.app.stale_after);
        json!({
            "instanceId": row.name,
            "state": shown.state,
            "reason": shown.reason,
            "message": shown.message,
            "exitCode": row.seen.exit_code,
            "providerName": row.provider,
            "launchedAt": time(row.launched_at),
            "startedAt": row.seen.started_at.map(time),
            "finishedAt": row.seen.finished_at.map(time),
            "observedAt": time(row.seen.observed_at),
            "node": row.place.placement.node().or(row.seen.node.as_ref()),
            "placement": row.place.placement.role(),
            "kubernetesNamespace": row.kube_namespace,
            "dispatchId": row.dispatch_id,
            "requestedBy": row.requested_by,
            "logBytes": row.log.stored,
            "logDroppedBytes": row.log_dropped(),
            "logComplete": row.log.end == Some(LogEndReason::Complete) && row.log_dropped() == 0,
        })
    }
}

/// Whether a shown state has come as far as the one that is waited for.
pub(super) fn reached(shown: State, wanted: State) -> bool {
    shown == wanted || (shown != State::Unknown && wanted != State::Unknown && crate::types::advance(shown, wanted) == shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_reached_when_it_or_a_later_one_is_shown() {
        use State::{Running, Starting, Stopped, Stopping, Unknown};
        for (shown, wanted, expected) in [
            (Starting, Starting, true),
            (Starting, Running, false),
            (Running, Starting, true),
            (Stopping, Running, true),
            (Stopping, Stopped, false),
            (Stopped, Running, true),
            (Unknown, Starting, false), // nothing is known: it may not have begun
            (Unknown, Unknown, true),
            (Stopped, Unknown, false),
        ] {
            assert_eq!(reached(shown, wanted), expected, "{shown} while waiting for {wanted}");
        }
    }
}
