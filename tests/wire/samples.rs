//! One frame of each kind with every field filled in, and one for each word of its closed lists. Literals name every field, so that a new
//! field does not compile until it stands here.

use std::collections::BTreeMap;

use nymph::types::{Attempt, DispatchId, InstanceName, NodeName, Observation, Placement, Reason, Role, State};
use nymph::wire::{
    Ack, Binary, Caller, CheckItem, Close, CloseCode, ClusterKeys, Dispatch, DispatchEnvelope, EnvVar, HeldItem, Hello, LaunchDispatch, LogChunk,
    LogEndReason, Loss, NodeFacts, NodeItem, OpenItem, OpenPhase, Rejection, RejectionCode, Report, ResumePoint, Taint, ToControlPlane, ToDaemon,
    Welcome, Work, Workdir,
};
use serde_json::json;

use crate::form::Read;
use crate::variants::every;

/// What is made of each frame beside the frame itself: see `corpus.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cases {
    /// Also without what may be left out.
    All,
    /// The frame alone: it is here for one word in it.
    Word,
}

pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) frame: Read,
    pub(crate) cases: Cases,
}

pub(crate) fn samples() -> Vec<Sample> {
    let whole = |name: &str, frame| Sample { name: name.to_owned(), frame, cases: Cases::All };
    let mut samples = Vec::new();
    samples.extend(up().into_iter().map(|(name, message)| whole(name, Read::ToControlPlane(message))));
    samples.extend(down().into_iter().map(|(name, message)| whole(name, Read::ToDaemon(message))));
    samples.push(whole("dispatch", Read::Binary(Binary::Dispatch(envelope(Placement::Node(node())), launch(Workdir::None).encode().into()))));
    samples.push(whole("log", Read::Binary(Binary::Log(LogChunk { stream: 7, offset: 4096, resume: resume() }, (&b"one\ntwo \xff\n"[..]).into()))));
    samples.push(whole("launch", Read::Dispatch(launch(Workdir::None))));
    samples.extend(words());
    samples
}

fn words() -> Vec<Sample> {
    let word = |kind: &str, word: String, frame| Sample { name: format!("{kind}.{word}"), frame, cases: Cases::Word };
    let mut samples = Vec::new();
    for code in every!(RejectionCode: PolicyDenied, Invalid, NameTaken, ClusterRefused, Unavailable, Misdirected) {
        samples.push(word("rejected", code.to_string(), Read::ToControlPlane(rejected(code))));
    }
    for code in every!(CloseCode: BadToken, Protocol, Displaced, Occupied, GoAway) {
        samples.push(word("close", json_word(&code), Read::ToDaemon(ToDaemon::Close(close(code)))));
    }
    for reason in every!(LogEndReason: Complete, Gone, Stopped, NotHeld) {
        let message = ToControlPlane::LogEnd { stream: 7, reason, offset: 4096 };
        samples.push(word("log_end", json_word(&reason), Read::ToControlPlane(message)));
    }
    for reason in every!(Reason:
        Queued, Accepted, Scheduling, Unschedulable, ContainerCreating, ImagePull, InvalidImage, ConfigError, Running, Completed, ExitCode,
        OutOfMemory, Evicted, NodeLost, Deadline, DeletedByRequest, DeletedByOther, DeleteRefused, Lost, Rejected, DaemonUnreachable, Other)
    {
        samples.push(word("report", reason.to_string(), Read::ToControlPlane(report(State::Unknown, reason))));
    }
    for state in every!(State: Starting, Running, Stopping, Stopped, Unknown) {
        samples.push(word("report", format!("state_{state}"), Read::ToControlPlane(report(state, Reason::Other))));
    }
    for role in every!(Role: Node, Cluster) {
        samples.push(word("hello", role.to_string(), Read::ToControlPlane(ToControlPlane::Hello(Box::new(hello(role))))));
    }
    for why in every!(Loss: Absent, Replaced, OutOfService) {
        samples.push(word("node_gone", why.to_string(), Read::ToControlPlane(node_gone(why))));
    }
    for workdir in every!(Workdir: HostPath, None) {
        samples.push(word("launch", json_word(&workdir), Read::Dispatch(launch(workdir))));
    }
    let cluster = Binary::Dispatch(envelope(Placement::Cluster), (&b"{}"[..]).into());
    samples.push(word("dispatch", "cluster".to_owned(), Read::Binary(cluster)));
    samples
}

