//! Events in, effects out.

mod end;
mod nodes;
mod held;
mod offer;
mod session;
mod stream;
mod turns;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::*;
use crate::daemon::event::{Creation, Unread};
use crate::types::{Attempt, DispatchId, Observation, Placement};
use crate::watch::{Binding, Seen};
use crate::wire::{
    Ack, Caller, Dispatch, DispatchEnvelope, LaunchDispatch, OpenItem, OpenPhase, Rejection, Report, ToControlPlane, ToDaemon, Welcome, Work, Workdir,
};

pub(super) const INSTALL: &str = "c1-0a1b2c3d";
const LOST_AFTER: u64 = 70;

/// A daemon on a desk: the test plays API server, watches, control plane and clock.
pub(super) struct Desk {
    pub(super) state: DaemonState,
    pub(super) seconds: u64,
    link: u64,
    version: u64,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self::at(Placement::Node("node-1".parse().expect("a name")))
    }

    pub(super) fn at(placement: Placement) -> Self {
        let policy = Policy::parse("version: 1\nrun_namespaces: [runs, other]\nimages: [\"docker.io/library/python:*\"]\n").expect("a valid policy");
        let settings = Settings { placement, boot_id: "boot".into(), workdir_root: "/work".into() };
        let (state, first) = DaemonState::new(settings, policy);
        assert!(matches!(&first[0], Effect::Watch { namespaces } if namespaces.len() == 2), "{first:?}");
        Self { state, seconds: 0, link: 0, version: 0 }
    }

    /// Connected, welcomed and synced, with nothing open.
    pub(super) fn connected() -> Self {
        let mut desk = Self::new();
        desk.sync(&[]);
        desk.reconnect(vec![]);
        desk
    }

    pub(super) fn now(&self) -> Now {
        let wall = Timestamp::from_second(1_800_000_000 + i64::try_from(self.seconds).expect("small")).expect("in range");
        Now { wall, mono: Duration::from_secs(self.seconds) }
    }

    pub(super) fn handle(&mut self, event: Event) -> Vec<Effect> {
        let now = self.now();
        self.state.handle(event, now)
    }

    pub(super) fn say(&mut self, message: ToDaemon) -> Vec<Effect> {
        let link = self.link;
        self.handle(Event::Message { link, message: Box::new(message) })
    }

    pub(super) fn disconnect(&mut self) -> Vec<Effect> {
        let link = self.link;
        self.handle(Event::LinkDown { link })
    }

    pub(super) fn reconnect(&mut self, open: Vec<OpenItem>) -> Vec<Effect> {
        self.reconnect_as(INSTALL, open)
    }

    pub(super) fn reconnect_as(&mut self, install: &str, open: Vec<OpenItem>) -> Vec<Effect> {
        if self.link > 0 {
            self.disconnect();
        }
        self.link += 1;
        let link = self.link;
        let hello = self.handle(Event::LinkUp { link });
        assert!(sent(&hello).iter().any(|m| matches!(m, ToControlPlane::Hello(_))), "{hello:?}");
        self.welcome(link, install, open)
    }

    /// The answer to the `hello` of `link`.
    pub(super) fn welcome(&mut self, link: u64, install: &str, open: Vec<OpenItem>) -> Vec<Effect> {
        self.link = link;
        let welcome = Welcome { install: install.into(), ..self.greeting(open) };
        self.say(ToDaemon::Welcome(Box::new(welcome)))
    }

    pub(super) fn greeting(&self, open: Vec<OpenItem>) -> Welcome {
        let link = self.link;
        Welcome {
            cluster: "c1".into(),
            install: INSTALL.into(),
            session: format!("s{link}"),
            epoch: link,
            heartbeat_ms: 15_000,
            lost_after_ms: LOST_AFTER * 1000,
            open,
            more: false,
        }
    }

    /// Lets time pass, tick by tick.
    pub(super) fn pass(&mut self, seconds: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        for _ in 0..seconds {
            self.seconds += 1;
            effects.extend(self.handle(Event::Tick));
        }
        effects
    }

    /// A full list in every watch of namespace `runs` and `other`; the Pods stand in the one they belong to.
    pub(super) fn sync(&mut self, pods: &[&Pod]) -> Vec<Effect> {
        let mut effects = Vec::new();
        for namespace in ["runs", "other"] {
            for binding in [Binding::Bound, Binding::Unbound] {
                effects.extend(self.watch(namespace, binding, Seen::Relisting));
                for pod in pods {
                    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
                    if pod.metadata.namespace.as_deref() == Some(namespace) && bound == (binding == Binding::Bound) {
                        effects.extend(self.watch(namespace, binding, Seen::Listed(Box::new((*pod).clone()))));
                    }
                }
                effects.extend(self.watch(namespace, binding, Seen::Relisted));
            }
        }
        effects
    }

    pub(super) fn watch(&mut self, namespace: &str, binding: Binding, seen: Seen) -> Vec<Effect> {
        self.handle(Event::Seen { scope: Scope { namespace: namespace.parse().expect("a name"), binding }, seen })
    }

    pub(super) fn applied(&mut self, pod: &Pod) -> Vec<Effect> {
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        self.watch("runs", if bound { Binding::Bound } else { Binding::Unbound }, Seen::Applied(Box::new(pod.clone())))
    }

    pub(super) fn left(&mut self, binding: Binding, pod: &Pod) -> Vec<Effect> {
        self.watch("runs", binding, Seen::Left(Box::new(pod.clone())))
    }

    pub(super) fn envelope(&self, case: &Case, accepted_before: bool) -> DispatchEnvelope {
        DispatchEnvelope {
            dispatch_id: case.dispatch.clone(),
            attempt: Attempt(1),
            instance: case.instance.clone(),
            install: self.state.install.clone().unwrap_or_else(|| INSTALL.to_owned()),
            placement: self.state.settings.placement.clone(),
            accepted_before,
        }
    }

    pub(super) fn offer(&mut self, case: &Case, accepted_before: bool) -> Vec<Effect> {
        let link = self.link;
        let body = case.body.clone().into();
        self.handle(Event::Offered { link, envelope: self.envelope(case, accepted_before), body })
    }

    /// Answers the one read among the effects.
    pub(super) fn answer(&mut self, effects: &[Effect], found: Result<Option<&Pod>, Unread>) -> Vec<Effect> {
        let looks: Vec<(&InstanceName, u64)> =
            effects.iter().filter_map(|e| if let Effect::Look { instance, look, .. } = e { Some((instance, *look)) } else { None }).collect();
        let [(instance, look)] = looks[..] else { panic!("expected one read: {effects:?}") };
        let found = found.map(|pod| pod.map(|pod| Box::new(pod.clone())));
        self.handle(Event::Looked { instance: instance.clone(), look, found })
    }

    pub(super) fn ack_accepted(&mut self, case: &Case) -> Vec<Effect> {
        self.say(ToDaemon::AcceptedAck { dispatch_id: case.dispatch.clone(), attempt: Attempt(1) })
    }

    pub(super) fn created(&mut self, case: &Case, ended: Creation) -> Vec<Effect> {
        self.handle(Event::CreateEnded { instance: case.instance.clone(), ended })
    }

    /// Offered, admitted, acknowledged and made.
    pub(super) fn running(&mut self, case: &Case) -> Pod {
        let effects = self.offer(case, false);
        self.answer(&effects, Ok(None));
        self.ack_accepted(case);
        let pod = self.pod(case, json!({}));
        self.created(case, Creation::Done(Box::new(pod)));
        let pod = self.pod(case, running());
        self.applied(&pod);
        pod
    }

    /// The case's Pod as the API server has it now, with `more` merged over it.
    pub(super) fn pod(&mut self, case: &Case, more: Value) -> Pod {
        self.version += 1;
        let mut pod = json!({
            "metadata": {
                "name": case.instance.as_str(), "namespace": "runs", "uid": "uid-1", "resourceVersion": self.version.to_string(),
                "labels": { "nymph.dev/install": INSTALL, "nymph.dev/node": "node-1" },
                "annotations": {
                    "nymph.dev/dispatch-id": case.dispatch.as_str(), "nymph.dev/attempt": "1", "nymph.dev/requested-by": "default/ann",
                },
            },
            "spec": { "containers": [] },
            "status": { "phase": "Pending" },
        });
        merge(&mut pod, more);
        serde_json::from_value(pod).expect("a Pod")
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                if value.is_null() {
                    into.remove(&key);
                } else {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (into, from) => *into = from,
    }
}

