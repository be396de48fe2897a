//! Row 17: the API server itself goes down, and etcd forgets what happened meanwhile. Stops what every other test needs: runs by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::kubelet::{exited, running};
use crate::proxy::api::Verdict;
use crate::rig::Rig;
use crate::rows::{remark, rounds, shown};
use crate::world::{creates, kubectl, run};

/// Lists of one scope from the server's return to the last verdict: one, and a few that a server which is barely up refuses.
const MOST_LISTS: usize = 12;

fn cluster(args: &[&str]) {
    run(&format!("{}/tests/cluster/cluster", env!("CARGO_MANIFEST_DIR")), args, None).ok();
}

#[test]
fn an_api_server_that_comes_back_without_its_history_is_listed_anew() {
    let rig = Rig::new();
    let [kept, deleted, ended] = ["kept", "deleted", "ended"].map(|key| rig.launched_with(key));
    for id in [&kept, &deleted, &ended] {
        rig.assert_made_once(id);
        rig.bind(id);
    }
    rig.status(&ended, &running());
    rig.until_state(&ended, "running", "running");
    // From the daemon's side the server is gone; behind its back one Pod goes and another ends.
    rig.api.hook(|_| Verdict::Cut);
    rig.api.cut_streams();
    kubectl(&["delete", "pod", &deleted, "-n", &rig.runs, "--force", "--grace-period=0"]).ok();
    rig.status(&ended, &exited(9));
    cluster(&["apiserver", "stop"]);
    let down = rounds(10, 600);
    std::thread::sleep(Duration::from_secs(down as u64)); // the outage itself
    cluster(&["compact"]);
    cluster(&["apiserver", "start"]);
    assert_eq!(rig.instance(&deleted)["state"], "starting", "nothing can have been seen");
    assert_eq!(rig.probe("/healthz").map(|(status, _)| status), Some(200));
    let (lists, at) = (rig.api.count("list", "pods"), rig.api.now());
    rig.api.calm();
    rig.until_state(&deleted, "stopped", "deleted_by_other");
    let (seen, took) = rig.until_state(&ended, "stopped", "exit_code");
    assert_eq!(seen["exitCode"], 9, "{seen}");
    assert!(rig.api.count("list", "pods") > lists, "it resumed a watch whose history is gone");
    let gone = rig.api.calls().iter().filter(|call| call.at >= at && call.status == Some(410)).count();
    // Node-scoped: by our label, and by the node's name or the lack of one.
    let lists: Vec<_> = rig.api.calls().into_iter().filter(|call| call.at >= at && call.is("list", "pods")).collect();
    let mut times = BTreeMap::<String, Vec<u128>>::new();
    for list in &lists {
        assert!(list.query.contains("nymph.dev") && list.query.contains("spec.nodeName"), "{}", list.query);
        times.entry(format!("{}?{} {:?}", list.path, list.query, list.status)).or_default().push((list.at - at).as_millis());
    }
    assert!(times.values().all(|times| times.len() <= MOST_LISTS), "a busy loop of lists: {times:#?}");
    assert_eq!(rig.instance(&kept)["state"], "starting");
    assert_eq!([&kept, &deleted, &ended].map(|id| creates(id)), [1, 1, 1]);
    let after = rig.launched_with("after");
    rig.assert_made_once(&after);
    remark(17, &format!("{down} s down; told {:.1} s after; {gone} answers of 410, {} lists", took.as_secs_f64(), lists.len()));
    shown(17, "K", 1);
}