fn json_word(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value).expect("a plain value").as_str().expect("a word").to_owned()
}

fn up() -> Vec<(&'static str, ToControlPlane)> {
    vec![
        ("hello", ToControlPlane::Hello(Box::new(hello(Role::Node)))),
        ("heartbeat", ToControlPlane::Heartbeat {}),
        ("accepted", ToControlPlane::Accepted { dispatch_id: dispatch_id(), attempt: Attempt(2), namespace: "nymph-runs".into() }),
        ("rejected", rejected(RejectionCode::PolicyDenied)),
        ("report", report(State::Stopped, Reason::ExitCode)),
        ("log_end", ToControlPlane::LogEnd { stream: 7, reason: LogEndReason::Complete, offset: 4096 }),
        ("check_result", ToControlPlane::CheckResult { request: 3, items: check_items() }),
        ("lookup_result", ToControlPlane::LookupResult { request: 4, found: true, foreign: false }),
        ("node_facts", ToControlPlane::NodeFacts(facts())),
        ("node_gone", node_gone(Loss::Absent)),
        ("node_back", ToControlPlane::NodeBack { node: node(), uid: text("u1") }),
        ("keys", ToControlPlane::Keys(keys())),
    ]
}

fn down() -> Vec<(&'static str, ToDaemon)> {
    let labels = BTreeMap::from([("lakeshore".to_owned(), "true".to_owned()), ("lakeshore.provider".to_owned(), "gpu".to_owned())]);
    vec![
        ("welcome", ToDaemon::Welcome(Box::new(welcome()))),
        ("open", ToDaemon::Open { open: vec![open_item(OpenPhase::Accepted, None)], more: true }),
        ("close", ToDaemon::Close(close(CloseCode::GoAway))),
        ("heartbeat", ToDaemon::Heartbeat {}),
        ("accepted_ack", ToDaemon::AcceptedAck { dispatch_id: dispatch_id(), attempt: Attempt(2) }),
        ("ack", ToDaemon::Ack(Ack { instance: instance(), seq: 9 })),
        ("cancel", ToDaemon::Cancel { instance: instance() }),
        ("logs_follow", ToDaemon::LogsFollow { stream: 7, instance: instance(), offset: 4096, resume: resume(), credit: 1 << 20 }),
        ("logs_credit", ToDaemon::LogsCredit { stream: 7, credit: 65_536, acked: 8192 }),
        ("logs_stop", ToDaemon::LogsStop { stream: 7 }),
        ("nodes", ToDaemon::Nodes { nodes: vec![NodeItem { node: node(), uid: text("u1"), gone: true }] }),
        ("orphans", ToDaemon::Orphans { node: node(), uid: text("u1"), open: vec![open_item(OpenPhase::Created, text("u2"))], more: true }),
        ("check", ToDaemon::Check { request: 3 }),
        ("lookup", ToDaemon::Lookup { request: 4, instance: instance(), labels, delete: true }),
    ]
}

fn dispatch_id() -> DispatchId {
    DispatchId::from_random([0x1f; 16])
}

fn instance() -> InstanceName {
    dispatch_id().instance_name(Attempt(2))
}

