//! Rows 4, 5 and 6: the daemon is killed around its POST, or the POST's answer is lost, late or another's.

use std::time::Duration;

use serde_json::json;

use crate::covers::covers;
use crate::proxy::api::Verdict as Api;
use crate::proxy::ws::{Verdict, Way};
use crate::rig::Rig;
use crate::rows::{rounds, shown};
use crate::world::{creates, kubectl, run};

#[test]
fn a_daemon_killed_before_its_word_was_heard_is_asked_again_and_makes_it_once() {
    let mut rig = Rig::new();
    let rounds = rounds(2, 20);
    for round in 0..rounds {
        let trap = rig.ws.trap(|seen| seen.is(Way::Up, "accepted"));
        let launch = rig.launching(&format!("key-{round}"));
        trap.sprung("accepted");
        rig.shoot_daemon();
        trap.release(Verdict::Cut);
        rig.next_daemon();
        let answer = launch.join().expect("the control plane runs");
        rig.assert_made_once(answer.body["instanceId"].as_str().expect("202"));
    }
    shown(4, "K", rounds);
}

#[test]
fn a_daemon_killed_after_accepted_and_before_its_post_ends_it_as_lost() {
    covers!("S65");
    let mut rig = Rig::new();
    let rounds = rounds(2, 20);
    for round in 0..rounds {
        // On the way of the control plane's permission to create, and on the way of the POST itself.
        let permission = rig.ws.trap(|seen| seen.is(Way::Down, "accepted_ack"));
        let launch = rig.launching(&format!("ack-{round}"));
        permission.sprung("accepted_ack");
        rig.shoot_daemon();
        permission.release(Verdict::Cut);
        rig.next_daemon();
        let answer = launch.join().expect("the control plane runs");
        rig.assert_lost(answer.body["instanceId"].as_str().expect("202"), 0);

        rig.until_connected();
        let post = rig.api.trap(|call| call.before("create", "pods"));
        let launch = rig.launching(&format!("post-{round}"));
        let id = post.sprung("the POST").name;
        rig.shoot_daemon();
        post.release(Api::Cut);
        rig.next_daemon();
        assert_eq!(launch.join().expect("the control plane runs").body["instanceId"], id.as_str());
        rig.assert_lost(&id, 0);
        rig.until_connected();
    }
    shown(4, "K", 2 * rounds);
}

#[test]
fn a_daemon_killed_between_post_and_report_finds_its_pod_again() {
    covers!("S65");
    let mut rig = Rig::new();
    let rounds = rounds(2, 20);
    for round in 0..rounds {
        let made = rig.api.trap(|call| call.after("create", "pods"));
        let launch = rig.launching(&format!("post-{round}"));
        let id = made.sprung("the POST's answer").name;
        rig.shoot_daemon();
        made.release(Api::Cut);
        rig.next_daemon();
        assert_eq!(launch.join().expect("the control plane runs").body["instanceId"], id.as_str());
        rig.assert_made_once(&id);
        rig.until_connected();

        let report = rig.ws.trap(|seen| seen.is(Way::Up, "report"));
        let launch = rig.launching(&format!("report-{round}"));
        report.sprung("the first report");
        rig.shoot_daemon();
        report.release(Verdict::Cut);
        rig.next_daemon();
        let answer = launch.join().expect("the control plane runs");
        rig.assert_made_once(answer.body["instanceId"].as_str().expect("202"));
        rig.until_connected();
    }
    shown(5, "K", 2 * rounds);
}

#[test]
fn a_pod_deleted_by_another_while_its_daemon_was_dead_is_lost_and_not_made_again() {
    let mut rig = Rig::new();
    let rounds = rounds(2, 20);
    for round in 0..rounds {
        let made = rig.api.trap(|call| call.after("create", "pods"));
        let launch = rig.launching(&format!("key-{round}"));
        let id = made.sprung("the POST's answer").name;
        rig.shoot_daemon();
        made.release(Api::Cut);
        kubectl(&["delete", "pod", &id, "-n", &rig.runs]).ok();
        rig.next_daemon();
        assert_eq!(launch.join().expect("the control plane runs").body["instanceId"], id.as_str());
        rig.assert_lost(&id, 1);
        rig.until_connected();
    }
    shown(5, "K", rounds);
}

