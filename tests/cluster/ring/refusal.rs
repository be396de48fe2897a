//! What cannot work is refused with a clear error where its reader looks, and makes no Pod.

use crate::covers::covers;
use crate::world::{kubectl, lakeshore, launch, run};

fn pods() -> String {
    kubectl(&["get", "pods", "-A", "-l", "lakeshore=true", "-o", "name"]).ok().text()
}

#[test]
fn what_cannot_work_is_refused_clearly_and_makes_no_pod() {
    covers!("S63", "S69", "S98", "S99", "S120");
    let before = pods();
    lakeshore(&["launch", "no-such-mode", "/dev/null"]).refused(&["no-such-mode"]);
    lakeshore(&["providers", "add", "bare", "--launcher", "Kube", "--kwarg", "dispatch=daemon", "--kwarg", "cluster=demo", "--force"]).ok();
    lakeshore(&["modes", "add", "bare", "--field", "provider=bare", "--force"]).ok();
    lakeshore(&["launch", "bare", "/dev/null"]).refused(&["image"]);
    lakeshore(&["modes", "add", "orphan", "--field", "provider=no-such-provider"]).refused(&["no-such-provider"]);
    lakeshore(&["modes", "add", "elsewhere", "--field", "provider=demo", "--field", "namespace=kube-system", "--force"]).ok();
    lakeshore(&["launch", "elsewhere", "/dev/null"]).refused(&["run_namespaces", "kube-system"]);
    launch("print(1)", &["--node", "node9"]).refused(&["node9"]);
    assert_eq!(pods(), before);
}

#[test]
fn a_wrong_token_and_an_unreachable_server_are_told_apart() {
    covers!("S98");
    let url = std::env::var("LAKESHORE_URL").expect("deploy/demo env sets it");
    let wrong = run("env", &["LAKESHORE_TOKEN=lakeshore_wrong", "lakeshore", "instances"], None);
    wrong.refused(&["token"]);
    let nobody = run("env", &["LAKESHORE_URL=http://127.0.0.1:1", "lakeshore", "instances"], None);
    nobody.refused(&["127.0.0.1:1"]);
    assert!(!wrong.stderr.contains("lakeshore_wrong") && !nobody.stderr.contains(&url));
}
