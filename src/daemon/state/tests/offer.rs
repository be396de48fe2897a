//! From the offer to the object.

use serde_json::json;

use super::*;
use crate::audit::Fact;
use crate::types::{Placement, Reason, State};
use crate::wire::{DispatchEnvelope, RejectionCode};

#[test]
fn a_dispatch_is_looked_up_before_anything_else() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    assert_eq!((looks(&effects), creates(&effects), sent(&effects).len()), (1, 0, 0), "{effects:?}");
    let Effect::Look { namespaces, .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(namespaces.iter().map(|n| n.as_str()).collect::<Vec<_>>(), ["runs"], "never accepted: only where it would be made");
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, true);
    let Effect::Look { namespaces, .. } = &effects[0] else { panic!("{effects:?}") };
    assert_eq!(namespaces.len(), 2, "accepted, without a namespace of its own: it may be in any run namespace");
}

#[test]
fn nothing_is_created_before_accepted_is_on_disk() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    let effects = desk.answer(&effects, Ok(None));
    assert!(accepts(&effects) && creates(&effects) == 0, "{effects:?}");
    assert!(matches!(&effects[..], [Effect::Admit { fact: Fact::DispatchAdmitted { subject, .. }, .. }] if subject.requested_by == "default/ann"));
    assert_eq!(creates(&desk.pass(30)), 0);
    assert_eq!(creates(&desk.ack_accepted(&case)), 1);
    assert_eq!(creates(&desk.ack_accepted(&case)), 0, "an acknowledgement that comes twice");
}

#[test]
fn an_object_that_is_there_is_adopted_whatever_policy_and_drain_say() {
    let (mut desk, case) = (Desk::connected(), Case::with(|launch| launch.image = "forbidden.example/x".into()));
    desk.handle(Event::Draining);
    let effects = desk.offer(&case, false);
    let pod = desk.pod(&case, running());
    let effects = desk.answer(&effects, Ok(Some(&pod)));
    assert!(accepts(&effects), "{effects:?}");
    assert_eq!(seen(&effects).state, State::Running);
    assert!(effects.iter().any(|e| matches!(e, Effect::Record(Fact::Adopted { .. }))), "{effects:?}");
}

#[test]
fn another_ones_object_of_that_name_is_left_alone() {
    let foreign = [
        json!({ "metadata": { "labels": { "nymph.dev/install": "c2-ffffffff" } } }),
        json!({ "metadata": { "annotations": { "nymph.dev/dispatch-id": "ffffffffffffffffffffffffffffffff" } } }),
        json!({ "metadata": { "annotations": { "nymph.dev/attempt": "2" } } }),
        json!({ "metadata": { "labels": null, "annotations": null } }),
    ];
    for change in foreign {
        let (mut desk, case) = (Desk::connected(), Case::new());
        let effects = desk.offer(&case, false);
        let pod = desk.pod(&case, change);
        let effects = desk.answer(&effects, Ok(Some(&pod)));
        assert_eq!(rejection(&effects).code, RejectionCode::NameTaken);
        assert!(deletes(&effects).is_empty());
    }
}

#[test]
fn a_read_that_fails_says_nothing_and_is_tried_again() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    assert!(desk.answer(&effects, Err(Unread::Unclear)).is_empty());
    let effects = desk.pass(2);
    assert_eq!(looks(&effects), 1, "{effects:?}");
    assert!(accepts(&desk.answer(&effects, Ok(None))));
}

#[test]
fn a_namespace_that_may_not_be_read_is_judged_for_a_new_launch_and_waited_for_by_an_accepted_one() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    assert!(accepts(&desk.answer(&effects, Err(Unread::Forbidden))), "the POST's own answer will name the missing right");
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, true);
    assert!(desk.answer(&effects, Err(Unread::Forbidden)).is_empty(), "rights come and go: it is not lost");
    let effects = desk.pass(LOST_AFTER + 2);
    assert!(reports(&desk.answer(&effects, Err(Unread::Forbidden))).is_empty(), "still nothing is known");
}

