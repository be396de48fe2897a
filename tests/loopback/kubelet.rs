//! Scheduler and kubelets: they bind, run, write logs and end what exists, whoever watches.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::node_of;
use super::world::{Step, World};
use crate::types::LABEL_NODE;

impl World {
    /// One step in the life of a Pod.
    pub(super) fn kubelet(&mut self, uid: &str) {
        let Some(pod) = self.api.by_uid(uid) else { return };
        if self.api_down > self.now {
            let later = self.api_down - self.now + Duration::from_millis(100);
            return self.after(later, Step::Kubelet { uid: uid.to_owned() });
        }
        let status = pod.status.clone().unwrap_or_default();
        let container = status.container_statuses.as_ref().and_then(|all| all.first()).and_then(|one| one.state.clone()).unwrap_or_default();
        let next = if pod.metadata.deletion_timestamp.is_some() {
            self.stop(uid, container.running.is_some())
        } else if node_of(&pod).is_none() {
            let node = pod.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL_NODE)).cloned().unwrap_or_default();
            self.api.patch(uid, |value| value["spec"]["nodeName"] = json!(node));
            Some((50, 6_000))
        } else if container.running.is_none() && container.terminated.is_none() {
            self.run(uid);
            Some((20, 3_000))
        } else if container.running.is_some() {
            self.write_or_exit(uid)
        } else {
            None
        };
        if let Some((low, high)) = next {
            let delay = self.rng.delay(low, high);
            self.after(delay, Step::Kubelet { uid: uid.to_owned() });
        }
    }

    fn run(&mut self, uid: &str) {
        let started = self.cluster_time();
        if let Some(witness) = self.api.witnesses.get_mut(uid) {
            witness.executed += 1;
        }
        self.count("executions");
        self.tell(|| format!("kubelet: {uid} runs"));
        self.set_container(uid, "Running", &json!({ "running": { "startedAt": started } }));
    }

    fn write_or_exit(&mut self, uid: &str) -> Option<(u64, u64)> {
        if self.rng.chance(300) {
            let code = if self.rng.chance(700) { 0 } else { 1 + i32::try_from(self.rng.below(200)).expect("small") };
            self.exit(uid, code);
            return None;
        }
        let at = self.cluster_time();
        let lines = self.rng.below(6);
        for line in 0..lines {
            let (number, width) = (self.rng.next(), self.rng.below(60));
            let width = usize::try_from(width).expect("small");
            if let Some(witness) = self.api.witnesses.get_mut(uid) {
                witness.log.push((at, format!("{number:x} {line} {}\n", "x".repeat(width))));
            }
        }
        Some((10, 9_000))
    }

    fn exit(&mut self, uid: &str, code: i32) {
        let at = self.cluster_time();
        if let Some(witness) = self.api.witnesses.get_mut(uid) {
            witness.exited = Some(code);
        }
        self.tell(|| format!("kubelet: {uid} exits with {code}"));
        let state =
            json!({ "terminated": { "exitCode": code, "startedAt": at, "finishedAt": at, "reason": if code == 0 { "Completed" } else { "Error" } } });
        self.set_container(uid, if code == 0 { "Succeeded" } else { "Failed" }, &state);
    }

    fn stop(&mut self, uid: &str, running: bool) -> Option<(u64, u64)> {
        if running && self.rng.chance(500) {
            self.exit(uid, 143);
            return Some((50, 3_000));
        }
        self.tell(|| format!("kubelet: {uid} is removed"));
        self.api.remove(uid);
        None
    }

    fn set_container(&mut self, uid: &str, phase: &str, state: &Value) {
        self.api.patch(uid, |value| {
            value["status"]["phase"] = json!(phase);
            value["status"]["containerStatuses"] = json!([{
                "name": crate::observe::CONTAINER, "image": "i", "imageID": "i", "ready": phase == "Running", "restartCount": 0,
                "containerID": format!("containerd://{uid}"), "state": state,
            }]);
        });
    }
}
