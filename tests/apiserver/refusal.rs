//! Refusals by the real API server, and a daemon that cannot reach its control plane.

use crate::covers::covers;
use crate::world::World;

#[test]
fn a_run_namespace_that_does_not_exist_is_named_with_the_cure() {
    covers!("S63", "S98", "S99", "S120");
    let world = World::new();
    world.lakeshore(&["modes", "add", "gone", "--field", "provider=p", "--field", &format!("namespace={}", world.missing)]).ok();
    world.write("s.py", "print(1)\n");
    let run = world.lakeshore(&["launch", "gone", world.path("s.py").to_str().expect("text")]);
    assert_eq!(run.code, Some(125));
    run.refused(&[&world.missing]);
    assert_eq!(world.pods(), Vec::<String>::new());
}

#[test]
fn a_misspelt_resource_is_refused_not_dropped() {
    covers!("S70");
    let world = World::new();
    world.lakeshore(&["modes", "add", "typo", "--field", "provider=p", "--field", r#"resources={"limitz":{"cpu":"1"}}"#]).ok();
    world.write("s.py", "print(1)\n");
    world.lakeshore(&["launch", "typo", world.path("s.py").to_str().expect("text")]).refused(&["limitz"]);
    assert_eq!(world.pods(), Vec::<String>::new());
}

#[test]
fn a_daemon_says_in_its_log_why_it_is_not_connected() {
    let mut world = World::without_daemon();
    world.write("wrong", "nymph_enrol_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let url = format!("ws://{}", world.url());
    let wrong = world.path("wrong");
    world.start_daemon_with(&url, &wrong);
    world.until("a wrong token is told", || world.log("daemon.log").to_lowercase().contains("token").then_some(()));
    assert!(!world.log("daemon.log").contains("nymph_enrol_"), "a log never holds a token");
    world.launch(&[]).refused(&["no daemon of cluster \"c\" is connected"]);
    let right = std::fs::read_to_string(world.path("token")).expect("the token");
    world.write("wrong", &right);
    world.until("a changed token file is tried at once", || {
        let daemons = world.lakeshore(&["daemons", "-o", "json"]).json();
        daemons.as_array()?.iter().any(|d| d["connected"] == true).then_some(())
    });
    world.kill_daemon();
    let token = world.path("token");
    world.start_daemon_with("ws://127.0.0.1:1", &token);
    world.until("an unreachable control plane is told by its address", || world.log("daemon.log").contains("127.0.0.1:1").then_some(()));
    assert_eq!(world.pods(), Vec::<String>::new());
}

#[test]
fn an_image_that_policy_does_not_allow_is_audited_and_makes_no_pod() {
    let world = World::new();
    world.launch(&["--image", "registry.example/x:1"]).refused(&["images", "registry.example/x:1"]);
    world.until("the verdict is in the audit", || {
        let log = world.log("daemon.log");
        log.lines().any(|l| l.contains(r#""target":"audit""#) && l.contains("dispatch_rejected") && l.contains("images")).then_some(())
    });
    assert_eq!(world.pods(), Vec::<String>::new());
}
