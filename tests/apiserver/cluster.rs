//! Role `cluster`: its Lease, what is placed `cluster`, and nodes that are gone. The daemons have no more rights than the chart's own account.

use std::process::{Child, Command};
use std::time::Duration;

use serde_json::{Value, json};

use crate::covers::covers;
use crate::world::{World, audit, end, kubectl, measured, run, spawn};

/// The Lease's duration in these tests; in the chart it is 30 s.
const LEASE: Duration = Duration::from_secs(6);
/// A node is read every 10 s, and what is on it takes a few calls more.
const NODE_LOST: Duration = Duration::from_secs(15);

/// Daemons of role `cluster` of a world.
struct Cluster {
    world: World,
    daemons: Vec<(String, Child)>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for (_, daemon) in self.daemons.drain(..) {
            end(Some(daemon));
        }
    }
}

impl Cluster {
    /// A world with a node's daemon, and a mode `free` whose launches have no workdir.
    fn without_daemon() -> Self {
        let world = World::new();
        world.account("cluster-kubeconfig", "nymph-cluster");
        world.write("cluster-identity", &world.projected("nymph-cluster", &world.node, "lakeshore"));
        world.lakeshore(&["modes", "add", "free", "--field", "provider=p", "--field", "workdir=none"]).ok();
        Self { world, daemons: vec![] }
    }

    fn new() -> Self {
        let mut cluster = Self::without_daemon();
        cluster.start("one");
        cluster.until_connected();
        cluster
    }

    fn start(&mut self, name: &str) {
        let world = &self.world;
        let config = json!({"control_plane": {"url": format!("ws://{}", world.url()), "token_file": world.path("token"),
            "identity_token_file": world.path("cluster-identity")}, "role": "cluster",
            "policy_file": world.path("policy.yaml"), "health": {"listen": "127.0.0.1:0"}, "kubeconfig": world.path("cluster-kubeconfig"),
            "namespace": world.system, "lease": {"seconds": LEASE.as_secs()}});
        world.write(&format!("{name}.yaml"), &config.to_string());
        let mut command = Command::new(env!("CARGO_BIN_EXE_nymph"));
        command.args(["daemon", "--config"]).arg(world.path(&format!("{name}.yaml")));
        self.daemons.push((name.to_owned(), spawn(&mut command, &world.path(&format!("{name}.log")))));
    }

    fn signal(&self, name: &str, signal: &str) {
        let (_, daemon) = self.daemons.iter().find(|(other, _)| other == name).expect("it was started");
        run("kill", &[&format!("-{signal}"), &daemon.id().to_string()], None).ok();
    }

    fn until_connected(&self) {
        self.until("a daemon of role cluster is connected", || {
            let daemons = self.world.lakeshore(&["daemons", "-o", "json"]).json();
            daemons.as_array()?.iter().any(|d| d["role"] == "cluster" && d["connected"] == true).then_some(())
        });
    }

    fn until<T>(&self, what: &str, condition: impl FnMut() -> Option<T>) -> (T, Duration) {
        crate::shell::until(what, || self.story(), condition)
    }

    fn until_ended(&self, id: &str, reason: &str) -> (Value, Duration) {
        self.until(&format!("{id} is stopped, {reason}"), || {
            Some(self.world.instance(id)).filter(|i| i["state"] == "stopped" && i["reason"] == reason)
        })
    }

