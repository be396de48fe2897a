//! Sessions that end and begin.

use serde_json::json;

use super::*;
use crate::audit::Fact;
use crate::telemetry::Condition;
use crate::types::{Reason, Role, State};

#[test]
fn hello_names_what_is_held_and_the_policy_in_force() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, running());
    desk.sync(&[&pod]);
    let effects = desk.handle(Event::LinkUp { link: 1 });
    let [ToControlPlane::Hello(hello)] = sent(&effects)[..] else { panic!("{effects:?}") };
    assert_eq!((hello.role, hello.node.as_ref().map(|node| node.name.as_str()), hello.held.len()), (Role::Node, Some("node-1"), 1));
    assert_eq!(hello.policy_digest, desk.state.policy.digest());
    assert_eq!(hello.held[0].instance, case.instance);
}

#[test]
fn facts_read_between_hello_and_welcome_are_told_once_the_session_is_open() {
    let mut desk = Desk::new();
    desk.handle(Event::LinkUp { link: 1 });
    let ready = NodeFacts { conditions: vec!["Ready".into()], ..desk.state.node.clone().expect("a node") };
    assert!(sent(&desk.handle(Event::FactsRead { node: Some(Box::new(ready.clone())), cluster_uid: None })).is_empty(), "no session yet");
    let effects = desk.welcome(1, INSTALL, vec![]);
    assert!(sent(&effects).iter().any(|message| matches!(message, ToControlPlane::NodeFacts(facts) if *facts == ready)), "{effects:?}");
    assert!(sent(&desk.handle(Event::FactsRead { node: Some(Box::new(ready)), cluster_uid: None })).is_empty(), "told once");
}

#[test]
fn nothing_is_said_of_any_object_before_welcome() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, running());
    assert!(sent(&desk.sync(&[&pod])).is_empty());
    let effects = desk.handle(Event::LinkUp { link: 1 });
    assert!(reports(&effects).is_empty());
}

#[test]
fn an_open_instance_whose_object_is_there_is_adopted_without_a_second_pod() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, running());
    desk.sync(&[&pod]);
    let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.seq = 7)]);
    assert_eq!((looks(&effects), creates(&effects)), (0, 0));
    let report = the_report(&effects);
    assert_eq!((report.seq, report.epoch, report.observation.state), (8, 1, State::Running));
}

#[test]
fn an_open_instance_is_read_when_no_watch_has_shown_it_yet() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |_| {})]);
    let pod = desk.pod(&case, running());
    assert_eq!(seen(&desk.answer(&effects, Ok(Some(&pod)))).state, State::Running);
}

#[test]
fn an_open_instance_that_was_reported_and_is_absent_was_deleted_by_another_or_as_asked() {
    for (cancel, reason) in [(false, Reason::DeletedByOther), (true, Reason::DeletedByRequest)] {
        let (mut desk, case) = (Desk::connected(), Case::new());
        let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.cancel = cancel)]);
        let effects = desk.answer(&effects, Ok(None));
        assert_eq!((seen(&effects).state, seen(&effects).reason), (State::Stopped, reason));
    }
}

#[test]
fn an_open_instance_that_was_only_accepted_is_lost_once_its_post_can_no_longer_take_effect() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.reconnect(vec![case.open(OpenPhase::Accepted, |open| open.accepted_ms_ago = 30_000)]);
    assert!(desk.answer(&effects, Ok(None)).is_empty());
    assert_eq!(looks(&desk.pass(39)), 0);
    let effects = desk.pass(1);
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::Lost);
}

#[test]
fn an_open_instance_with_a_wish_to_delete_is_deleted() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, running());
    desk.sync(&[&pod]);
    let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.cancel = true)]);
    assert_eq!(deletes(&effects), ["uid-1"]);
}

#[test]
fn after_a_break_what_is_held_is_read_since_the_watches_may_have_died_with_the_link() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    desk.say(ack(&case.instance, 2));
    let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.seq = 2)]);
    assert_eq!((looks(&effects), reports(&effects).len()), (1, 0));
    let pod = desk.pod(&case, finished(0));
    assert_eq!(seen(&desk.answer(&effects, Ok(Some(&pod)))).reason, Reason::Completed, "no watch has said so");

    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.cancel = true)]);
    let pod = desk.pod(&case, running());
    assert_eq!(deletes(&desk.answer(&effects, Ok(Some(&pod)))), ["uid-1"]);
}

#[test]
fn an_object_that_lost_its_marks_while_it_ran_is_still_the_one_that_is_held() {
    for mark in ["/metadata/labels/nymph.dev~1install", "/metadata/annotations/nymph.dev~1dispatch-id"] {
        let (mut desk, case) = (Desk::connected(), Case::new());
        desk.running(&case);
        desk.say(ack(&case.instance, 2));
        let stripped = |desk: &mut Desk, more| {
            let mut pod = serde_json::to_value(desk.pod(&case, more)).expect("a Pod is JSON");
            *pod.pointer_mut(mark).expect("the mark is there") = json!("x");
            serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod).expect("still a Pod")
        };
        let pod = stripped(&mut desk, running());
        desk.applied(&pod);
        let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.seq = 2)]);
        assert!(reports(&desk.answer(&effects, Ok(Some(&pod)))).is_empty(), "it runs as before: {mark}");
        let pod = stripped(&mut desk, finished(0));
        assert_eq!(seen(&desk.applied(&pod)).reason, Reason::Completed, "{mark}");
    }
}

