//! Role `cluster`: nodes that are gone, and what is left of them.

use super::*;
use crate::apply::{DeleteOutcome, Kind, Left, NodeSight};
use crate::audit::Fact;
use crate::daemon::event::{Found, Sweep, Swept};
use crate::types::{NodeName, Reason, State};
use crate::wire::{Loss, NodeItem};

const NODE: &str = "node-1";

fn name(text: &str) -> NodeName {
    text.parse().expect("a name")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("in range")
}

fn sight(uid: &str) -> NodeSight {
    NodeSight { uid: uid.into(), created: Some(at(0)), out_of_service: false }
}

/// The cluster's daemon, connected, with one node named to it.
fn cluster() -> Desk {
    let mut desk = Desk::at(Placement::Cluster);
    desk.sync(&[]);
    desk.reconnect(vec![]);
    desk.named(&[(NODE, Some("u1"), false)]);
    desk
}

impl Desk {
    fn named(&mut self, nodes: &[(&str, Option<&str>, bool)]) {
        let nodes = nodes.iter().map(|(node, uid, gone)| NodeItem { node: name(node), uid: uid.map(str::to_owned), gone: *gone }).collect();
        self.say(ToDaemon::Nodes { nodes });
    }

    fn read(&mut self, node: &str, sight: Result<Option<NodeSight>, ()>) -> Vec<Effect> {
        self.handle(Event::NodeRead { node: name(node), sight })
    }

    /// The node is read to be gone, and this is what the control plane hands over.
    fn gone(&mut self, open: Vec<OpenItem>) -> Vec<Effect> {
        self.pass(1);
        let effects = self.read(NODE, Ok(None));
        assert_eq!(losses(&effects), [(NODE, Some("u1"), Loss::Absent)]);
        self.say(ToDaemon::Orphans { node: name(NODE), uid: Some("u1".into()), open, more: false })
    }

    fn swept(&mut self, wanted: Vec<(InstanceName, Option<Pod>)>, left: Vec<Left>) -> Vec<Effect> {
        let wanted = wanted.into_iter().map(|(instance, pod)| (instance, pod.map(Box::new))).collect();
        let found = Ok(Found { wanted, left });
        self.handle(Event::Swept(Box::new(Swept { node: name(NODE), uid: Some("u1".into()), found })))
    }

    fn removed(&mut self, uid: &str, outcome: DeleteOutcome) -> Vec<Effect> {
        self.handle(Event::Removed { uid: uid.into(), outcome })
    }
}

fn losses(effects: &[Effect]) -> Vec<(&str, Option<&str>, Loss)> {
    let said = sent(effects).into_iter();
    said.filter_map(|m| if let ToControlPlane::NodeGone { node, uid, why } = m { Some((node.as_str(), uid.as_deref(), *why)) } else { None })
        .collect()
}

fn backs(effects: &[Effect]) -> usize {
    sent(effects).iter().filter(|m| matches!(m, ToControlPlane::NodeBack { .. })).count()
}

fn reads(effects: &[Effect]) -> Vec<&str> {
    effects.iter().filter_map(|e| if let Effect::ReadNode { node } = e { Some(node.as_str()) } else { None }).collect()
}

fn sweeps(effects: &[Effect]) -> Vec<&Sweep> {
    effects.iter().filter_map(|e| if let Effect::Sweep(sweep) = e { Some(&**sweep) } else { None }).collect()
}

fn removes(effects: &[Effect]) -> Vec<(Kind, &str)> {
    effects.iter().filter_map(|e| if let Effect::Remove { remnant, kind, .. } = e { Some((*kind, remnant.uid.as_str())) } else { None }).collect()
}

fn left(kind: Kind, uid: &str, created: i64) -> Left {
    let namespace = "runs".parse().expect("a namespace");
    Left { kind, namespace, name: format!("name-of-{uid}"), uid: uid.into(), created: Some(at(created)), made_for: None }
}

#[test]
fn a_node_is_gone_by_its_object_its_uid_or_the_taint_and_never_by_not_being_ready() {
    let off = NodeSight { out_of_service: true, ..sight("u1") };
    let table = [
        (Ok(None), Some(Loss::Absent)),
        (Ok(Some(sight("u2"))), Some(Loss::Replaced)),
        (Ok(Some(off)), Some(Loss::OutOfService)),
        (Ok(Some(sight("u1"))), None), // Ready or not is not even looked at
        (Err(()), None),               // nothing is known: nothing is said
    ];
    for (read, expected) in table {
        let mut desk = cluster();
        assert_eq!(reads(&desk.pass(1)), [NODE]);
        let effects = desk.read(NODE, read.clone());
        let said: Vec<Loss> = losses(&effects).into_iter().map(|(_, _, why)| why).collect();
        assert_eq!(said, expected.into_iter().collect::<Vec<_>>(), "{read:?}");
        let audited = effects.iter().filter(|e| matches!(e, Effect::Record(Fact::NodeGone { .. }))).count();
        assert_eq!(audited, usize::from(expected.is_some()), "{read:?}");
        assert_eq!((sweeps(&effects).len(), removes(&effects).len()), (0, 0), "nothing is touched before the control plane has handed it over");
    }
}

