//! Looks for what is left of a node that is gone, and removes it.

use tracing::{debug, info, warn};

use super::effects::Hands;
use super::event::{Event, Found, Sweep, Swept};
use crate::apply::{CallError, DeleteOutcome, Kind};
use crate::audit::{Fact, Remnant};
use crate::error::Chain;
use crate::types::{KubeNamespace, NodeName};

pub(super) async fn read_node(hands: Hands, node: NodeName) {
    let sight = hands.api.sight_of(&node).await.map_err(|error| {
        debug!(node = %node, error = %Chain(&error), "Cannot read a node");
    });
    hands.tell(Event::NodeRead { node, sight }).await;
}

pub(super) async fn sweep(hands: Hands, sweep: Sweep) {
    let found = look(&hands, &sweep).await.map_err(|error| {
        warn!(node = %sweep.node, error = %Chain(&error), "Cannot look for what a gone node has left; trying again");
    });
    let Sweep { node, uid, .. } = sweep;
    hands.tell(Event::Swept(Box::new(Swept { node, uid, found }))).await;
}

async fn look(hands: &Hands, sweep: &Sweep) -> Result<Found, CallError> {
    let mut found = Found::default();
    for (namespace, instance) in &sweep.wanted {
        match hands.api.read_pod(namespace, instance).await {
            Ok(pod) => found.wanted.push((instance.clone(), pod)),
            Err(error) => forbidden(namespace, error)?, // nothing is known of it
        }
    }
    for namespace in &sweep.namespaces {
        match hands.api.remains(namespace, &sweep.node, &sweep.install).await {
            Ok(left) => found.left.extend(left),
            Err(error) => forbidden(namespace, error)?, // policy may name one that does not exist yet
        }
    }
    Ok(found)
}

/// Passes over a namespace without rights, which must not hold up the others.
fn forbidden(namespace: &KubeNamespace, error: CallError) -> Result<(), CallError> {
    if error.code() != Some(403) {
        return Err(error);
    }
    warn!(ns = %namespace, error = %Chain(&error), "No right to look for what a gone node has left here");
    Ok(())
}

/// Removes an object by its UID, with its two audit lines.
pub(super) async fn remove(hands: Hands, remnant: Remnant, kind: Kind, why: &'static str) {
    hands.record(Fact::RemoveIntended { remnant: remnant.clone(), why }).await;
    let force = kind == Kind::Pod; // a Job has no grace, and its Pods have their own
    let outcome = hands.api.delete(kind, &remnant.namespace, &remnant.name, &remnant.uid, force).await;
    let Remnant { namespace, name, .. } = &remnant;
    let fact = match &outcome {
        DeleteOutcome::Taken | DeleteOutcome::AlreadyGone => {
            info!(ns = %namespace, name, kind = kind.name(), why, "Removed what a gone node had left");
            Fact::RemoveDone { remnant: remnant.clone() }
        }
        DeleteOutcome::Refused { message } | DeleteOutcome::Unclear { message } => {
            warn!(ns = %namespace, name, kind = kind.name(), error = message, "Cannot remove what a gone node has left");
            Fact::RemoveFailed { remnant: remnant.clone(), message: message.clone() }
        }
    };
    hands.record(fact).await;
    hands.tell(Event::Removed { uid: remnant.uid, outcome }).await;
}
