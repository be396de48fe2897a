//! Deleting: by a caller, and by somebody else.

use std::time::Duration;

use crate::covers::covers;
use crate::world::{instance, kubectl, lakeshore, launch_detached, measured, until, until_state};

const SLEEPER: &str = "import time\ntime.sleep(600)\n";

#[test]
fn a_deletion_from_outside_is_told_soon_and_named() {
    covers!("S95", "S100");
    let id = launch_detached(SLEEPER, &[]);
    until_state(&id, "running");
    kubectl(&["delete", "pod", "-n", "nymph-runs", &id, "--wait=false", "--grace-period=6"]).ok();
    let (_, took) = until("stopping is shown", || (instance(&id)["state"] == "stopping").then_some(()));
    measured("kubectl delete: until stopping is shown", Duration::from_secs(2), took);
    until("the object is gone", || (kubectl(&["get", "pod", "-n", "nymph-runs", &id]).code != Some(0)).then_some(()));
    let (ended, took) = until("stopped is shown", || Some(instance(&id)).filter(|i| i["state"] == "stopped"));
    measured("kubectl delete: until stopped after the object is gone", Duration::from_secs(2), took);
    assert_eq!(ended["reason"], "deleted_by_other", "{ended}");
}

#[test]
fn stop_deletes_the_pod_and_says_who_asked() {
    covers!("S95");
    let id = launch_detached(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(600)\n",
        &[],
    );
    until("it handles SIGTERM", || (lakeshore(&["logs", &id]).text() == "up\n").then_some(()));
    lakeshore(&["stop", &id]).ok();
    let ended = until_state(&id, "stopped");
    assert_eq!(ended["reason"], "deleted_by_request", "{ended}");
    assert_ne!(kubectl(&["get", "pod", "-n", "nymph-runs", &id]).code, Some(0));
    lakeshore(&["stop", &id]).ok(); // again is fine
}

#[test]
fn a_pod_of_somebody_else_is_not_deleted() {
    covers!("S92", "S95");
    let name = "lakeshore-00000000";
    kubectl(&["run", name, "-n", "nymph-runs", "--image=localhost/shell:1", "--restart=Never", "--", "sleep", "600"]).ok();
    let run = lakeshore(&["stop", name, "--provider", "demo"]);
    assert_ne!(run.code, Some(0));
    assert!(run.stderr.contains(name), "{}", run.stderr);
    let phase = kubectl(&["get", "pod", "-n", "nymph-runs", name, "-o", "jsonpath={.metadata.deletionTimestamp}"]).ok();
    assert_eq!(phase.text(), "", "it was deleted");
    kubectl(&["delete", "pod", "-n", "nymph-runs", name, "--grace-period=0", "--force"]).ok();
}