#[test]
fn a_refusal_names_the_rule_and_is_audited() {
    let (mut desk, case) = (Desk::connected(), Case::with(|launch| launch.image = "forbidden.example/x".into()));
    let effects = desk.offer(&case, false);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((rejection(&effects).code, rejection(&effects).rule.as_str()), (RejectionCode::PolicyDenied, "images"));
    assert!(effects.iter().any(|e| matches!(e, Effect::Record(Fact::DispatchRejected { .. }))), "{effects:?}");
    assert!(!accepts(&effects));
}

#[test]
fn a_body_that_is_no_dispatch_is_refused_after_the_look() {
    let (mut desk, mut case) = (Desk::connected(), Case::new());
    case.body = b"{\"version\":1,\"surprise\":true}".to_vec();
    let effects = desk.offer(&case, false);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!(rejection(&effects).code, RejectionCode::Invalid);
}

#[test]
fn a_name_that_is_not_derived_from_the_dispatch_is_refused_unread() {
    let (mut desk, mut case) = (Desk::connected(), Case::new());
    case.instance = "lakeshore-00000000".parse().expect("a name");
    let effects = desk.offer(&case, false);
    assert_eq!((rejection(&effects).code, looks(&effects)), (RejectionCode::Invalid, 0));
}

#[test]
fn a_draining_daemon_takes_nothing_new() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    desk.handle(Event::Draining);
    let effects = desk.offer(&case, false);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((rejection(&effects).code, rejection(&effects).rule.as_str()), (RejectionCode::Unavailable, "drain"));
    assert!(desk.state.is_idle());
}

#[test]
fn without_an_audit_line_nothing_is_accepted_and_nothing_made() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    let effects = desk.handle(Event::NotAudited { instance: case.instance.clone() });
    assert_eq!((rejection(&effects).code, rejection(&effects).rule.as_str()), (RejectionCode::Unavailable, "audit"));
    assert_eq!(creates(&desk.ack_accepted(&case)), 0);
}

#[test]
fn ten_deliveries_make_one_object() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    assert!(desk.offer(&case, false).is_empty(), "the first is being looked up");
    desk.answer(&effects, Ok(None));
    assert!(accepts(&desk.offer(&case, false)), "the answer is said again");
    let mut posts = creates(&desk.ack_accepted(&case));
    for _ in 0..4 {
        posts += creates(&desk.offer(&case, false)) + creates(&desk.ack_accepted(&case));
    }
    let pod = desk.pod(&case, json!({}));
    desk.created(&case, Creation::Done(Box::new(pod)));
    for _ in 0..4 {
        posts += creates(&desk.offer(&case, true)) + creates(&desk.ack_accepted(&case));
    }
    assert_eq!(posts, 1);
}

#[test]
fn an_accepted_dispatch_that_is_offered_again_and_absent_is_lost_and_never_made() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, true);
    let early = desk.answer(&effects, Ok(None));
    assert!(reports(&early).is_empty() && creates(&early) == 0, "a POST of the process before may still take effect: {early:?}");
    let effects = desk.pass(LOST_AFTER - 1);
    assert_eq!(looks(&effects), 0);
    let effects = desk.pass(1);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).state, seen(&effects).reason, seen(&effects).exit_code), (State::Stopped, Reason::Lost, None));
    assert!(effects.iter().any(|e| matches!(e, Effect::Record(Fact::Lost { .. }))), "{effects:?}");
}

#[test]
fn a_read_that_began_too_early_does_not_prove_a_loss() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let slow = desk.offer(&case, true);
    let first = desk.answer(&slow, Ok(None));
    assert!(first.is_empty());
    // The read of the due moment fails, the next one counts.
    let effects = desk.pass(LOST_AFTER);
    assert!(reports(&desk.answer(&effects, Err(Unread::Unclear))).is_empty());
    let effects = desk.pass(2);
    assert_eq!(seen(&desk.answer(&effects, Ok(None))).reason, Reason::Lost);
}

