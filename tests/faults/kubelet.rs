//! What a kubelet would say of a Pod: the tests play it.

use serde_json::{Value, json};

fn status(phase: &str, ready: bool, state: &Value) -> Value {
    let container =
        json!({"name": CONTAINER, "image": "i", "imageID": "", "ready": ready, "restartCount": 0, "containerID": "containerd://x", "state": state});
    json!({"phase": phase, "containerStatuses": [container]})
}

/// **Source:** `src/render/manifest.rs`.
const CONTAINER: &str = "user";

pub(crate) fn running() -> Value {
    status("Running", true, &json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }))
}

pub(crate) fn exited(code: i32) -> Value {
    let times = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z");
    let terminated =
        json!({ "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "startedAt": times.0, "finishedAt": times.1 });
    status(if code == 0 { "Succeeded" } else { "Failed" }, false, &json!({ "terminated": terminated }))
}
