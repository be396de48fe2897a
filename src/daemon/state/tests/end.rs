//! Observations, deletion, and the end.

use serde_json::json;

use super::*;
use crate::apply::DeleteOutcome;
use crate::telemetry::Condition;
use crate::types::{Reason, State};

fn delete_ended(desk: &mut Desk, case: &Case, outcome: DeleteOutcome) -> Vec<Effect> {
    desk.handle(Event::DeleteEnded { instance: case.instance.clone(), uid: "uid-1".into(), outcome })
}

#[test]
fn reports_are_numbered_and_say_only_what_is_new() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let pod = desk.pod(&case, running());
    assert!(reports(&desk.applied(&pod)).is_empty(), "the same again");
    let pod = desk.pod(&case, finished(3));
    let effects = desk.applied(&pod);
    assert_eq!(the_report(&effects).seq, 3, "made, running, stopped");
    assert_eq!((seen(&effects).state, seen(&effects).reason, seen(&effects).exit_code), (State::Stopped, Reason::ExitCode, Some(3)));
}

#[test]
fn an_older_sight_that_comes_late_changes_nothing() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let old = desk.pod(&case, json!({}));
    desk.running(&case);
    assert!(reports(&desk.applied(&old)).is_empty());
    let pod = desk.pod(&case, finished(0));
    assert_eq!(seen(&desk.applied(&pod)).reason, Reason::Completed);
}

#[test]
fn moving_from_the_unbound_watch_to_the_bound_one_is_a_hand_over() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let unbound = desk.pod(&case, json!({}));
    desk.created(&case, Creation::Done(Box::new(unbound.clone())));
    desk.applied(&unbound);
    // The bound watch is first: nothing to ask.
    let bound = desk.pod(&case, running());
    desk.applied(&bound);
    assert!(desk.left(Binding::Unbound, &unbound).is_empty());
}

#[test]
fn an_object_that_left_the_unbound_watch_first_is_read_and_lives_on() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let unbound = desk.pod(&case, json!({}));
    desk.created(&case, Creation::Done(Box::new(unbound.clone())));
    let effects = desk.left(Binding::Unbound, &unbound);
    assert!(reports(&effects).is_empty());
    let bound = desk.pod(&case, running());
    let effects = desk.answer(&effects, Ok(Some(&bound)));
    assert_eq!(seen(&effects).state, State::Running);
}

#[test]
fn a_deletion_by_another_is_told_as_stopping_and_then_confirmed_before_stopped() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let mut change = running();
    merge(&mut change, deleting());
    let pod = desk.pod(&case, change);
    let effects = desk.applied(&pod);
    assert_eq!((seen(&effects).state, seen(&effects).reason), (State::Stopping, Reason::DeletedByOther));
    let effects = desk.left(Binding::Bound, &pod);
    assert!(reports(&effects).is_empty(), "absence from a watch proves nothing: {effects:?}");
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).state, seen(&effects).reason, seen(&effects).exit_code), (State::Stopped, Reason::DeletedByOther, None));
}

#[test]
fn an_end_within_the_grace_period_does_not_hide_who_ended_it() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let mut change = running();
    merge(&mut change, deleting());
    let pod = desk.pod(&case, change);
    desk.applied(&pod);
    // The kubelet's own delete, without grace, some seconds after the container's end.
    let mut change = finished(137);
    merge(&mut change, json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:09Z", "deletionGracePeriodSeconds": 0 } }));
    let pod = desk.pod(&case, change);
    let effects = desk.applied(&pod);
    assert_eq!((seen(&effects).reason, seen(&effects).exit_code), (Reason::DeletedByOther, Some(137)));
    let effects = desk.left(Binding::Bound, &pod);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).state, seen(&effects).reason, seen(&effects).exit_code), (State::Stopped, Reason::DeletedByOther, Some(137)));
}

#[test]
fn an_object_missing_from_a_new_list_is_confirmed_by_a_read() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    let effects = desk.sync(&[]);
    assert!(reports(&effects).is_empty());
    assert!(reports(&desk.answer(&effects, Ok(Some(&pod)))).is_empty(), "the list was wrong");
    let effects = desk.sync(&[]);
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::DeletedByOther);
}

#[test]
fn a_read_that_began_before_the_object_left_does_not_count() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    desk.say(ack(&case.instance, 2));
    let before = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.seq = 2)]);
    let after = desk.left(Binding::Bound, &pod);
    assert!(desk.answer(&before, Ok(Some(&pod))).is_empty(), "it was there when the read began");
    assert_eq!(seen(&desk.answer(&after, Ok(None))).reason, Reason::DeletedByOther);
}

#[test]
fn an_object_that_left_before_the_answer_to_its_making_is_read_again() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let pod = desk.pod(&case, json!({}));
    desk.applied(&pod);
    assert!(desk.left(Binding::Unbound, &pod).is_empty(), "the POST's answer comes first");
    let effects = desk.created(&case, Creation::Done(Box::new(pod)));
    assert!(reports(&effects).is_empty(), "it may be bound or gone");
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::DeletedByOther);

    for seen_to_leave in [false, true] {
        let (mut desk, case) = (Desk::connected(), Case::new());
        let effects = desk.offer(&case, false);
        desk.answer(&effects, Ok(None));
        desk.ack_accepted(&case);
        let pod = desk.pod(&case, running());
        desk.applied(&pod);
        if seen_to_leave {
            desk.left(Binding::Bound, &pod);
        }
        let effects = desk.created(&case, Creation::Unclear { message: "no answer".into() });
        let effects = if seen_to_leave { effects } else { desk.left(Binding::Bound, &pod) };
        let effects = desk.answer(&effects, Ok(None));
        assert_eq!((seen(&effects).reason, creates(&effects)), (Reason::DeletedByOther, 0), "it is not POSTed again");
        assert_eq!(creates(&desk.pass(200)), 0);
    }

    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, true);
    let pod = desk.pod(&case, running());
    desk.applied(&pod);
    desk.left(Binding::Bound, &pod);
    let effects = desk.answer(&effects, Ok(Some(&pod)));
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::DeletedByOther);
}