#[test]
fn an_object_that_appears_after_its_dispatch_was_lost_is_deleted_by_uid() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, true);
    desk.answer(&effects, Ok(None));
    let effects = desk.pass(LOST_AFTER);
    let effects = desk.answer(&effects, Ok(None));
    let seq = the_report(&effects).seq;
    desk.say(ack(&case.instance, seq));
    let pod = desk.pod(&case, json!({}));
    let effects = desk.applied(&pod);
    assert_eq!(deletes(&effects), ["uid-1"]);
    assert!(reports(&effects).is_empty(), "what has stopped stays stopped");
    assert!(deletes(&desk.applied(&pod)).is_empty(), "once");
}

#[test]
fn a_definite_refusal_of_the_post_is_told_as_not_created() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let effects = desk.created(&case, Creation::Refused { code: 404, message: "namespaces \"runs\" not found".into() });
    assert_eq!(rejection(&effects).code, RejectionCode::ClusterRefused);
    assert!(rejection(&effects).message.contains("kubectl create namespace runs"), "{effects:?}");
    // Said again when the control plane did not store it, and forgotten when it did.
    let effects = desk.reconnect(vec![case.open(OpenPhase::Accepted, |_| {})]);
    assert_eq!(rejection(&effects).code, RejectionCode::ClusterRefused);
    desk.reconnect(vec![]);
    assert_eq!(looks(&desk.offer(&case, false)), 1);
}

#[test]
fn an_unclear_post_is_never_repeated() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    assert_eq!(creates(&desk.ack_accepted(&case)), 1);
    let effects = desk.created(&case, Creation::Unclear { message: "no answer".into() });
    assert_eq!((looks(&effects), creates(&effects)), (1, 0), "{effects:?}");
    assert!(desk.answer(&effects, Ok(None)).is_empty(), "it may take effect yet");
    assert_eq!(looks(&desk.pass(LOST_AFTER - 1)), 0);
    let effects = desk.pass(1);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).reason, creates(&effects)), (Reason::Lost, 0), "it may have been made, have run and be gone");
    assert!(seen(&effects).message.ends_with("the attempt to make it: no answer"), "{effects:?}");
    assert!(effects.iter().any(|e| matches!(e, Effect::Record(Fact::Lost { .. }))), "{effects:?}");
}

#[test]
fn a_daemon_without_a_session_sends_no_post_since_another_may_answer_for_its_place() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    desk.created(&case, Creation::NotSent);
    desk.disconnect();
    let effects = desk.pass(1);
    assert_eq!(creates(&desk.answer(&effects, Ok(None))), 0);
    desk.reconnect(vec![case.open(OpenPhase::Accepted, |_| {})]);
    let effects = desk.pass(20);
    assert_eq!(creates(&desk.answer(&effects, Ok(None))), 1, "the control plane still waits for it, and from this daemon");
}

#[test]
fn what_a_control_plane_has_ended_meanwhile_is_not_made_and_not_kept() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    desk.reconnect(vec![]);
    let pod = desk.pod(&case, json!({}));
    assert_eq!(deletes(&desk.created(&case, Creation::Done(Box::new(pod)))), ["uid-1"]);
}

#[test]
fn a_post_that_was_never_sent_is_tried_for_as_long_as_it_takes() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    let mut posts = creates(&desk.ack_accepted(&case));
    for _ in 0..20 {
        assert!(desk.created(&case, Creation::NotSent).is_empty());
        let effects = desk.pass(11);
        posts += creates(&desk.answer(&effects, Ok(None)));
    }
    assert_eq!(posts, 21, "the API server was down, and nothing was ever in doubt");
}