pub(super) fn running() -> Value {
    json!({
        "spec": { "nodeName": "node-1", "containers": [] },
        "status": { "phase": "Running", "containerStatuses": [{
            "name": "user", "image": "i", "imageID": "i", "ready": true, "restartCount": 0, "containerID": "containerd://abc",
            "state": { "running": { "startedAt": "2027-01-15T08:00:00Z" } },
        }] },
    })
}

pub(super) fn finished(code: i32) -> Value {
    json!({
        "spec": { "nodeName": "node-1", "containers": [] },
        "status": { "phase": if code == 0 { "Succeeded" } else { "Failed" }, "containerStatuses": [{
            "name": "user", "image": "i", "imageID": "i", "ready": false, "restartCount": 0, "containerID": "containerd://abc",
            "state": { "terminated": { "exitCode": code, "startedAt": "2027-01-15T08:00:00Z", "finishedAt": "2027-01-15T08:00:05Z" } },
        }] },
    })
}

pub(super) fn deleting() -> Value {
    json!({ "metadata": { "deletionTimestamp": "2027-01-15T08:00:30Z", "deletionGracePeriodSeconds": 30 } })
}

/// A dispatch.
pub(super) struct Case {
    pub(super) dispatch: DispatchId,
    pub(super) instance: InstanceName,
    pub(super) body: Vec<u8>,
}

