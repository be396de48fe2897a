//! The running cluster, as a person at a shell has it.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::Value;

pub(crate) use crate::shell::{Run, file_with, measured, run};

pub(crate) fn lakeshore(args: &[&str]) -> Run {
    run("lakeshore", args, None)
}

pub(crate) fn kubectl(args: &[&str]) -> Run {
    run("kubectl", args, None)
}

/// `tests/cluster/cluster` for the cluster under test.
pub(crate) fn cluster(args: &[&str]) -> Run {
    run(&format!("{}/tests/cluster/cluster", env!("CARGO_MANIFEST_DIR")), args, None)
}

/// Launches a script with the CLI, follows it, and waits until it ends.
pub(crate) fn launch(script: &str, more: &[&str]) -> Run {
    let path = file_with(script.as_bytes(), ".py");
    let mut args = vec!["launch"];
    let (flags, rest): (Vec<&str>, Vec<&str>) = match more.iter().position(|a| *a == "--") {
        Some(at) => (more[..at].to_vec(), more[at..].to_vec()),
        None => (more.to_vec(), vec![]),
    };
    args.extend(flags);
    args.extend(["demo", path.to_str().expect("a temporary path is text")]);
    args.extend(rest);
    lakeshore(&args)
}

/// Launches a script and does not follow it: the instance's id.
pub(crate) fn launch_detached(script: &str, more: &[&str]) -> String {
    let mut flags = vec!["-o", "json", "--detach"];
    flags.extend(more);
    let run = launch(script, &flags).ok();
    run.json()["instanceId"].as_str().unwrap_or_else(|| panic!("no instanceId: {}", run.text())).to_owned()
}

/// One instance as lakeshore shows it.
pub(crate) fn instance(id: &str) -> Value {
    let all = lakeshore(&["instances", "-o", "json"]).ok().json();
    let list = all.as_array().expect("a list").clone();
    list.into_iter().find(|i| i["instanceId"] == id).unwrap_or_else(|| panic!("{id} is not among {all}"))
}

/// The Pod of an instance.
pub(crate) fn pod(id: &str) -> Value {
    kubectl(&["get", "pod", "-n", "nymph-runs", id, "-o", "json"]).ok().json()
}

/// Waits until the condition holds and says how long it took.
pub(crate) fn until<T>(what: &str, condition: impl FnMut() -> Option<T>) -> (T, Duration) {
    crate::shell::until(what, story, condition)
}

/// Waits until the instance is in this state.
pub(crate) fn until_state(id: &str, state: &str) -> Value {
    until(&format!("{id} is {state}"), || Some(instance(id)).filter(|i| i["state"] == state)).0
}

/// How often the API server was asked to create this Pod, by its own audit log; refusals count too.
pub(crate) fn creates(id: &str) -> usize {
    let log = cluster(&["logs", "audit"]).ok();
    log.text()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|e| e["verb"] == "create" && e["objectRef"]["resource"] == "pods" && e["objectRef"]["subresource"].is_null())
        .filter(|e| e["objectRef"]["name"] == id || e["requestObject"]["metadata"]["name"] == id)
        .count()
}

/// What a person would look at after a failure.
fn story() -> String {
    let mut story = String::new();
    for args in [
        &["get", "nodes", "-o", "wide"][..],
        &["get", "pods", "-A", "-o", "wide"],
        &["get", "events", "-n", "nymph-system", "--sort-by=.lastTimestamp"],
        &["get", "events", "-n", "nymph-runs", "--sort-by=.lastTimestamp"],
        &["logs", "-n", "nymph-system", "daemonset/nymph", "--all-pods", "--prefix", "--tail=40"],
        &["logs", "-n", "lakeshore", "statefulset/lakeshore", "--tail=40"],
    ] {
        let run = kubectl(args);
        let _ = writeln!(story, "--- kubectl {}\n{}{}", args.join(" "), run.text(), run.stderr);
    }
    for node in ["node1", "node2"] {
        let log = cluster(&["logs", node]).text();
        let from = log.len().saturating_sub(6_000);
        let _ = writeln!(story, "--- the end of the log of {node}\n{}", log.get(log.ceil_char_boundary(from)..).unwrap_or_default());
    }
    let _ = writeln!(story, "--- lakeshore daemons\n{}", lakeshore(&["daemons"]).text());
    story
}

/// The only container's id of a Pod that matches, without its scheme, and the node it runs on.
pub(crate) fn container(namespace: &str, selector: &str, node: Option<&str>) -> (String, String) {
    let pods = kubectl(&["get", "pods", "-n", namespace, "-l", selector, "-o", "json"]).ok().json();
    let items = pods["items"].as_array().expect("a list").clone();
    let pod = items.iter().find(|p| node.is_none_or(|n| p["spec"]["nodeName"] == n)).unwrap_or_else(|| panic!("no Pod {selector} on {node:?}"));
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().expect("it was started");
    (id.rsplit('/').next().expect("an id").to_owned(), pod["spec"]["nodeName"].as_str().expect("it is bound").to_owned())
}

/// SIGKILL to a container's process, as from outside of everything that Kubernetes knows.
pub(crate) fn kill_container(namespace: &str, selector: &str, node: Option<&str>) {
    let (id, node) = container(namespace, selector, node);
    cluster(&["node", "exec", &node, "ctr", "--namespace", "k8s.io", "task", "kill", "--signal", "SIGKILL", &id]).ok();
    until("the killed container is replaced", || {
        let pods = kubectl(&["get", "pods", "-n", namespace, "-l", selector, "-o", "json"]).json();
        let items = pods["items"].as_array()?.clone();
        let pod = items.iter().find(|p| p["spec"]["nodeName"] == node.as_str())?;
        let status = &pod["status"]["containerStatuses"][0];
        (status["ready"] == true && !status["containerID"].as_str()?.ends_with(&id)).then_some(())
    });
}
