//! What `hello` lists, for a control plane that came back from an older copy.

use serde_json::json;

use super::*;
use crate::wire::{self, HeldItem};

fn hello(desk: &mut Desk, link: u64) -> Vec<HeldItem> {
    let effects = desk.handle(Event::LinkUp { link });
    let [message @ ToControlPlane::Hello(hello)] = sent(&effects)[..] else { panic!("{effects:?}") };
    wire::encode_text(message).expect("it fits a frame");
    hello.held.clone()
}

fn numbered(number: u16) -> Case {
    let mut random = [0; 16];
    random[..2].copy_from_slice(&number.to_be_bytes());
    let dispatch = DispatchId::from_random(random);
    Case { instance: dispatch.instance_name(Attempt(1)), dispatch, body: vec![] }
}

fn labels() -> serde_json::Value {
    json!({ "metadata": { "labels": { "lakeshore.namespace": "default", "lakeshore.provider": "p" } } })
}

#[test]
fn an_object_is_listed_with_all_that_a_row_needs() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let mut more = running();
    merge(&mut more, labels());
    let pod = desk.pod(&case, more);
    desk.sync(&[&pod]);
    let expected = HeldItem {
        dispatch_id: case.dispatch.clone(),
        attempt: Attempt(1),
        instance: case.instance.clone(),
        uid: Some("uid-1".into()),
        install: Some(INSTALL.into()),
        namespace: Some("runs".into()),
        caller_namespace: Some("default".into()),
        provider: Some("p".into()),
        requested_by: Some("default/ann".into()),
    };
    assert_eq!(hello(&mut desk, 1), [expected]);
}

#[test]
fn an_object_whose_post_is_under_way_is_listed_without_a_uid() {
    let (mut desk, case) = (Desk::connected(), Case::new());
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    assert!(hello(&mut desk, 2).is_empty(), "nothing is promised before the acknowledgement");
    let said_in = desk.link;
    desk.welcome(2, INSTALL, vec![case.open(OpenPhase::Accepted, |open| open.accepted_epoch = said_in)]);
    let [item] = &hello(&mut desk, 3)[..] else { panic!("one object") };
    assert_eq!((&item.instance, &item.uid), (&case.instance, &None));
    let names = (item.caller_namespace.as_deref(), item.provider.as_deref(), item.namespace.as_deref(), item.install.as_deref());
    assert_eq!(names, (Some("default"), Some("p"), Some("runs"), Some(INSTALL)));
}

#[test]
fn what_has_not_ended_comes_first_and_the_list_fits_a_frame() {
    let mut desk = Desk::new();
    let long = json!({ "metadata": { "labels": { "lakeshore.namespace": "n".repeat(63), "lakeshore.provider": "p".repeat(63) } } });
    let mut pods: Vec<Pod> = (0..4000)
        .map(|number| {
            let mut more = finished(0);
            merge(&mut more, long.clone());
            desk.pod(&numbered(number), more)
        })
        .collect();
    let alive = numbered(4000);
    pods.push(desk.pod(&alive, running()));
    desk.sync(&pods.iter().collect::<Vec<_>>());
    let held = hello(&mut desk, 1);
    assert_eq!(held[0].instance, alive.instance);
    assert!((1000..4000).contains(&held.len()), "{}", held.len());
}

#[test]
fn an_object_that_is_found_after_hello_is_listed_by_another_one() {
    let redials = |effects: &[Effect]| effects.iter().filter(|effect| matches!(effect, Effect::Redial { .. })).count();
    for welcome_first in [true, false] {
        let (mut desk, case) = (Desk::new(), Case::new());
        let pod = desk.pod(&case, running());
        assert!(hello(&mut desk, 1).is_empty());
        let effects = if welcome_first {
            desk.welcome(1, INSTALL, vec![]);
            desk.sync(&[&pod])
        } else {
            desk.sync(&[&pod]);
            desk.welcome(1, INSTALL, vec![])
        };
        assert_eq!(redials(&effects), 1, "welcome first: {welcome_first}");
        assert_eq!(hello(&mut desk, 2).len(), 1);
        assert_eq!(redials(&desk.welcome(2, INSTALL, vec![])), 0, "once is enough");
        assert_eq!(redials(&desk.sync(&[&pod])), 0);
    }
}

#[test]
fn an_object_that_the_control_plane_knows_needs_no_other_hello() {
    let (mut desk, case) = (Desk::new(), Case::new());
    let pod = desk.pod(&case, running());
    desk.reconnect(vec![case.open(OpenPhase::Created, |_| {})]);
    let effects = desk.sync(&[&pod]);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Redial { .. })), "{effects:?}");
}