#[test]
fn an_object_that_left_the_watches_by_its_label_is_read_until_it_ends() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    let stripped = |desk: &mut Desk, more| {
        let mut pod = desk.pod(&case, more);
        pod.metadata.labels.as_mut().expect("labels").remove(crate::types::LABEL_NODE);
        pod
    };
    let effects = desk.left(Binding::Bound, &pod);
    let still = stripped(&mut desk, running());
    assert!(reports(&desk.answer(&effects, Ok(Some(&still)))).is_empty(), "it runs");
    let effects = desk.pass(10);
    assert_eq!(looks(&effects), 1);
    let over = stripped(&mut desk, finished(0));
    assert_eq!(seen(&desk.answer(&effects, Ok(Some(&over)))).reason, Reason::Completed);
    assert_eq!(looks(&desk.pass(60)), 0, "what has ended is not read again");
}

#[test]
fn what_was_not_acknowledged_is_sent_again_in_the_new_epoch() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    desk.say(ack(&case.instance, 1));
    desk.disconnect();
    let pod = desk.pod(&case, finished(0));
    assert!(sent(&desk.applied(&pod)).is_empty(), "nobody is there");
    let effects = desk.reconnect(vec![case.open(OpenPhase::Created, |open| open.seq = 1)]);
    let report = the_report(&effects);
    assert_eq!((report.epoch, report.observation.reason), (2, Reason::Completed));
    desk.say(ack(&case.instance, report.seq));
    assert!(reports(&desk.reconnect(vec![])).is_empty());
}

#[test]
fn an_acknowledgement_lost_with_the_link_counts_when_welcome_shows_that_it_was_stored() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    let said_in = desk.link;
    let effects = desk.reconnect(vec![case.open(OpenPhase::Accepted, |open| open.accepted_epoch = said_in)]);
    assert_eq!((creates(&effects), looks(&effects)), (1, 0));
}

#[test]
fn what_another_process_of_the_place_was_heard_to_accept_is_not_made_by_this_one() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    let other = desk.link + 7;
    let effects = desk.reconnect(vec![case.open(OpenPhase::Accepted, |open| open.accepted_epoch = other)]);
    assert_eq!((creates(&effects), looks(&effects)), (0, 1), "it may have been made, and be gone");
    desk.answer(&effects, Ok(None));
    let effects = desk.pass(LOST_AFTER);
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::Lost);
}

#[test]
fn accepted_that_was_not_stored_is_said_again_and_still_makes_nothing() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.reconnect(vec![]);
    let effects = desk.offer(&case, false);
    assert!(accepts(&effects) && creates(&effects) == 0);
    assert_eq!(creates(&desk.ack_accepted(&case)), 1);
}

#[test]
fn a_dispatch_that_was_only_looked_up_is_forgotten_with_its_link() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let old = desk.offer(&case, false);
    desk.reconnect(vec![]);
    let new = desk.offer(&case, false);
    assert_eq!(looks(&new), 1);
    assert!(desk.answer(&old, Ok(None)).is_empty(), "the answer to a question of the old link");
    assert!(accepts(&desk.answer(&new, Ok(None))));
}

#[test]
fn messages_of_an_old_link_are_ignored() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let cancel = ToDaemon::Cancel { instance: case.instance.clone() };
    assert!(desk.handle(Event::Message { link: 99, message: Box::new(cancel) }).is_empty());
    assert!(desk.handle(Event::LinkDown { link: 99 }).is_empty());
    assert_eq!(desk.state.link(), Some(1));
}

#[test]
fn another_enrolment_inherits_nothing() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let effects = desk.reconnect_as("c2-00000000", vec![]);
    assert!(reports(&effects).is_empty());
    assert!(desk.state.items.is_empty());
    assert!(deletes(&desk.say(ToDaemon::Cancel { instance: case.instance.clone() })).is_empty());
}

#[test]
fn a_changed_policy_is_in_force_for_the_next_dispatch_and_told_by_a_new_hello() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let policy = Policy::parse("version: 1\nrun_namespaces: [runs]\nimages: [\"docker.io/library/x:*\"]\n").expect("a valid policy");
    let effects = desk.handle(Event::PolicyChanged(Box::new(policy.clone())));
    assert!(effects.iter().any(|e| matches!(e, Effect::Redial { .. })), "{effects:?}");
    assert!(effects.iter().any(|e| matches!(e, Effect::Watch { namespaces } if namespaces.len() == 1)), "{effects:?}");
    assert!(desk.handle(Event::PolicyChanged(Box::new(policy))).is_empty(), "the same again");
    let effects = desk.offer(&case, false);
    assert_eq!(rejection(&desk.answer(&effects, Ok(None))).rule, "images");
}

