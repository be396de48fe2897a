//! A node that is killed, and its Node object deleted.

use std::time::Duration;

use serde_json::{Value, json};

use crate::covers::covers;
use crate::world::{cluster, container, instance, kubectl, lakeshore, launch, launch_detached, measured, pod, run, until, until_state};

const CLUSTER_DAEMON: &str = "app.kubernetes.io/name=nymph,app.kubernetes.io/component=cluster";
const CONTROL_PLANE: &str = "app.kubernetes.io/name=lakeshore";
/// A node is read every 10 s, and what is on it takes a few calls more.
const NODE_LOST: Duration = Duration::from_secs(15);

/// Puts the daemon of role `cluster` beside the control plane, or gives its place back to the scheduler.
fn daemon_on(node: Option<&str>) {
    let patch = json!({"spec": {"template": {"spec": {"nodeSelector": {"kubernetes.io/hostname": node}}}}});
    kubectl(&["patch", "deployment", "nymph-cluster", "-n", "nymph-system", "-p", &patch.to_string()]).ok();
    kubectl(&["rollout", "status", "deployment/nymph-cluster", "-n", "nymph-system", "--timeout=120s"]).ok();
}

fn daemons() -> Vec<Value> {
    let answer = lakeshore(&["daemons", "-o", "json"]);
    serde_json::from_slice::<Value>(&answer.stdout).ok().and_then(|all| all.as_array().cloned()).unwrap_or_default()
}

/// A Job of the enrolment pinned to the node, as a later release will make it.
fn plant_job(install: &Value, node: &str) {
    let labels = json!({"nymph.dev/install": install, "nymph.dev/node": node, "nymph.dev/kind": "run"});
    let container = json!({"name": "step", "image": "localhost/python:1", "command": ["python3", "-c", "import time; time.sleep(600)"]});
    let spec = json!({"restartPolicy": "Never", "nodeSelector": {"kubernetes.io/hostname": node}, "containers": [container]});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "step-00000001", "namespace": "nymph-runs", "labels": labels},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": spec}}});
    run("kubectl", &["create", "-f", "-"], Some(&job.to_string())).ok();
}

/// Whether a Node is Ready.
const READY: &str = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";

/// What of the enrolment is left that carries the node's name.
fn left_of(node: &str) -> String {
    kubectl(&["get", "pods,jobs", "-n", "nymph-runs", "-l", &format!("nymph.dev/node={node}"), "-o", "name"]).ok().text()
}

/// Row 32 of the fault matrix, on a real node.
#[test]
fn a_node_that_is_killed_and_deleted_ends_its_launches_as_node_lost_and_leaves_nothing() {
    covers!("S106");
    let (_, stays) = container("lakeshore", CONTROL_PLANE, None);
    let victim = if stays == "node1" { "node2" } else { "node1" };
    daemon_on(Some(&stays));
    until("the daemon of role cluster is connected", || daemons().iter().any(|d| d["role"] == "cluster" && d["connected"] == true).then_some(()));
    assert_eq!(container("nymph-system", CLUSTER_DAEMON, None).1, stays);

    let id = launch_detached("import time\ntime.sleep(600)\n", &["--node", victim]);
    until_state(&id, "running");
    plant_job(&pod(&id)["metadata"]["labels"]["nymph.dev/install"], victim);
    until("the Job's Pod runs there", || (left_of(victim).lines().filter(|l| l.contains("step-")).count() == 2).then_some(()));
    cluster(&["node", "kill", victim]).ok();
    until("the node is seen to be not Ready", || daemons().iter().any(|d| d["node"] == victim && d["connected"] == false).then_some(()));
    assert_ne!(instance(&id)["state"], "stopped", "it may come back");

    kubectl(&["delete", "node", victim]).ok();
    let (ended, took) = until("the launch is stopped, node_lost", || Some(instance(&id)).filter(|i| i["state"] == "stopped"));
    measured("Node killed and deleted: until its launch is stopped, node_lost", NODE_LOST, took);
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("node_lost"), &Value::Null), "{ended}");
    let (_, took) = until("no Pod or Job of it is left", || left_of(victim).is_empty().then_some(()));
    measured("… and then until no Pod or Job of it is left", NODE_LOST, took);

    // The machine comes back, as another node of the same name.
    cluster(&["node", "start", victim]).ok();
    until("the node is Ready again", || kubectl(&["get", "node", victim, "-o", READY]).text().contains("True").then_some(()));
    until("its daemon is connected", || daemons().iter().any(|d| d["node"] == victim && d["connected"] == true && d["ready"] == true).then_some(()));
    until("it takes launches", || (launch("print('back')", &["--node", victim]).code == Some(0)).then_some(()));
    daemon_on(None);
}

#[test]
fn a_launch_without_a_workdir_runs_where_the_scheduler_puts_it() {
    covers!("S118");
    lakeshore(&["modes", "add", "free", "--force", "--field", "provider=demo", "--field", "workdir=none"]).ok();
    let script = crate::world::file_with(b"import os\nprint(os.path.exists('/workdir'))\n", ".py");
    let run = lakeshore(&["launch", "free", script.to_str().expect("text")]).ok();
    assert_eq!(run.text(), "False\n");
    let all = lakeshore(&["instances", "-o", "json"]).ok().json();
    let seen = all.as_array().and_then(|all| all.first()).expect("the newest").clone();
    assert_eq!((&seen["placement"], &seen["reason"]), (&json!("cluster"), &json!("completed")), "{seen}");
    let object = pod(seen["instanceId"].as_str().expect("an id"));
    assert_eq!((&object["spec"]["nodeName"], &object["metadata"]["labels"]["nymph.dev/node"]), (&seen["node"], &json!("")));
}