fn node() -> NodeName {
    "node-1.example".parse().expect("a node name")
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn hello(role: Role) -> Hello {
    Hello {
        version: "0.1.0".into(),
        role,
        cluster_uid: text("5d0c7d9e-2f7f-4d2b-8a43-6f0c6b7f1c11"),
        boot_id: "b-1".into(),
        node: (role == Role::Node).then(facts),
        keys: Some(keys()),
        policy_digest: "ab".repeat(32),
        capabilities: vec!["of_a_later_release".into()],
        held: vec![held()],
    }
}

fn held() -> HeldItem {
    HeldItem {
        dispatch_id: dispatch_id(),
        attempt: Attempt(2),
        instance: instance(),
        uid: text("7c1b55aa-2a7d-4a55-b6cb-0c1a0c53c9c1"),
        install: text("c1-0a1b2c3d"),
        namespace: text("nymph-runs"),
        caller_namespace: text("default"),
        provider: text("my-provider"),
        requested_by: text("ada@example"),
    }
}

fn keys() -> ClusterKeys {
    let jwks = json!({"keys": [{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "k1", "n": "sXch", "e": "AQAB"}]});
    ClusterKeys { issuer: "https://kubernetes.default.svc".into(), jwks }
}

fn facts() -> NodeFacts {
    NodeFacts {
        name: node(),
        uid: text("0b8f2f4e-93c5-4bd7-9a35-2c6b1e1f0a77"),
        labels: BTreeMap::from([("kubernetes.io/arch".into(), "amd64".into())]),
        taints: vec![Taint { key: "gpu".into(), value: "yes".into(), effect: "NoSchedule".into() }],
        allocatable: BTreeMap::from([("cpu".into(), "2".into()), ("memory".into(), "7Gi".into())]),
        conditions: vec!["Ready".into()],
        unschedulable: true,
    }
}

fn rejected(code: RejectionCode) -> ToControlPlane {
    let rejection = Rejection { code, rule: "images".into(), message: "no entry of `images` matches".into() };
    ToControlPlane::Rejected { dispatch_id: dispatch_id(), attempt: Attempt(2), rejection }
}

fn report(state: State, reason: Reason) -> ToControlPlane {
    let at = |text: &str| text.parse().expect("a time");
    let observation = Observation {
        state,
        reason,
        message: "the script's own words: ünïcödé \"quoted\"".into(),
        exit_code: Some(-3),
        uid: text("7c1b55aa-2a7d-4a55-b6cb-0c1a0c53c9c1"),
        node: Some(node()),
        created_at: Some(at("2026-11-30T12:00:00Z")),
        started_at: Some(at("2026-11-30T12:00:01.5Z")),
        finished_at: Some(at("2026-11-30T12:00:02.000000001Z")),
        observed_at: at("2026-11-30T12:00:03Z"),
        has_log: true,
    };
    ToControlPlane::Report(Box::new(Report { dispatch_id: dispatch_id(), attempt: Attempt(2), instance: instance(), seq: 9, epoch: 4, observation }))
}

fn check_items() -> Vec<CheckItem> {
    vec![CheckItem { name: "create pods".into(), ok: false, message: "forbidden: grant it in the chart".into() }]
}

fn close(code: CloseCode) -> Close {
    Close { code, message: "the control plane stops; dial again".into(), retry_after_ms: Some(500) }
}

fn open_item(phase: OpenPhase, uid: Option<String>) -> OpenItem {
    OpenItem {
        dispatch_id: dispatch_id(),
        attempt: Attempt(2),
        instance: instance(),
        namespace: "nymph-runs".into(),
        phase,
        uid,
        seq: 9,
        cancel: true,
        accepted_ms_ago: 1500,
        accepted_epoch: 3,
    }
}

fn node_gone(why: Loss) -> ToControlPlane {
    ToControlPlane::NodeGone { node: node(), uid: text("u1"), why }
}

fn welcome() -> Welcome {
    Welcome {
        cluster: "c1".into(),
        install: "c1-0a1b2c3d".into(),
        session: "c1/node-1.example/4".into(),
        epoch: 4,
        heartbeat_ms: 15_000,
        lost_after_ms: 60_000,
        open: every!(OpenPhase: Accepted, Created)
            .into_iter()
            .map(|phase| open_item(phase, (phase == OpenPhase::Created).then(|| "u1".into())))
            .collect(),
        more: true,
    }
}

fn resume() -> ResumePoint {
    ResumePoint { container: "containerd://c1".into(), timestamp: "2026-11-30T12:00:01.000000001Z".into(), lines: 2, partial: 3 }
}

fn envelope(placement: Placement) -> DispatchEnvelope {
    DispatchEnvelope {
        dispatch_id: dispatch_id(),
        attempt: Attempt(2),
        instance: instance(),
        install: "c1-0a1b2c3d".into(),
        placement,
        accepted_before: true,
    }
}

fn launch(workdir: Workdir) -> Dispatch {
    let env = vec![EnvVar { name: "EPOCHS".into(), value: "3".into() }, EnvVar { name: "HOME".into(), value: String::new() }];
    Dispatch {
        version: 1,
        caller: Caller { namespace: "default".into(), provider: "My Provider".into(), user: "ada@example".into() },
        work: Work::Launch(LaunchDispatch {
            namespace: text("nymph-runs"),
            image: "registry.example/python:3.12".into(),
            script_base64: LaunchDispatch::encode_script("print('naïve $HOME `id`')\n"),
            args: vec!["--rate".into(), "0.1".into(), String::new()],
            env,
            resources: Some(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": 0.5}})),
            labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
            workdir,
        }),
    }
}
