//! Nodes that are gone: what the daemon of role `cluster` is told and says of them.

use std::time::Duration;

use super::conversation::End;
use super::opening;
use super::receive::Receiver;
use crate::control_plane::placement;
use crate::control_plane::store::{Declared, GoneNode};
use crate::types::NodeName;
use crate::wire::{Loss, NodeItem, ToDaemon};

/// How often the list of nodes is read again.
pub(super) const NODES_INTERVAL: Duration = Duration::from_secs(10);
/// Nodes that one message names: an item of it is under 330 bytes, and a frame holds 1 MiB. Those with open dispatches come first.
const MAX_NODES: usize = 3000;

impl Receiver {
    /// Tells the nodes to look after, when they are not those that were told `last`.
    pub(in crate::control_plane) async fn tell_nodes(&self, last: &mut Option<Vec<NodeItem>>) -> Result<(), End> {
        let cluster = &self.session.place().cluster;
        let mut nodes = self.hub.store.nodes(cluster.clone(), self.hub.clock.wall()).await?;
        if nodes.len() > MAX_NODES {
            tracing::warn!(cluster = %cluster, nodes = nodes.len(), "More nodes than one daemon can look after; those without open dispatches wait");
            nodes.truncate(MAX_NODES);
        }
        if last.as_ref() != Some(&nodes) {
            self.say(ToDaemon::Nodes { nodes: nodes.clone() }).await;
            *last = Some(nodes);
        }
        Ok(())
    }

    pub(super) async fn node_gone(&self, node: NodeName, uid: Option<String>, why: Loss) -> Result<(), End> {
        let (hub, session) = (&self.hub, &self.session);
        let cluster = &session.place().cluster;
        let (elsewhere, _) = placement::eligible(hub.facts(cluster).iter().filter(|facts| facts.name != node));
        let gone = GoneNode { fence: session.fence().clone(), node: node.clone(), uid: uid.clone(), why, elsewhere, now: hub.clock.wall() };
        let Declared::Gone { open, moved, ended } = hub.store.declare_gone(gone).await? else {
            session.abandon();
            return Ok(());
        };
        if !(open.is_empty() && moved.is_empty() && ended.is_empty()) {
            let counts = (open.len(), moved.len(), ended.len());
            tracing::warn!(cluster = %cluster, node = %node, why = %why, open = counts.0, moved = counts.1, ended = counts.2, "A node is gone");
        }
        for dispatch_id in ended {
            hub.changes.touch(&dispatch_id);
        }
        for (dispatch_id, place) in moved {
            if let Some(other) = hub.session(&place) {
                other.offer(dispatch_id.clone());
            }
            hub.changes.touch(&dispatch_id);
        }
        for (open, more) in opening::pages(hub, session.place(), &open) {
            self.say(ToDaemon::Orphans { node: node.clone(), uid: uid.clone(), open, more }).await;
        }
        Ok(())
    }

    pub(super) async fn node_back(&self, node: NodeName, uid: Option<String>) -> Result<(), End> {
        tracing::info!(cluster = %self.session.place().cluster, node = %node, "A node that was gone is there again");
        if !self.hub.store.node_back(self.session.fence().clone(), node, uid).await? {
            self.session.abandon();
        }
        Ok(())
    }
}