#[test]
fn an_object_of_the_same_name_and_another_uid_is_not_the_one_that_was_held() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    let effects = desk.left(Binding::Bound, &pod);
    let copy = desk.pod(&case, json!({ "metadata": { "uid": "uid-2" } }));
    let effects = desk.answer(&effects, Ok(Some(&copy)));
    assert_eq!((seen(&effects).state, seen(&effects).uid.as_deref()), (State::Stopped, Some("uid-1")));
}

#[test]
fn an_end_that_came_before_the_deletion_is_kept() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let pod = desk.pod(&case, finished(3));
    // Only the watch's last word shows how it ended.
    let effects = desk.left(Binding::Bound, &pod);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).state, seen(&effects).reason, seen(&effects).exit_code), (State::Stopped, Reason::ExitCode, Some(3)));
}

#[test]
fn a_cancel_deletes_by_uid_once_and_ends_as_asked() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    let cancel = || ToDaemon::Cancel { instance: case.instance.clone() };
    assert_eq!(deletes(&desk.say(cancel())), ["uid-1"]);
    assert!(deletes(&desk.say(cancel())).is_empty());
    assert!(delete_ended(&mut desk, &case, DeleteOutcome::Taken).is_empty());
    assert!(deletes(&desk.say(cancel())).is_empty(), "it was taken; the watch tells the rest");
    let effects = desk.left(Binding::Bound, &pod);
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::DeletedByRequest);
}

#[test]
fn a_refused_delete_shows_as_stopping_and_is_tried_again() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    desk.say(ToDaemon::Cancel { instance: case.instance.clone() });
    let effects = delete_ended(&mut desk, &case, DeleteOutcome::Refused { message: "forbidden: no".into() });
    assert_eq!((seen(&effects).state, seen(&effects).reason), (State::Stopping, Reason::DeleteRefused));
    assert!(seen(&effects).message.contains("forbidden"));
    assert!(deletes(&desk.pass(59)).is_empty());
    assert_eq!(deletes(&desk.pass(1)), ["uid-1"]);
}

#[test]
fn an_unclear_delete_is_tried_again_soon() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    desk.say(ToDaemon::Cancel { instance: case.instance.clone() });
    assert!(delete_ended(&mut desk, &case, DeleteOutcome::Unclear { message: "timeout".into() }).is_empty());
    assert_eq!(deletes(&desk.pass(2)), ["uid-1"]);
}

#[test]
fn a_cancel_before_the_object_is_made_makes_none() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    let effects = desk.say(ToDaemon::Cancel { instance: case.instance.clone() });
    assert_eq!((seen(&effects).state, seen(&effects).reason), (State::Stopped, Reason::DeletedByRequest));
    assert_eq!(creates(&desk.ack_accepted(&case)), 0);
}

#[test]
fn a_cancel_while_the_object_is_being_made_deletes_it_at_once() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    assert!(deletes(&desk.say(ToDaemon::Cancel { instance: case.instance.clone() })).is_empty());
    let pod = desk.pod(&case, json!({}));
    assert_eq!(deletes(&desk.created(&case, Creation::Done(Box::new(pod)))), ["uid-1"]);
}

#[test]
fn the_object_of_an_instance_that_ended_before_this_process_began_can_be_deleted() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, finished(0));
    desk.sync(&[&pod]);
    desk.reconnect(vec![]);
    assert_eq!(deletes(&desk.say(ToDaemon::Cancel { instance: case.instance.clone() })), ["uid-1"]);
    let mut desk = Desk::new();
    desk.sync(&[&pod]);
    desk.reconnect_as("c2-00000000", vec![]);
    assert!(deletes(&desk.say(ToDaemon::Cancel { instance: case.instance.clone() })).is_empty(), "another enrolment's");
}

#[test]
fn what_the_control_plane_has_on_disk_as_ended_is_forgotten() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    assert!(!desk.state.is_idle());
    let effects = desk.left(Binding::Bound, &pod);
    let effects = desk.answer(&effects, Ok(None));
    let seq = the_report(&effects).seq;
    desk.say(ack(&case.instance, seq - 1));
    assert!(!desk.state.items.is_empty());
    desk.say(ack(&case.instance, seq));
    assert!(desk.state.items.is_empty() && desk.state.objects.is_empty() && desk.state.is_idle());
}

#[test]
fn a_watch_that_fails_makes_the_daemon_not_ready_until_it_lists_again() {
    let mut desk = Desk::connected();
    let status = |effects: &[Effect]| {
        let mut found =
            effects.iter().filter_map(|e| if let Effect::Condition(Condition::Watches, status) = e { Some(status.clone()) } else { None });
        found.next_back()
    };
    let effects = desk.watch("runs", Binding::Bound, Seen::Failing("403 Forbidden".into()));
    assert_eq!(status(&effects), Some(Err("namespace runs: 403 Forbidden".into())));
    desk.watch("runs", Binding::Bound, Seen::Relisting);
    let effects = desk.watch("runs", Binding::Bound, Seen::Relisted);
    assert_eq!(status(&effects), Some(Ok(())));
    // One that goes on without a list shows it by not failing any more.
    desk.watch("runs", Binding::Bound, Seen::Failing("connection reset".into()));
    assert_eq!(status(&desk.pass(59)), None);
    assert_eq!(status(&desk.pass(2)), Some(Ok(())));
}