#[test]
fn an_unclear_post_that_took_effect_is_held() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let effects = desk.created(&case, Creation::Unclear { message: "no answer".into() });
    let pod = desk.pod(&case, json!({}));
    let effects = desk.answer(&effects, Ok(Some(&pod)));
    assert_eq!((seen(&effects).state, creates(&effects)), (State::Starting, 0));
}

#[test]
fn an_object_that_was_there_at_the_post_and_is_gone_at_the_read_may_have_been_ours() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let effects = desk.created(&case, Creation::Exists);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).reason, creates(&effects)), (Reason::Lost, 0));
}

#[test]
fn a_name_that_somebody_took_in_between_is_a_refusal() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let effects = desk.created(&case, Creation::Exists);
    let pod = desk.pod(&case, json!({ "metadata": { "labels": { "nymph.dev/install": "c2-00000000" } } }));
    assert_eq!(rejection(&desk.answer(&effects, Ok(Some(&pod)))).code, RejectionCode::NameTaken);
}

#[test]
fn a_webhook_that_takes_our_marks_off_is_a_refusal_and_the_object_goes() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    desk.ack_accepted(&case);
    let pod = desk.pod(&case, json!({ "metadata": { "labels": { "nymph.dev/install": null } } }));
    let effects = desk.created(&case, Creation::Done(Box::new(pod)));
    assert_eq!((rejection(&effects).code, deletes(&effects)), (RejectionCode::ClusterRefused, vec!["uid-1"]));
}

#[test]
fn more_than_memory_allows_is_refused_until_some_is_made() {
    let mut desk = Desk::connected();
    let big = Case::with(|launch| launch.script_base64 = "A".repeat(1 << 20));
    let offer = |desk: &mut Desk, n| desk.offer(&Case { body: big.body.clone(), ..Case::new() }.numbered(n), false);
    let refused = (0..100).map(|n| offer(&mut desk, n)).filter(|effects| looks(effects) == 0).collect::<Vec<_>>();
    assert!((30..50).contains(&refused.len()), "64 MiB hold some sixty of them: {}", refused.len());
    assert!(refused.iter().all(|effects| rejection(effects).code == RejectionCode::Unavailable));
}

#[test]
fn a_dispatch_for_another_place_or_enrolment_is_refused_and_audited() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let own = desk.envelope(&case, false);
    let other_node = DispatchEnvelope { placement: Placement::Node("node-2".parse().expect("a node name")), ..own.clone() };
    let whole_cluster = DispatchEnvelope { placement: Placement::Cluster, ..own.clone() };
    let other_install = DispatchEnvelope { install: "another-00000000".into(), ..own };
    for (envelope, rule) in [(other_node, "placement"), (whole_cluster, "placement"), (other_install, "install")] {
        let link = desk.link;
        let effects = desk.handle(Event::Offered { link, envelope, body: case.body.clone().into() });
        let [Effect::Record(Fact::DispatchRejected { .. }), Effect::Send(said)] = &effects[..] else { panic!("{effects:?}") };
        let ToControlPlane::Rejected { rejection, .. } = &**said else { panic!("{said:?}") };
        assert_eq!((rejection.code, rejection.rule.as_str()), (RejectionCode::Misdirected, rule));
    }
}

#[test]
fn a_dispatch_that_ended_here_is_not_done_again() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let pod = desk.running(&case);
    let gone = desk.left(Binding::Bound, &pod);
    let ended = desk.answer(&gone, Ok(None));
    desk.say(ack(&case.instance, the_report(&ended).seq));
    let again = desk.offer(&case, false);
    let [ToControlPlane::Rejected { rejection, .. }] = sent(&again)[..] else { panic!("{again:?}") };
    assert_eq!((rejection.code, rejection.rule.as_str()), (RejectionCode::Invalid, "replay"));
    assert!(!again.iter().any(|effect| matches!(effect, Effect::Look { .. } | Effect::Create { .. })), "{again:?}");
}