#[test]
fn a_namespace_that_left_the_policy_is_watched_while_it_holds_work() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    let policy = Policy::parse("version: 1\nrun_namespaces: [other]\nimages: [\"*\"]\n").expect("a valid policy");
    let effects = desk.handle(Event::PolicyChanged(Box::new(policy)));
    assert!(effects.iter().any(|e| matches!(e, Effect::Watch { namespaces } if namespaces.len() == 2)), "{effects:?}");
}

#[test]
fn facts_are_told_when_they_change() {
    let mut desk = Desk::connected();
    let mut facts = desk.state.node.clone().expect("a node");
    facts.unschedulable = true;
    let read = || Event::FactsRead { node: Some(Box::new(facts.clone())), cluster_uid: Some("u".into()) };
    assert!(matches!(sent(&desk.handle(read()))[..], [ToControlPlane::NodeFacts(_)]));
    assert!(desk.handle(read()).is_empty());
}

#[test]
fn welcome_makes_ready() {
    let mut desk = Desk::new();
    let effects = desk.reconnect(vec![]);
    assert!(effects.iter().any(|e| matches!(e, Effect::Condition(Condition::ControlPlane, Ok(())))), "{effects:?}");
}

#[test]
fn a_check_and_a_lookup_are_passed_on_with_what_they_need() {
    let mut desk = Desk::connected();
    let effects = desk.say(ToDaemon::Check { request: 5 });
    assert!(matches!(&effects[..], [Effect::Check { request: 5, namespaces, .. }] if namespaces.len() == 2), "{effects:?}");
    let lookup = ToDaemon::Lookup { request: 6, instance: "lakeshore-01234567".parse().expect("a name"), labels: BTreeMap::new(), delete: true };
    let effects = desk.say(lookup);
    assert!(matches!(&effects[..], [Effect::Lookup { request: 6, install, .. }] if install == INSTALL), "{effects:?}");
}

#[test]
fn a_drain_waits_for_what_is_under_way_and_for_acknowledgements() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.handle(Event::Draining);
    assert!(desk.state.is_idle());
    let mut desk = Desk::connected();
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.handle(Event::Draining);
    assert!(!desk.state.is_idle(), "accepted: its successor could not know that nothing was made");
    assert_eq!(creates(&desk.ack_accepted(&case)), 1);
    let pod = desk.pod(&case, json!({}));
    let effects = desk.created(&case, Creation::Done(Box::new(pod)));
    assert!(!desk.state.is_idle());
    let seq = the_report(&effects).seq;
    desk.say(ack(&case.instance, seq));
    assert!(desk.state.is_idle());
}

#[test]
fn signing_keys_are_told_in_hello_and_when_they_change() {
    let keys = |kid: &str| ClusterKeys { issuer: "https://kubernetes.default".into(), jwks: serde_json::json!({"keys": [{"kid": kid}]}) };
    let read = |kid| Event::KeysRead { keys: Box::new(keys(kid)), cluster_uid: Some("u".into()) };
    let mut desk = Desk::new();
    assert!(sent(&desk.handle(read("one"))).is_empty(), "nobody is there to be told");
    let effects = desk.handle(Event::LinkUp { link: 1 });
    let hello = sent(&effects);
    assert!(
        matches!(hello.as_slice(), [ToControlPlane::Hello(hello)] if hello.keys == Some(keys("one")) && hello.cluster_uid.as_deref() == Some("u"))
    );
    assert!(sent(&desk.handle(read("two"))).is_empty(), "not before welcome");
    assert_eq!(sent(&desk.welcome(1, INSTALL, vec![])), [&ToControlPlane::Keys(keys("two"))]);
    assert!(sent(&desk.handle(read("two"))).is_empty(), "told once");
    assert_eq!(sent(&desk.handle(read("three"))), [&ToControlPlane::Keys(keys("three"))]);
}

#[test]
fn what_is_open_is_known_only_when_all_of_it_was_listed() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.running(&case);
    desk.disconnect();
    desk.link += 1;
    let link = desk.link;
    desk.handle(Event::LinkUp { link });
    let mut welcome = desk.greeting(vec![]);
    welcome.more = true;
    assert!(desk.say(ToDaemon::Welcome(Box::new(welcome))).is_empty(), "the session is not open yet");
    let open = vec![case.open(OpenPhase::Created, |open| (open.uid, open.cancel) = (Some("uid-1".into()), true))];
    assert!(desk.say(ToDaemon::Open { open, more: true }).is_empty());
    let effects = desk.say(ToDaemon::Open { open: vec![], more: false });
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Record(Fact::SessionOpened { .. }))), "{effects:?}");
    let instance = &case.instance;
    let read = effects.iter().any(|effect| matches!(effect, Effect::Look { instance: looked, .. } if looked == instance));
    assert!(read || deletes(&effects) == ["uid-1"], "it was held, and is not forgotten for standing in a later frame: {effects:?}");
}