#[test]
fn a_post_whose_answer_never_came_though_it_succeeded_is_a_success() {
    let rig = Rig::new();
    // Reset, late beyond the daemon's patience of 10 s, and never.
    for (key, verdict) in [("reset", Api::Cut), ("late", Api::Delay(Duration::from_secs(12))), ("never", Api::BlackHole)] {
        let made = rig.api.trap(|call| call.after("create", "pods"));
        let launch = rig.launching(key);
        let id = made.sprung("the POST's answer").name;
        made.release(verdict);
        assert_eq!(launch.join().expect("the control plane runs").body["instanceId"], id.as_str());
        rig.assert_made_once(&id);
    }
    shown(6, "K", 3);
}

#[test]
fn a_pod_that_appears_after_its_dispatch_was_given_up_is_deleted() {
    let mut rig = Rig::new();
    // The server acts on it 20 s later, when the daemon that asked is dead: long after `lost_after`, which this world has at 3 s.
    let post = rig.api.trap(|call| call.before("create", "pods"));
    let launch = rig.launching("key");
    let id = post.sprung("the POST").name;
    post.release(Api::Delay(Duration::from_secs(20)));
    rig.shoot_daemon();
    rig.next_daemon();
    assert_eq!(launch.join().expect("the control plane runs").body["instanceId"], id.as_str());
    rig.until_state(&id, "stopped", "lost");
    rig.until("the Pod appears all the same", || (creates(&id) == 1).then_some(()));
    rig.until("and is deleted", || (!rig.pods().contains(&id)).then_some(()));
    assert_eq!(rig.instance(&id)["reason"], "lost");
    for event in ["delete_intended", "delete_done"] {
        let audited = |line: &str| line.contains(&format!(r#""event":"{event}""#)) && line.contains(&id);
        rig.until(&format!("{event} is audited"), || rig.log("daemon.log").lines().any(audited).then_some(()));
    }
    shown(6, "K", 1);
}

/// A Pod of that name which is not ours.
fn plant(rig: &Rig, name: &str) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": rig.runs}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    run("kubectl", &["create", "-f", "-"], Some(&pod.to_string())).ok();
}

fn assert_untouched(rig: &Rig, name: &str) {
    let planted = kubectl(&["get", "pod", name, "-n", &rig.runs, "-o", "jsonpath={.spec.containers[0].image}"]).ok().text();
    assert_eq!(planted, "i", "another's object was touched");
}

#[test]
fn anothers_object_of_that_name_is_left_alone_and_the_next_name_is_taken() {
    let rig = Rig::new();
    let look = rig.api.trap(|call| call.before("get", "pods") && call.name.starts_with("lakeshore-"));
    let launch = rig.launching("key");
    let taken = look.sprung("the daemon's look").name;
    plant(&rig, &taken);
    look.release(Api::Pass);
    let answer = launch.join().expect("the control plane runs");
    let id = answer.body["instanceId"].as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned();
    assert_ne!(id, taken, "the name is another's");
    rig.assert_made_once(&id);
    assert_untouched(&rig, &taken);
    shown(6, "K", 1);
}

/// Once it was accepted, the dispatch's payload is gone from the store: a name that is taken in the milliseconds between the daemon's look and
/// its POST is told to the caller, who may launch again.
#[test]
fn a_name_that_is_taken_between_look_and_post_is_told_as_such() {
    let rig = Rig::new();
    let post = rig.api.trap(|call| call.before("create", "pods"));
    let launch = rig.launching("key");
    let taken = post.sprung("the POST").name;
    plant(&rig, &taken);
    post.release(Api::Pass);
    let answer = launch.join().expect("the control plane runs");
    assert_eq!((answer.status, answer.body["code"].as_str()), (409, Some("name_taken")), "{}", answer.body);
    assert_untouched(&rig, &taken);
    shown(6, "K", 1);
}
