//! Both machines, and what no frame may do to them.

use proptest::prelude::*;

use super::*;
use crate::types::{Attempt, DispatchId, Placement, Role};
use crate::wire::{Binary, DispatchEnvelope, HEARTBEAT_INTERVAL, Hello, LogChunk, MAX_LOG_CHUNK, ResumePoint, ToControlPlane, ToDaemon, Welcome};

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn node() -> Placement {
    Placement::Node("n1".parse().expect("a node name"))
}

fn text(message: &impl serde::Serialize) -> Frame {
    Frame::Text(crate::wire::encode_text(message).expect("it fits"))
}

fn hello(role: Role, node: Option<&str>) -> Frame {
    let facts = node.map(|name| crate::wire::NodeFacts {
        name: name.parse().expect("a node name"),
        uid: None,
        labels: [].into(),
        taints: vec![],
        allocatable: [].into(),
        conditions: vec![],
        unschedulable: false,
    });
    text(&ToControlPlane::Hello(Box::new(Hello {
        version: "0.1.0".into(),
        role,
        cluster_uid: None,
        boot_id: "b".into(),
        node: facts,
        keys: None,
        policy_digest: String::new(),
        capabilities: vec![],
        held: vec![],
    })))
}

fn welcome(heartbeat_ms: u64) -> Frame {
    let (cluster, install, session) = ("c".to_owned(), "c-0".to_owned(), "c/n1/1".to_owned());
    text(&ToDaemon::Welcome(Box::new(Welcome {
        cluster,
        install,
        session,
        epoch: 1,
        heartbeat_ms,
        lost_after_ms: 70_000,
        open: vec![],
        more: false,
    })))
}

fn dispatch() -> Frame {
    let dispatch_id = DispatchId::from_random([1; 16]);
    let instance = dispatch_id.instance_name(Attempt(1));
    let (install, placement) = ("c-0".to_owned(), node());
    let envelope = DispatchEnvelope { dispatch_id, attempt: Attempt(1), instance, install, placement, accepted_before: false };
    Frame::Binary(Binary::Dispatch(envelope, Bytes::from_static(b"{}")).encode().expect("it fits"))
}

fn chunk(length: usize) -> Frame {
    let header = LogChunk { stream: 1, offset: 0, resume: ResumePoint::default() };
    Frame::Binary(Binary::Log(header, vec![0; length].into()).encode().expect("it fits"))
}

fn ours() -> ControlPlaneSession {
    ControlPlaneSession::new(node(), HEARTBEAT_INTERVAL, s(0))
}

#[test]
fn the_daemon_hears_nothing_before_welcome() {
    for frame in [dispatch(), text(&ToDaemon::Cancel { instance: "lakeshore-00112233".parse().expect("a name") })] {
        let mut session = DaemonSession::new(s(0));
        assert!(session.heard(frame.clone(), s(1)).is_err(), "{frame:?}");
        let mut session = DaemonSession::new(s(0));
        session.heard(welcome(15_000), s(1)).expect("the first message");
        session.heard(frame.clone(), s(1)).unwrap_or_else(|error| panic!("{frame:?}: {error}"));
        assert!(session.heard(welcome(15_000), s(2)).is_err(), "welcome comes once");
    }
}

#[test]
fn what_is_open_is_listed_in_frames_before_anything_else_is_said() {
    let announced = || {
        let mut session = DaemonSession::new(s(0));
        let Frame::Text(welcome) = welcome(15_000) else { panic!("it is text") };
        session.heard(Frame::Text(welcome.replace("\"more\":false", "\"more\":true")), s(1)).expect("the first message");
        session
    };
    let open = |more| text(&ToDaemon::Open { open: vec![], more });
    let cancel = text(&ToDaemon::Cancel { instance: "lakeshore-00112233".parse().expect("a name") });
    let mut session = announced();
    session.heard(open(true), s(1)).expect("a second frame");
    session.heard(text(&ToDaemon::Heartbeat {}), s(1)).expect("a sign of life");
    session.heard(open(false), s(1)).expect("the last frame");
    session.heard(cancel.clone(), s(1)).expect("after it");
    assert!(session.heard(open(false), s(1)).is_err(), "the list was complete");
    assert!(announced().heard(cancel, s(1)).is_err(), "before it");
    let mut session = DaemonSession::new(s(0));
    session.heard(welcome(15_000), s(1)).expect("the first message");
    assert!(session.heard(open(false), s(1)).is_err(), "nothing was announced");
}