#[test]
fn each_node_is_read_every_ten_seconds_and_a_hundred_of_them_as_often() {
    let mut desk = cluster();
    let names: Vec<String> = (0..100).map(|number| format!("n{number:03}")).collect();
    desk.named(&names.iter().map(|node| (node.as_str(), None, false)).collect::<Vec<_>>());
    let mut counts = BTreeMap::<String, usize>::new();
    for half in 0..40 {
        desk.seconds = half / 2;
        let effects = desk.handle(Event::Tick);
        for node in reads(&effects).into_iter().map(str::to_owned).collect::<Vec<_>>() {
            *counts.entry(node.clone()).or_default() += 1;
            desk.read(&node, Ok(Some(sight("u"))));
        }
    }
    assert_eq!(counts.len(), 100);
    assert!(counts.values().all(|count| *count == 2), "twice within 20 s: {counts:?}");
}

#[test]
fn an_instance_on_a_gone_node_is_removed_without_grace_and_then_told_as_node_lost() {
    let (mut desk, case) = (cluster(), Case::new());
    let effects = desk.gone(vec![case.open(OpenPhase::Created, |open| open.seq = 4)]);
    let [sweep] = sweeps(&effects)[..] else { panic!("one sweep: {effects:?}") };
    assert_eq!((sweep.wanted.len(), sweep.namespaces.len(), sweep.install.as_str()), (1, 2, INSTALL));
    let pod = desk.pod(&case, running());
    let effects = desk.swept(vec![(case.instance.clone(), Some(pod))], vec![left(Kind::Pod, "uid-1", 0), left(Kind::Job, "job-1", 0)]);
    assert_eq!(removes(&effects), [(Kind::Pod, "uid-1"), (Kind::Job, "job-1")], "each once");
    assert!(reports(&effects).is_empty(), "first the object, then the word");
    assert!(reports(&desk.removed("job-1", DeleteOutcome::Taken)).is_empty());
    let effects = desk.removed("uid-1", DeleteOutcome::Taken);
    let report = the_report(&effects);
    assert_eq!((report.seq, report.observation.state, report.observation.reason), (5, State::Stopped, Reason::NodeLost));
    assert_eq!((report.observation.exit_code, report.observation.started_at.is_some()), (None, true), "what was known is kept");
    // Told again after a reconnect until it is acknowledged, and never done twice.
    let effects = desk.reconnect(vec![]);
    assert_eq!(the_report(&effects).seq, 5);
    desk.say(ack(&case.instance, 5));
    assert_eq!(desk.state.outbox.pending(), 0);
}

#[test]
fn what_is_absent_is_told_at_once_and_what_cannot_be_removed_is_tried_again() {
    let (mut desk, case) = (cluster(), Case::new());
    desk.gone(vec![case.open(OpenPhase::Accepted, |_| {})]);
    assert_eq!(seen(&desk.swept(vec![(case.instance.clone(), None)], vec![])).reason, Reason::NodeLost);

    let mut desk = cluster();
    desk.gone(vec![case.open(OpenPhase::Created, |_| {})]);
    let pod = desk.pod(&case, running());
    desk.swept(vec![(case.instance.clone(), Some(pod.clone()))], vec![]);
    assert!(reports(&desk.removed("uid-1", DeleteOutcome::Unclear { message: "no answer".into() })).is_empty(), "it may run on");
    desk.pass(10);
    assert_eq!(sweeps(&desk.read(NODE, Ok(None))).len(), 1);
    assert_eq!(removes(&desk.swept(vec![(case.instance.clone(), Some(pod))], vec![])), [(Kind::Pod, "uid-1")]);
}

#[test]
fn an_end_that_the_node_had_told_itself_is_kept() {
    let table = [
        (finished(3), Reason::ExitCode, Some(3)),
        (finished(0), Reason::Completed, Some(0)),
        (deleting(), Reason::NodeLost, None),
        (running(), Reason::NodeLost, None),
    ];
    for (status, reason, code) in table {
        let (mut desk, case) = (cluster(), Case::new());
        desk.gone(vec![case.open(OpenPhase::Created, |_| {})]);
        let pod = desk.pod(&case, status);
        desk.swept(vec![(case.instance.clone(), Some(pod))], vec![]);
        let effects = desk.removed("uid-1", DeleteOutcome::Taken);
        assert_eq!((seen(&effects).reason, seen(&effects).exit_code), (reason, code));
    }
}

