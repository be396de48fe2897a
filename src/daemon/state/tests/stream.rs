//! Which logs are followed.

use serde_json::json;

use super::*;
use crate::daemon::event::ContainerState;
use crate::wire::{LogEndReason, ResumePoint};

fn follow(desk: &mut Desk, case: &Case, stream: u64) -> Vec<Effect> {
    let resume = ResumePoint { container: "containerd://abc".into(), ..ResumePoint::default() };
    desk.say(ToDaemon::LogsFollow { stream, instance: case.instance.clone(), offset: 10, resume, credit: 100 })
}

fn log_end(effects: &[Effect]) -> Option<LogEndReason> {
    sent(effects).into_iter().find_map(|m| if let ToControlPlane::LogEnd { reason, .. } = m { Some(*reason) } else { None })
}

fn container(effects: &[Effect]) -> Option<ContainerState> {
    effects.iter().find_map(|e| if let Effect::Container { state, .. } = e { Some(*state) } else { None })
}

#[test]
fn a_running_containers_log_is_followed_from_the_resume_point() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let effects = follow(&mut desk, &case, 4);
    let [Effect::Follow(order)] = &effects[..] else { panic!("{effects:?}") };
    assert_eq!((order.stream, order.offset, order.credit, order.container.as_str()), (4, 10, 100, "containerd://abc"));
    assert_eq!(order.state, ContainerState::Running);
    assert!(follow(&mut desk, &case, 4).is_empty(), "the same stream again");
    assert!(matches!(desk.say(ToDaemon::LogsCredit { stream: 4, credit: 7, acked: 0 })[..], [Effect::Credit { stream: 4, bytes: 7 }]));
}

#[test]
fn a_follow_waits_for_the_container_and_keeps_its_credit() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    assert!(follow(&mut desk, &case, 1).is_empty(), "it is being made");
    desk.ack_accepted(&case);
    let pod = desk.pod(&case, json!({}));
    desk.created(&case, Creation::Done(Box::new(pod)));
    desk.say(ToDaemon::LogsCredit { stream: 1, credit: 50, acked: 0 });
    let pod = desk.pod(&case, running());
    let effects = desk.applied(&pod);
    let order = effects.iter().find_map(|e| if let Effect::Follow(order) = e { Some(order) } else { None }).expect("it runs");
    assert_eq!(order.credit, 150);
}

#[test]
fn the_containers_end_and_the_objects_are_told_to_the_follow() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    follow(&mut desk, &case, 1);
    let pod = desk.pod(&case, finished(0));
    assert_eq!(container(&desk.applied(&pod)), Some(ContainerState::Ended));
    let effects = desk.left(Binding::Bound, &pod);
    assert_eq!(container(&effects), None, "not before it is confirmed");
    assert_eq!(container(&desk.answer(&effects, Ok(None))), Some(ContainerState::Gone));
    assert!(desk.handle(Event::FollowEnded { stream: 1 }).is_empty());
    assert!(desk.state.streams.is_empty());
}

#[test]
fn a_finished_instance_of_an_earlier_process_can_still_be_read() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, finished(0));
    desk.sync(&[&pod]);
    desk.reconnect(vec![]);
    let effects = follow(&mut desk, &case, 1);
    assert!(matches!(&effects[..], [Effect::Follow(order)] if order.state == ContainerState::Ended), "{effects:?}");
}

#[test]
fn not_held_is_said_only_when_everything_has_been_listed() {
    let (mut desk, case) = (Desk::new(), Case::new());
    desk.reconnect(vec![]);
    assert!(follow(&mut desk, &case, 1).is_empty());
    let effects = desk.sync(&[]);
    assert_eq!(log_end(&effects), None, "a list may be old: it is read first");
    assert_eq!(log_end(&desk.answer(&effects, Ok(None))), Some(LogEndReason::NotHeld));
}

#[test]
fn a_pod_that_an_old_list_did_not_show_is_read_and_its_log_followed() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.pod(&case, finished(0));
    let effects = follow(&mut desk, &case, 1);
    assert!(desk.answer(&effects, Err(Unread::Unclear)).is_empty(), "nothing is known, nothing is said");
    let effects = desk.pass(1);
    let effects = desk.answer(&effects, Ok(Some(&pod)));
    assert!(matches!(&effects[..], [Effect::Follow(order)] if order.instance == case.instance), "{effects:?}");
}

#[test]
fn a_finished_pod_that_is_removed_while_its_log_is_read_ends_the_reading() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, finished(0));
    desk.sync(&[&pod]);
    desk.reconnect(vec![]);
    follow(&mut desk, &case, 1);
    let effects = desk.left(Binding::Bound, &pod);
    let effects = desk.answer(&effects, Ok(None));
    assert!(matches!(effects[..], [Effect::Container { stream: 1, state: ContainerState::Gone }]), "{effects:?}");
    assert!(desk.pass(5).is_empty(), "told once");
}

#[test]
fn a_pod_that_ended_without_a_container_has_an_empty_log() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let (mut desk, case) = (Desk::connected(), case);
    let evicted =
        desk.pod(&case, json!({ "spec": { "nodeName": "node-1", "containers": [] }, "status": { "phase": "Failed", "reason": "Evicted" } }));
    desk.sync(&[&evicted]);
    assert_eq!(log_end(&follow(&mut desk, &case, 1)), Some(LogEndReason::Complete));
}

#[test]
fn a_stop_ends_a_stream_and_a_lost_link_ends_all() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    follow(&mut desk, &case, 1);
    assert_eq!(log_end(&desk.say(ToDaemon::LogsStop { stream: 1 })), Some(LogEndReason::Stopped), "it had not begun");
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    follow(&mut desk, &case, 2);
    assert!(matches!(desk.say(ToDaemon::LogsStop { stream: 2 })[..], [Effect::StopFollow { stream: 2 }]));
    assert!(desk.disconnect().iter().any(|e| matches!(e, Effect::StopFollows)));
    assert!(desk.state.streams.is_empty());
}
