//! What a launch is: the Pod, the workdir, the place, the exit code.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::covers::covers;
use crate::world::{cluster, instance, kubectl, lakeshore, launch, launch_detached, pod, until, until_state};

#[test]
fn the_pod_is_what_the_documents_say() {
    covers!("S65", "S76", "S88", "S89", "S96", "S97", "S118");
    let id = launch_detached("import time\ntime.sleep(600)\n", &["--node", "node1"]);
    until_state(&id, "running");
    let pod = pod(&id);
    let digits = id.strip_prefix("lakeshore-").expect("the prefix");
    assert!(digits.len() == 8 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{id}");
    let labels = &pod["metadata"]["labels"];
    assert_eq!([&labels["lakeshore"], &labels["lakeshore.namespace"], &labels["lakeshore.provider"]], ["true", "default", "demo"]);
    assert!(pod["metadata"]["ownerReferences"].is_null(), "a bare Pod");
    let spec = &pod["spec"];
    assert_eq!(spec["containers"].as_array().map(Vec::len), Some(1));
    let user = &spec["containers"][0];
    assert_eq!(user["name"], "user");
    assert_eq!(user["command"], json!(["/bin/sh", "-c"]));
    assert_eq!(user["args"].as_array().map(Vec::len), Some(1));
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["automountServiceAccountToken"], false);
    let volumes = spec["volumes"].as_array().expect("volumes");
    assert_eq!(volumes.len(), 1, "no token volume: {volumes:?}");
    assert_eq!(volumes[0]["hostPath"], json!({"path": format!("/var/lib/nymph/work/nymph-runs/{id}"), "type": "Directory"}));
    assert_eq!(user["volumeMounts"], json!([{"name": volumes[0]["name"], "mountPath": "/workdir"}]));
    let required = &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["nodeSelectorTerms"], json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node1"]}]}]));
    assert_eq!(spec["nodeName"], "node1");
    lakeshore(&["stop", &id]).ok();
    until_state(&id, "stopped");
}

#[test]
fn the_exit_code_of_the_script_is_the_exit_code_of_launch() {
    covers!("S81", "S103", "S115");
    for (script, code) in [("print('fine')", 0), ("raise SystemExit(7)", 7), ("raise ValueError('x')", 1), ("import os; os._exit(255)", 255)] {
        let run = launch(script, &[]);
        assert_eq!(run.code, Some(code), "{script}\n{}", run.stderr);
    }
    let killed = launch("import os, signal; os.kill(os.getpid(), signal.SIGKILL)\nimport ctypes; ctypes.string_at(0)\n", &[]);
    assert!(matches!(killed.code, Some(137 | 139)), "killed by a signal: {:?}", killed.code);
}

#[test]
fn output_is_streamed_while_the_script_runs_and_is_exact() {
    covers!("S106", "S115");
    let run = launch("import sys\nfor i in range(2000): print(i, 'x' * (i % 97))\nsys.stdout.write('no newline at the end')\n", &[]).ok();
    let expected: String = (0..2000).map(|i| format!("{i} {}\n", "x".repeat(i % 97))).chain(["no newline at the end".to_owned()]).collect();
    assert_eq!(run.text(), expected);
    let id = launch_detached("import time\nprint('first', flush=True)\ntime.sleep(600)\n", &[]);
    until("the first line is there while the script runs", || {
        let log = lakeshore(&["logs", &id]);
        (log.text() == "first\n" && instance(&id)["state"] == "running").then_some(())
    });
    lakeshore(&["stop", &id]).ok();
}

#[test]
fn an_image_that_is_not_root_writes_its_workdir() {
    let script = "import os\nassert os.getuid() == 1000\nopen('written', 'w').write('by 1000')\nprint(os.getcwd())\n";
    let run = launch(script, &["--image", "localhost/python-nonroot:1"]).ok();
    assert_eq!(run.text(), "/workdir\n");
}