#[test]
fn anothers_object_of_the_name_is_left_alone() {
    let (mut desk, case) = (cluster(), Case::new());
    desk.gone(vec![case.open(OpenPhase::Accepted, |_| {})]);
    let pod = desk.pod(&case, json!({ "metadata": { "labels": { "nymph.dev/install": "another" } } }));
    let effects = desk.swept(vec![(case.instance.clone(), Some(pod))], vec![]);
    assert_eq!((removes(&effects), seen(&effects).reason), (vec![], Reason::NodeLost));
    let elsewhere = desk.pod(&case, json!({ "spec": { "nodeName": "node-2" } }));
    let mut desk = cluster();
    desk.gone(vec![case.open(OpenPhase::Created, |_| {})]);
    let effects = desk.swept(vec![(case.instance.clone(), Some(elsewhere))], vec![]);
    assert!(removes(&effects).is_empty() && reports(&effects).is_empty(), "it runs on a node that is there: {effects:?}");
}

#[test]
fn a_node_that_took_over_the_name_keeps_what_is_younger_than_itself() {
    let mut desk = cluster();
    desk.pass(1);
    let effects = desk.read(NODE, Ok(Some(NodeSight { created: Some(at(100)), ..sight("u2") })));
    assert_eq!(losses(&effects), [(NODE, Some("u1"), Loss::Replaced)]);
    desk.say(ToDaemon::Orphans { node: name(NODE), uid: Some("u1".into()), open: vec![], more: false });
    let effects = desk.swept(vec![], vec![left(Kind::Pod, "old", 99), left(Kind::Pod, "new", 100), left(Kind::Job, "newer", 101)]);
    assert_eq!(removes(&effects), [(Kind::Pod, "old")]);
}

#[test]
fn a_gone_node_is_swept_again_for_objects_that_come_late_and_a_node_that_is_back_is_let_be() {
    let mut desk = cluster();
    desk.gone(vec![]);
    desk.swept(vec![], vec![]);
    let mut again = 0;
    for _ in 0..6 {
        desk.pass(10);
        again += sweeps(&desk.read(NODE, Ok(None))).len();
    }
    assert_eq!(again, 1, "once a minute while nothing is found");
    assert_eq!(removes(&desk.swept(vec![], vec![left(Kind::Pod, "late", 500)])), [(Kind::Pod, "late")]);
    desk.named(&[(NODE, Some("u1"), true)]);
    desk.pass(10);
    let effects = desk.read(NODE, Ok(Some(sight("u1"))));
    assert_eq!((backs(&effects), sweeps(&effects).len()), (1, 0));
    desk.pass(10);
    assert_eq!(backs(&desk.read(NODE, Ok(Some(sight("u1"))))), 0, "told once");
}

#[test]
fn the_next_holder_of_the_lease_begins_anew_and_without_a_session_nothing_is_done() {
    let (mut desk, case) = (cluster(), Case::new());
    desk.gone(vec![case.open(OpenPhase::Created, |_| {})]);
    desk.disconnect();
    assert_eq!(reads(&desk.pass(20)), Vec::<&str>::new());
    desk.reconnect(vec![]);
    desk.named(&[(NODE, Some("u1"), true)]);
    assert_eq!(reads(&desk.pass(1)), [NODE]);
    assert_eq!(losses(&desk.read(NODE, Ok(None))), [(NODE, Some("u1"), Loss::Absent)], "in each session anew");
    desk.swept(vec![(case.instance.clone(), None)], vec![]); // what was under way
    let effects = desk.say(ToDaemon::Orphans { node: name(NODE), uid: Some("u1".into()), open: vec![], more: false });
    assert!(reports(&effects).is_empty(), "another had ended it: {effects:?}");
    assert_eq!(desk.state.outbox.pending(), 0);
}

#[test]
fn an_own_instance_ends_with_the_node_that_the_scheduler_chose() {
    let (mut desk, case) = (cluster(), Case::with(|launch| launch.workdir = Workdir::None));
    let effects = desk.offer(&case, false);
    desk.answer(&effects, Ok(None));
    let effects = desk.ack_accepted(&case);
    assert_eq!(creates(&effects), 1, "placed `cluster`: {effects:?}");
    let pod = desk.pod(&case, json!({}));
    desk.created(&case, Creation::Done(Box::new(pod)));
    let mut bound = running();
    merge(&mut bound, json!({ "spec": { "nodeName": "node-9" } }));
    let pod = desk.pod(&case, bound);
    assert_eq!(seen(&desk.applied(&pod)).node, Some(name("node-9")), "the node is told");
    assert!(reads(&desk.pass(1)).contains(&"node-9"), "nobody named it");
    assert!(deletes(&desk.read("node-9", Ok(Some(sight("u9"))))).is_empty());
    desk.pass(10);
    let effects = desk.read("node-9", Ok(None));
    assert!(losses(&effects).is_empty(), "the control plane holds nothing of that place");
    assert!(effects.iter().any(|e| matches!(e, Effect::Delete { uid, force: true, .. } if uid == "uid-1")), "{effects:?}");
    desk.handle(Event::DeleteEnded { instance: case.instance.clone(), uid: "uid-1".into(), outcome: DeleteOutcome::Taken });
    let effects = desk.left(Binding::Bound, &pod);
    let effects = desk.answer(&effects, Ok(None));
    assert_eq!((seen(&effects).state, seen(&effects).reason), (State::Stopped, Reason::NodeLost));
}