impl Case {
    pub(super) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(super) fn with(change: impl FnOnce(&mut LaunchDispatch)) -> Self {
        let mut launch = LaunchDispatch {
            namespace: None,
            image: "python:3".into(),
            script_base64: LaunchDispatch::encode_script("print('x')"),
            args: vec![],
            env: vec![],
            resources: None,
            labels: BTreeMap::new(),
            workdir: Workdir::HostPath,
        };
        change(&mut launch);
        let caller = Caller { namespace: "default".into(), provider: "p".into(), user: "ann".into() };
        let dispatch = DispatchId::from_random([9; 16]);
        let instance = dispatch.instance_name(Attempt(1));
        Self { dispatch, instance, body: Dispatch { version: 1, caller, work: Work::Launch(launch) }.encode() }
    }

    /// The same work as another dispatch.
    pub(super) fn numbered(self, number: usize) -> Self {
        let dispatch = DispatchId::from_random([u8::try_from(number).expect("small"); 16]);
        Self { instance: dispatch.instance_name(Attempt(1)), dispatch, ..self }
    }

    pub(super) fn open(&self, phase: OpenPhase, change: impl FnOnce(&mut OpenItem)) -> OpenItem {
        let mut open = OpenItem {
            dispatch_id: self.dispatch.clone(),
            attempt: Attempt(1),
            instance: self.instance.clone(),
            namespace: "runs".into(),
            phase,
            uid: None,
            seq: 0,
            cancel: false,
            accepted_ms_ago: 0,
            accepted_epoch: 0,
        };
        change(&mut open);
        open
    }
}

pub(super) fn sent(effects: &[Effect]) -> Vec<&ToControlPlane> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Send(message) | Effect::Admit { answer: message, .. } => Some(&**message),
            _ => None,
        })
        .collect()
}

pub(super) fn reports(effects: &[Effect]) -> Vec<&Report> {
    sent(effects).into_iter().filter_map(|m| if let ToControlPlane::Report(report) = m { Some(&**report) } else { None }).collect()
}

pub(super) fn the_report(effects: &[Effect]) -> &Report {
    let [report] = reports(effects)[..] else { panic!("expected one report: {effects:?}") };
    report
}

pub(super) fn seen(effects: &[Effect]) -> &Observation {
    &the_report(effects).observation
}

pub(super) fn rejection(effects: &[Effect]) -> &Rejection {
    let found = sent(effects).into_iter().find_map(|m| if let ToControlPlane::Rejected { rejection, .. } = m { Some(rejection) } else { None });
    found.unwrap_or_else(|| panic!("expected a rejection: {effects:?}"))
}

pub(super) fn accepts(effects: &[Effect]) -> bool {
    sent(effects).iter().any(|m| matches!(m, ToControlPlane::Accepted { .. }))
}

pub(super) fn creates(effects: &[Effect]) -> usize {
    effects.iter().filter(|e| matches!(e, Effect::Create { .. })).count()
}

pub(super) fn looks(effects: &[Effect]) -> usize {
    effects.iter().filter(|e| matches!(e, Effect::Look { .. })).count()
}

pub(super) fn deletes(effects: &[Effect]) -> Vec<&str> {
    effects.iter().filter_map(|e| if let Effect::Delete { uid, .. } = e { Some(uid.as_str()) } else { None }).collect()
}

pub(super) fn ack(instance: &InstanceName, seq: u64) -> ToDaemon {
    ToDaemon::Ack(Ack { instance: instance.clone(), seq })
}