    fn story(&self) -> String {
        let logs = self.daemons.iter().map(|(name, _)| {
            let log = self.world.log(&format!("{name}.log"));
            let tail: Vec<&str> = log.lines().rev().take(40).collect();
            format!("--- {name}.log\n{}\n", tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
        });
        logs.collect::<String>() + &self.world.story()
    }

    /// Which of the daemons holds the Lease, by the name that it gave itself.
    fn holder(&self) -> Option<String> {
        let lease = kubectl(&["get", "lease", "nymph-cluster", "-n", &self.world.system, "-o", "jsonpath={.spec.holderIdentity}"]).text();
        let says_so = |name: &String| {
            let log = self.world.log(&format!("{name}.log"));
            log.lines().any(|line| line.contains("This daemon holds the Lease") && line.contains(&lease))
        };
        self.daemons.iter().map(|(name, _)| name.clone()).find(|name| !lease.is_empty() && says_so(name))
    }

    fn launched_free(&self) -> String {
        let script = self.world.path("script.py");
        self.world.write("script.py", "print('hello')\n");
        let run = self.world.lakeshore(&["launch", "-o", "json", "--detach", "free", script.to_str().expect("text")]).ok();
        run.json()["instanceId"].as_str().expect("an instanceId").to_owned()
    }

    fn pod(&self, id: &str) -> Value {
        kubectl(&["get", "pod", id, "-n", &self.world.runs, "-o", "json"]).ok().json()
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let names = kubectl(&["get", kind, "-n", &self.world.runs, "-o", "jsonpath={.items[*].metadata.name}"]).ok().text();
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// A launch that the scheduler bound to the world's node and whose script runs.
    fn running(&self) -> String {
        let id = self.world.launched();
        self.world.until_state(&id, "starting", "scheduling");
        self.world.bind(&id);
        self.world.status(&id, &running());
        self.world.until_state(&id, "running", "running");
        id
    }

    /// Plants a Job as a later release will make it.
    fn plant_job(&self, name: &str, install: &str, node: &str) {
        let labels = json!({"nymph.dev/install": install, "nymph.dev/node": node, "nymph.dev/kind": "run"});
        let pod = json!({"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [{"name": "step", "image": "localhost/python:1"}]}});
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": self.world.runs, "labels": labels}, "spec": {"template": pod}});
        run("kubectl", &["create", "-f", "-"], Some(&job.to_string())).ok();
    }

    fn node(&self) -> &str {
        &self.world.node
    }
}

fn running() -> Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "user", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "containerID": "containerd://c",
        "state": {"running": {"startedAt": "2026-11-30T00:00:00Z"}}}]})
}

fn completed() -> Value {
    json!({"phase": "Succeeded", "containerStatuses": [{"name": "user", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "containerID": "containerd://c",
        "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": "2026-11-30T00:00:00Z", "finishedAt": "2026-11-30T00:00:01Z"}}}]})
}

#[test]
fn a_launch_without_a_workdir_is_placed_cluster_where_a_daemon_of_that_role_is() {
    covers!("S68", "S118");
    let mut cluster = Cluster::without_daemon();
    let id = cluster.launched_free();
    assert_eq!(cluster.pod(&id)["metadata"]["labels"]["nymph.dev/node"], cluster.node(), "nobody else could take it");
    cluster.start("one");
    cluster.until_connected();
    let id = cluster.launched_free();
    let pod = cluster.pod(&id);
    assert_eq!(pod["metadata"]["labels"]["nymph.dev/node"], "");
    assert!(pod["spec"]["affinity"].is_null() && pod["spec"]["volumes"].is_null(), "{}", pod["spec"]);
    let seen = cluster.world.instance(&id);
    assert_eq!((&seen["placement"], &seen["node"]), (&json!("cluster"), &Value::Null), "{seen}");
    cluster.world.bind(&id);
    cluster.world.status(&id, &running());
    let (seen, _) = cluster.world.until_state(&id, "running", "running");
    assert_eq!(seen["node"], cluster.node(), "the node that the scheduler chose");
    let tested = cluster.world.lakeshore(&["providers", "test", "p", "-o", "json"]).json();
    let roles: Vec<&Value> = tested["daemons"].as_array().expect("a list").iter().map(|d| &d["role"]).collect();
    assert!(roles.contains(&&json!("cluster")) && roles.contains(&&json!("node")), "{tested}");
    cluster.world.lakeshore(&["stop", &id]).ok();
    cluster.until("the object is marked for deletion", || (cluster.pod(&id)["metadata"]["deletionTimestamp"].is_string()).then_some(()));
    // A workdir ties a launch to a node, and a named node does too.
    for more in [&[][..], &["--node", cluster.node()]] {
        let id = cluster.world.launch(more).ok().json()["instanceId"].as_str().expect("an id").to_owned();
        assert_eq!(cluster.pod(&id)["metadata"]["labels"]["nymph.dev/node"], cluster.node());
    }
}

