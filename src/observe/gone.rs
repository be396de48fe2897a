//! The absence of a Pod as an observation.

use jiff::Timestamp;

use crate::types::{Observation, Reason, State};

/// Why an object is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A caller asked us to delete it, or to cancel it before it was made.
    DeletedByRequest,
    /// It was seen, and somebody else deleted it.
    DeletedByOther,
    /// It was accepted and never seen to exist.
    Lost,
    /// Its node is gone.
    NodeLost,
}

/// Says how an instance ended whose object does not exist (any more). What was `last` seen of it is kept: a script that had finished
/// before its Pod was deleted has completed, and not been deleted.
pub fn gone(last: Option<&Observation>, now: Timestamp, cause: Gone) -> Observation {
    if let Some(last) = last
        && let Some(reason) = finished(last)
    {
        return Observation { state: State::Stopped, reason, finished_at: last.finished_at.or(Some(now)), observed_at: now, ..last.clone() };
    }
    let (reason, message) = match cause {
        Gone::DeletedByRequest => (Reason::DeletedByRequest, "deleted as asked"),
        Gone::DeletedByOther => (Reason::DeletedByOther, "somebody other than nymph deleted the Pod"),
        Gone::Lost => (Reason::Lost, "it was accepted, and no object of it exists; it is not known to have run and is not started again"),
        Gone::NodeLost => (Reason::NodeLost, "its node is gone, and whatever ran there with it"),
    };
    let none = Observation {
        state: State::Stopped,
        reason,
        message: message.to_owned(),
        exit_code: None,
        uid: None,
        node: None,
        created_at: None,
        started_at: None,
        finished_at: Some(now),
        observed_at: now,
        has_log: false,
    };
    match last {
        None => none,
        Some(last) => Observation {
            exit_code: last.exit_code,
            uid: last.uid.clone(),
            node: last.node.clone(),
            created_at: last.created_at,
            started_at: last.started_at,
            finished_at: last.finished_at.or(Some(now)),
            has_log: last.has_log,
            ..none
        },
    }
}

/// The reason with which an instance had ended by itself, if it had.
fn finished(last: &Observation) -> Option<Reason> {
    match (last.state, last.reason) {
        (State::Stopped, reason) => Some(reason),
        // `pod` gives a natural reason to a Pod under deletion only when its end came first, or Kubernetes announced a disruption.
        (
            State::Stopping,
            reason @ (Reason::Completed
            | Reason::ExitCode
            | Reason::OutOfMemory
            | Reason::Evicted
            | Reason::NodeLost
            | Reason::Deadline
            | Reason::ConfigError
            | Reason::Other),
        ) => Some(reason),
        // Its container had ended, and the Pod was removed before the kubelet told the phase.
        (State::Running, _) => last.exit_code.map(|code| if code == 0 { Reason::Completed } else { Reason::ExitCode }),
        (State::Starting | State::Stopping | State::Unknown, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn seen(state: State, reason: Reason, exit_code: Option<i32>) -> Observation {
        Observation {
            state,
            reason,
            message: "its own words".into(),
            exit_code,
            uid: Some("uid-1".into()),
            node: None,
            created_at: Some(at(1)),
            started_at: Some(at(2)),
            finished_at: exit_code.map(|_| at(3)),
            observed_at: at(4),
            has_log: true,
        }
    }

    #[test]
    fn what_was_never_seen_ends_with_the_cause_and_no_exit_code() {
        for (cause, reason) in
            [(Gone::Lost, Reason::Lost), (Gone::DeletedByRequest, Reason::DeletedByRequest), (Gone::DeletedByOther, Reason::DeletedByOther)]
        {
            let gone = gone(None, at(9), cause);
            assert_eq!((gone.state, gone.reason, gone.exit_code, gone.finished_at, gone.has_log), (State::Stopped, reason, None, Some(at(9)), false));
            assert!(!gone.message.is_empty());
        }
    }

    #[test]
    fn an_outcome_that_came_before_the_deletion_is_kept() {
        for (state, reason, code, expected) in [
            (State::Stopped, Reason::Completed, Some(0), Reason::Completed),
            (State::Stopped, Reason::Evicted, None, Reason::Evicted),
            (State::Stopping, Reason::ExitCode, Some(3), Reason::ExitCode),
            (State::Stopping, Reason::Evicted, Some(143), Reason::Evicted),
            (State::Running, Reason::Running, Some(0), Reason::Completed),
            (State::Running, Reason::Running, Some(4), Reason::ExitCode),
        ] {
            let gone = gone(Some(&seen(state, reason, code)), at(9), Gone::DeletedByOther);
            assert_eq!((gone.state, gone.reason, gone.exit_code), (State::Stopped, expected, code), "{state} {reason}");
            assert_eq!((gone.message.as_str(), gone.observed_at, gone.uid.as_deref()), ("its own words", at(9), Some("uid-1")));
            assert_eq!(gone.finished_at, Some(code.map_or(at(9), |_| at(3))));
        }
    }

    #[test]
    fn what_was_cut_short_ends_with_the_cause_and_keeps_what_is_known() {
        for (state, reason, code) in [
            (State::Running, Reason::Running, None),
            (State::Starting, Reason::ImagePull, None),
            (State::Stopping, Reason::DeletedByOther, None),
            (State::Stopping, Reason::DeletedByOther, Some(143)),
            (State::Unknown, Reason::Other, None),
        ] {
            let gone = gone(Some(&seen(state, reason, code)), at(9), Gone::DeletedByOther);
            assert_eq!((gone.state, gone.reason, gone.exit_code), (State::Stopped, Reason::DeletedByOther, code), "{state} {reason}");
            assert_eq!((gone.started_at, gone.has_log, gone.uid.as_deref()), (Some(at(2)), true, Some("uid-1")));
        }
    }
}
