//! The state in which most stories begin: a launch whose Pod its daemon has made. Not in `daemon.rs` or `plane.rs`, which the ring `cli` takes in too.

use nymph::wire::DispatchEnvelope;
use serde_json::json;

use crate::daemon::Daemon;
use crate::plane::Plane;

/// Launches, and has the daemon make the Pod and report it; the caller was answered.
pub(crate) async fn launch_created(plane: &Plane, daemon: &mut Daemon) -> DispatchEnvelope {
    let launched = plane.launch(json!({"script": ""}));
    let envelope = daemon.create().await;
    launched.await.expect("it ends").expect(202);
    envelope
}

/// The same, with provider and daemon (of `node1`) before it; the enrolment token comes with them.
pub(crate) async fn launched(plane: &Plane) -> (String, Daemon, DispatchEnvelope) {
    let token = plane.with_provider().await;
    let mut daemon = Daemon::connect(plane, &token, "node1").await;
    let envelope = launch_created(plane, &mut daemon).await;
    (token, daemon, envelope)
}