#[test]
fn one_daemon_holds_the_lease_and_another_takes_over_when_it_is_killed_ended_or_stopped() {
    let mut cluster = Cluster::new();
    cluster.start("two");
    cluster.until("the second stands by", || cluster.world.log("two.log").contains("standing by").then_some(()));
    assert_eq!(cluster.holder().as_deref(), Some("one"));

    cluster.signal("one", "KILL");
    let (_, took) = cluster.until("the second took over", || (cluster.holder().as_deref() == Some("two")).then_some(()));
    measured("Lease of 6 s: until another holds it after a kill", LEASE + Duration::from_secs(1), took);
    cluster.until_connected();
    let first = cluster.daemons.remove(0).1;
    end(Some(first));

    cluster.start("three");
    cluster.until("the third stands by", || cluster.world.log("three.log").contains("standing by").then_some(()));
    cluster.signal("two", "TERM");
    let (_, took) = cluster.until("the third took over", || (cluster.holder().as_deref() == Some("three")).then_some(()));
    measured("Lease given back: until another holds it", Duration::from_secs(2), took);
    assert!(cluster.world.log("two.log").contains("The Lease is given back"));
    cluster.until_connected();

    // A process that is stopped loses it, and when it goes on it knows so before it acts.
    cluster.start("four");
    cluster.until("the fourth stands by", || cluster.world.log("four.log").contains("standing by").then_some(()));
    cluster.signal("three", "STOP");
    cluster.until("the fourth took over", || (cluster.holder().as_deref() == Some("four")).then_some(()));
    cluster.until("and is connected", || cluster.world.log("four.log").contains("Connected to the control plane").then_some(()));
    cluster.signal("three", "CONT");
    cluster.until("the third knows that it is over", || cluster.world.log("three.log").contains("no longer holds the Lease").then_some(()));
    assert_eq!(cluster.holder().as_deref(), Some("four"));
    let id = cluster.launched_free();
    assert!(cluster.world.log("four.log").contains(&id) && !cluster.world.log("three.log").contains(&id));
}

