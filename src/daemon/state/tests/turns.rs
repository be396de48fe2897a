//! How many are accepted before their objects exist.

use serde_json::json;

use super::*;
use crate::daemon::state::turns::MAX_PROMISED;
use crate::wire::RejectionCode;

const OFFERED: usize = 3 * MAX_PROMISED;

/// Offers them all, finds none of their objects, and says which were accepted.
fn offered(desk: &mut Desk) -> (Vec<Case>, Vec<usize>) {
    let cases: Vec<Case> = (0..OFFERED).map(|number| Case::new().numbered(number)).collect();
    let looked: Vec<_> = cases.iter().map(|case| desk.offer(case, false)).collect();
    let accepted = looked.iter().map(|effects| accepts(&desk.answer(effects, Ok(None)))).collect::<Vec<_>>();
    let accepted = accepted.into_iter().enumerate().filter_map(|(number, yes)| yes.then_some(number)).collect();
    (cases, accepted)
}

#[test]
fn a_few_are_accepted_and_the_next_when_one_of_them_is_made() {
    let mut desk = Desk::connected();
    let (cases, accepted) = offered(&mut desk);
    assert_eq!(accepted, (0..MAX_PROMISED).collect::<Vec<_>>(), "in the order of their offers");
    for made in 0..OFFERED - MAX_PROMISED {
        let effects = desk.ack_accepted(&cases[made]);
        assert!(creates(&effects) == 1 && !accepts(&effects), "it is promised until it is made: {effects:?}");
        let pod = desk.pod(&cases[made], json!({}));
        let effects = desk.created(&cases[made], Creation::Done(Box::new(pod)));
        let next = &cases[made + MAX_PROMISED].dispatch;
        let said = sent(&effects).into_iter().any(|m| matches!(m, ToControlPlane::Accepted { dispatch_id, .. } if dispatch_id == next));
        assert!(said, "{effects:?}");
    }
}

#[test]
fn what_nobody_was_promised_is_no_longer_there_in_the_next_session() {
    let mut desk = Desk::connected();
    let (cases, accepted) = offered(&mut desk);
    let open = accepted.iter().map(|number| cases[*number].open(OpenPhase::Accepted, |open| open.accepted_epoch = 1)).collect();
    let effects = desk.reconnect(open);
    assert_eq!(creates(&effects), MAX_PROMISED, "their acknowledgements got lost with the link");
    let last = cases.last().expect("there are some");
    let effects = desk.offer(last, false);
    assert_eq!(looks(&effects), 1, "it is looked up again: {effects:?}");
}

#[test]
fn a_daemon_that_ends_refuses_those_that_wait() {
    let mut desk = Desk::connected();
    offered(&mut desk);
    let effects = desk.handle(Event::Draining);
    let refused = |m: &&ToControlPlane| matches!(m, ToControlPlane::Rejected { rejection, .. } if rejection.code == RejectionCode::Unavailable);
    assert_eq!(sent(&effects).iter().filter(|m| refused(m)).count(), OFFERED - MAX_PROMISED, "{effects:?}");
}

#[test]
fn a_promise_that_is_never_acknowledged_and_a_post_in_doubt_keep_nobody_waiting() {
    let mut desk = Desk::connected();
    offered(&mut desk);
    assert!(!accepts(&desk.pass(9)));
    let effects = desk.pass(2);
    assert_eq!(sent(&effects).iter().filter(|m| matches!(m, ToControlPlane::Accepted { .. })).count(), MAX_PROMISED, "{effects:?}");

    let mut desk = Desk::connected();
    let (cases, _) = offered(&mut desk);
    desk.ack_accepted(&cases[0]);
    assert!(!accepts(&desk.created(&cases[1], Creation::NotSent)), "it was never asked for");
    assert!(accepts(&desk.created(&cases[0], Creation::Unclear { message: "the API server did not answer".into() })));
}