#[test]
fn a_hello_that_is_not_answered_ends_the_session_and_one_that_is_does_not() {
    let mut session = DaemonSession::new(s(0));
    assert_eq!(session.due(s(1)).expect("in time"), Due::Wait(s(15)));
    session.heard(Frame::Alive, s(14)).expect("a ping");
    assert_eq!(session.due(s(15)).expect("in time"), Due::Beat);
    assert!(matches!(session.due(WELCOME_DEADLINE), Err(Violation::NoWelcome)), "a ping is no answer");
    let mut session = DaemonSession::new(s(0));
    session.heard(welcome(1_000), s(19)).expect("in time");
    assert_eq!(session.due(s(19)).expect("open"), Due::Wait(s(20)), "at the interval that welcome names");
    assert!(matches!(session.due(s(21)), Err(Violation::Silent)));
}

#[test]
fn an_interval_out_of_reason_is_not_taken() {
    for (named, expected) in [(0, Duration::from_millis(100)), (u64::MAX, s(300))] {
        let mut session = DaemonSession::new(s(0));
        session.heard(welcome(named), s(0)).expect("the first message");
        assert_eq!(session.due(s(0)).expect("open"), Due::Wait(expected));
    }
}

#[test]
fn the_control_plane_takes_hello_first_and_once() {
    for frame in [text(&ToControlPlane::Heartbeat {}), chunk(1), Frame::Text(r#"{"type":"of_a_later_release"}"#.into())] {
        assert!(ours().heard(frame.clone(), s(1)).is_err(), "{frame:?}");
    }
    let mut session = ours();
    assert!(matches!(session.heard(hello(Role::Node, Some("n1")), s(1)), Ok(FromDaemon::Hello(_))));
    assert!(session.heard(hello(Role::Node, Some("n1")), s(2)).is_err());
    assert!(matches!(ours().due(HELLO_DEADLINE), Err(Violation::NoHello)));
}

#[test]
fn a_hello_that_contradicts_the_handshake_is_refused() {
    for frame in [hello(Role::Node, Some("n2")), hello(Role::Cluster, None), hello(Role::Cluster, Some("n1")), hello(Role::Node, None)] {
        assert!(matches!(ours().heard(frame.clone(), s(1)), Err(Violation::Unexpected(_))), "{frame:?}");
    }
    let mut whole = ControlPlaneSession::new(Placement::Cluster, HEARTBEAT_INTERVAL, s(0));
    assert!(matches!(whole.heard(hello(Role::Cluster, None), s(1)), Ok(FromDaemon::Hello(_))));
}

#[test]
fn what_a_daemon_may_not_say_is_a_violation() {
    let mut session = ours();
    session.heard(hello(Role::Node, Some("n1")), s(0)).expect("the first message");
    assert!(session.heard(dispatch(), s(1)).is_err());
    assert!(session.heard(chunk(MAX_LOG_CHUNK + 1), s(1)).is_err());
    assert!(session.heard(Frame::Text("{".into()), s(1)).is_err());
    assert!(matches!(session.heard(chunk(MAX_LOG_CHUNK), s(1)), Ok(FromDaemon::Log(..))));
    let later = Frame::Text(r#"{"type":"of_a_later_release","x":1}"#.into());
    assert_eq!(session.heard(later, s(1)).expect("passed over"), FromDaemon::Unknown("of_a_later_release".into()));
}

fn any_frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        any::<Vec<u8>>().prop_map(|bytes| Frame::Binary(bytes.into())),
        any::<String>().prop_map(Frame::Text),
        Just(Frame::Alive),
        Just(welcome(1_000)),
        Just(dispatch()),
        Just(hello(Role::Node, Some("n1"))),
        (0..MAX_LOG_CHUNK * 2).prop_map(chunk),
        Just(text(&ToControlPlane::Heartbeat {})),
        Just(text(&ToDaemon::Heartbeat {})),
    ]
}

proptest! {
    /// Whatever comes in whatever order, neither machine panics, and neither passes on anything before the session is open.
    #[test]
    fn no_frames_in_any_order_open_a_session_that_should_not_be(frames in proptest::collection::vec(any_frame(), 0..12), pause in 0u64..20) {
        let (mut daemon, mut plane) = (DaemonSession::new(s(0)), ours());
        let (mut welcomed, mut greeted) = (false, false);
        for (turn, frame) in frames.into_iter().enumerate() {
            let now = s(turn as u64 * pause);
            if let Ok(heard) = daemon.heard(frame.clone(), now) {
                welcomed |= matches!(&heard, FromControlPlane::Message(message) if matches!(**message, ToDaemon::Welcome(_)));
                prop_assert!(welcomed || matches!(heard, FromControlPlane::Nothing | FromControlPlane::Unknown(_) | FromControlPlane::Close(_)));
            }
            if let Ok(heard) = plane.heard(frame, now) {
                greeted |= matches!(heard, FromDaemon::Hello(_));
                prop_assert!(greeted || heard == FromDaemon::Nothing);
            }
            let _ = (daemon.due(now), plane.due(now));
        }
    }
}