#[test]
fn a_named_node_is_where_it_lands_and_where_the_file_is() {
    covers!("S118");
    let marker = "only-on-node2";
    let id = launch_detached(&format!("open('/workdir/{marker}', 'w').write('hello')\n"), &["--node", "node2"]);
    let ended = until_state(&id, "stopped");
    assert_eq!((&ended["exitCode"], &ended["node"]), (&json!(0), &json!("node2")), "{ended}");
    let path = format!("/var/lib/nymph/work/nymph-runs/{id}/{marker}");
    assert_eq!(cluster(&["node", "exec", "node2", "cat", &path]).ok().text(), "hello");
    assert_ne!(cluster(&["node", "exec", "node1", "cat", &path]).code, Some(0), "node1 has it too");
}

#[test]
fn env_arguments_and_resources_arrive() {
    covers!("S70", "S71");
    let script = "import os, sys\nprint(os.environ['GREETING'], os.environ['DOLLARS'], sys.argv[1:])\n";
    let run = launch(script, &["--env", "GREETING=a b", "--env", "DOLLARS=$(GREETING) $$ $X", "--", "one two", "$(HOSTNAME)", "it's", "--flag"]).ok();
    assert_eq!(run.text(), "a b $(GREETING) $$ $X ['one two', '$(HOSTNAME)', \"it's\", '--flag']\n");
}

#[test]
fn a_workdirs_parents_are_closed_to_all_but_root() {
    let id = launch_detached("print(1)", &["--node", "node1"]);
    until_state(&id, "stopped");
    for (path, mode) in
        [("/var/lib/nymph/work", "700"), ("/var/lib/nymph/work/nymph-runs", "700"), (&*format!("/var/lib/nymph/work/nymph-runs/{id}"), "777")]
    {
        let stat = cluster(&["node", "exec", "node1", "stat", "-c", "%a %U", path]).ok();
        assert_eq!(stat.text().trim(), format!("{mode} root"), "{path}");
    }
}

#[test]
fn finished_instances_stay_listed_with_their_outcome() {
    covers!("S94", "S111", "S134");
    let id = launch_detached("raise SystemExit(3)", &[]);
    let ended = until_state(&id, "stopped");
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("exit_code"), &json!(3)), "{ended}");
    assert_eq!(pod(&id)["status"]["phase"], "Failed");
    let table = lakeshore(&["providers", "instances", "demo"]).ok().text();
    assert!(table.lines().any(|l| l.contains(&id) && l.contains("stopped")), "{table}");
}

#[test]
fn providers_test_has_a_row_for_each_node() {
    covers!("S110");
    let before = kubectl(&["get", "pods", "-A", "-o", "name"]).ok().text();
    let run = lakeshore(&["providers", "test", "demo", "-o", "json"]).ok();
    let answer = run.json();
    let roles: Vec<&Value> = answer["daemons"].as_array().expect("daemons").iter().map(|d| &d["role"]).collect();
    assert_eq!([json!("node"), json!("cluster")].map(|role| roles.iter().filter(|r| ***r == role).count()), [2, 1], "{answer}");
    assert_eq!(kubectl(&["get", "pods", "-A", "-o", "name"]).ok().text(), before, "a test creates nothing");
}

#[test]
fn fifty_launches_at_once_are_fifty_instances_without_cross_talk() {
    covers!("S129");
    let threads: Vec<_> = (0..50).map(|i| std::thread::spawn(move || (i, launch(&format!("print('mine', {i})\n"), &[])))).collect();
    let mut names = BTreeSet::new();
    for thread in threads {
        let (i, run) = thread.join().expect("no panic");
        assert_eq!((run.code, run.text()), (Some(0), format!("mine {i}\n")), "{}", run.stderr);
        names.extend(run.stderr.split_whitespace().find(|w| w.starts_with("lakeshore-") && w.len() == 18).map(str::to_owned));
    }
    assert_eq!(names.len(), 50);
}
