//! Facts about the node and the cluster, read again and again: labels, taints and pressure change while the daemon lives.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::event::Event;
use crate::apply::{ApiServer, CallError};
use crate::error::Chain;
use crate::types::NodeName;
use crate::wire::{NodeFacts, Taint};

/// How often the Node is read; a watch would be a connection for each daemon. **Source:** `design.md` section 6.
const INTERVAL: Duration = Duration::from_secs(30);

/// Reads the facts until cancelled: of the node, when the daemon has one, and of the cluster. Without the rights they stay unknown, which is
/// said once.
pub(super) async fn keep_reading(api: ApiServer, name: Option<NodeName>, events: mpsc::Sender<Event>, cancel: CancellationToken) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut cluster_uid, mut said) = (None, false);
    loop {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if cluster_uid.is_none() {
            cluster_uid = api.cluster_uid().await.ok().flatten();
        }
        let node = match &name {
            None => Ok(None),
            Some(name) => api.node(name).await.map(|node| Some(Box::new(of(name.clone(), node)))),
        };
        match node {
            Ok(node) => {
                if events.send(Event::FactsRead { node, cluster_uid: cluster_uid.clone() }).await.is_err() {
                    return;
                }
            }
            Err(error @ CallError::Refused { code: 403 | 404, .. }) if !said => {
                said = true;
                info!(error = %Chain(&error), "The node's facts stay unknown; the control plane places by name only");
            }
            Err(error) => debug!(error = %Chain(&error), "Cannot read the node"),
        }
    }
}

fn of(name: NodeName, node: Node) -> NodeFacts {
    let spec = node.spec.unwrap_or_default();
    let status = node.status.unwrap_or_default();
    let taints = spec.taints.unwrap_or_default();
    NodeFacts {
        name,
        uid: node.metadata.uid,
        labels: node.metadata.labels.unwrap_or_default(),
        taints: taints.into_iter().map(|taint| Taint { key: taint.key, value: taint.value.unwrap_or_default(), effect: taint.effect }).collect(),
        allocatable: status.allocatable.unwrap_or_default().into_iter().map(|(key, quantity)| (key, quantity.0)).collect::<BTreeMap<_, _>>(),
        conditions: status.conditions.unwrap_or_default().into_iter().filter(|c| c.status == "True").map(|c| c.type_).collect(),
        unschedulable: spec.unschedulable.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conditions_that_hold_are_told() {
        let node: Node = serde_json::from_value(serde_json::json!({
            "metadata": { "uid": "u", "labels": { "zone": "a" } },
            "spec": { "unschedulable": true, "taints": [{ "key": "gpu", "effect": "NoSchedule" }] },
            "status": {
                "allocatable": { "cpu": "2", "memory": "1Gi" },
                "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DiskPressure", "status": "False" }],
            },
        }))
        .expect("a Node");
        let facts = of("n".parse().expect("a name"), node);
        assert_eq!(facts.conditions, ["Ready"]);
        assert_eq!(facts.allocatable["memory"], "1Gi");
        assert_eq!(facts.taints, [Taint { key: "gpu".into(), value: String::new(), effect: "NoSchedule".into() }]);
        assert!(facts.unschedulable);
    }
}