/// Row 32 of the fault matrix, with a scripted kubelet.
#[test]
fn a_node_that_is_deleted_ends_its_instances_as_node_lost_and_leaves_no_pod_or_job() {
    covers!("S106");
    let mut cluster = Cluster::new();
    let (runs, waits, finished) = (cluster.running(), cluster.world.launched(), cluster.running());
    cluster.world.status(&finished, &completed());
    cluster.world.until_state(&finished, "stopped", "completed");
    let install = cluster.pod(&runs)["metadata"]["labels"]["nymph.dev/install"].as_str().expect("a label").to_owned();
    let node = cluster.node().to_owned();
    cluster.plant_job("step-00000001", &install, &node);
    cluster.plant_job("step-00000002", "another-install", &node);
    cluster.plant_job("step-00000003", &install, "another-node");
    let uid = cluster.pod(&runs)["metadata"]["uid"].as_str().expect("a UID").to_owned();

    // Not Ready is not gone, however often it is looked at.
    cluster.world.kill_daemon();
    kubectl(&[
        "patch",
        "node",
        &node,
        "--subresource=status",
        "--type=merge",
        "-p",
        r#"{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}"#,
    ])
    .ok();
    let user = format!("system:serviceaccount:{}:nymph-cluster", cluster.world.system);
    let looks = || {
        audit(&user)
            .iter()
            .filter(|e| e["user"]["username"] == user.as_str() && e["objectRef"]["resource"] == "nodes" && e["objectRef"]["name"] == node.as_str())
            .count()
    };
    let before = looks();
    cluster.until("the node was looked at twice", || (looks() >= before + 2).then_some(()));
    assert!(cluster.world.pods().contains(&runs) && cluster.world.instance(&runs)["state"] != "stopped");

    kubectl(&["delete", "node", &node]).ok();
    let (seen, took) = cluster.until_ended(&runs, "node_lost");
    measured("Node object deleted: until its instances are stopped, node_lost", NODE_LOST, took);
    assert_eq!((&seen["exitCode"], &seen["node"]), (&Value::Null, &json!(node)), "{seen}");
    cluster.until_ended(&waits, "node_lost");
    cluster.until("no Pod is left of it", || cluster.world.pods().is_empty().then_some(()));
    cluster.until("no Job is left of it, and every other Job", || (cluster.names("jobs") == ["step-00000002", "step-00000003"]).then_some(()));
    assert_eq!(cluster.world.instance(&finished)["reason"], "completed", "what had ended has ended");
    let log = cluster.world.log("one.log");
    for event in ["node_gone", "remove_intended", "remove_done"] {
        assert!(log.lines().any(|l| l.contains(r#""target":"audit""#) && l.contains(&format!(r#""event":"{event}""#))), "{event} is audited");
    }
    assert!(log.lines().any(|l| l.contains("remove_done") && l.contains(&uid)), "by UID");
    let asked: Vec<_> = audit(&user).into_iter().filter(|e| e["user"]["username"] == user.as_str()).collect();
    let forbidden: Vec<_> =
        asked.iter().filter(|e| e["responseStatus"]["code"] == 403 && e["objectRef"]["namespace"] != cluster.world.missing.as_str()).collect();
    assert!(forbidden.is_empty(), "the chart gives what it needs: {forbidden:#?}");
}

#[test]
fn another_node_of_the_same_name_is_another_node() {
    let mut cluster = Cluster::new();
    let id = cluster.running();
    cluster.world.kill_daemon();
    kubectl(&["delete", "node", cluster.node()]).ok();
    cluster.world.make_node();
    cluster.world.write("identity", &cluster.world.projected("nymph", cluster.node(), "lakeshore")); // a new Pod on the new node has a new one
    cluster.until_ended(&id, "node_lost");
    cluster.until("no Pod is left of it", || cluster.world.pods().is_empty().then_some(()));
    cluster.world.start_daemon();
    cluster.until("the new node takes launches", || (cluster.world.launch(&[]).code == Some(0)).then_some(()));
    assert_eq!(cluster.world.pods().len(), 1, "and keeps them");
}

#[test]
fn a_node_out_of_service_gets_nothing_until_it_is_back() {
    let cluster = Cluster::new();
    let id = cluster.running();
    kubectl(&["taint", "node", cluster.node(), "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"]).ok();
    cluster.until_ended(&id, "node_lost");
    cluster.until("no Pod is left of it", || cluster.world.pods().is_empty().then_some(()));
    cluster.world.launch(&["--node", cluster.node()]).refused(&[cluster.node()]);
    kubectl(&["taint", "node", cluster.node(), "node.kubernetes.io/out-of-service-"]).ok();
    let (_, took) = cluster.until("it takes launches again", || (cluster.world.launch(&["--node", cluster.node()]).code == Some(0)).then_some(()));
    measured("Node back in service: until it takes launches", NODE_LOST, took);
}

#[test]
fn a_change_of_the_node_is_told_within_half_a_minute() {
    let world = World::new();
    let daemon = || world.lakeshore(&["daemons", "-o", "json"]).json().as_array().expect("a list")[0].clone();
    world.until("the node is known", || (daemon()["unschedulable"] == false).then_some(()));
    kubectl(&["cordon", &world.node]).ok();
    let (_, took) = world.until("the cordon shows", || (daemon()["unschedulable"] == true).then_some(()));
    measured("Node cordoned: until `lakeshore daemons` shows it", Duration::from_secs(30), took);
    world.launch(&[]).refused(&["cordoned"]);
}
