//! Real projected tokens, and the real keys of the API server that signs them.

use std::fs;

use serde_json::Value;

use crate::world::{World, kubectl};

fn row(world: &World) -> Value {
    let daemons = world.lakeshore(&["daemons", "-o", "json"]).ok().json();
    daemons.as_array().expect("a list").iter().find(|daemon| daemon["node"] == world.node.as_str()).expect("it is listed").clone()
}

#[test]
fn a_projected_token_proves_the_daemon_and_the_clusters_keys_are_recorded() {
    let world = World::new();
    let row = row(&world);
    assert_eq!(row["identity"], format!("service account {}/nymph", world.system));
    let uid = kubectl(&["get", "node", &world.node, "-o", "jsonpath={.metadata.uid}"]).ok().text();
    assert_eq!(row["nodeUid"], uid.as_str());
    let clusters = world.lakeshore(&["clusters", "list", "-o", "json"]).ok().json();
    let keys = &clusters[0]["keys"];
    let kube_system = kubectl(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"]).ok().text();
    assert_eq!(keys["clusterUid"], kube_system.as_str(), "{keys}");
    assert_eq!(keys["accounts"]["node"], format!("{}/nymph", world.system));
    assert!(!keys["names"].as_array().expect("a list").is_empty());
    let table = world.lakeshore(&["clusters", "list"]).ok().text();
    assert!(table.contains("recorded") && table.contains("LAST USED"), "{table}");
}

#[test]
fn proofs_of_another_node_account_or_audience_are_refused_and_the_rightful_daemon_goes_on() {
    let mut world = World::new();
    let other = format!("other-{}", world.node);
    let stolen = world.projected("nymph", &other, "lakeshore");
    kubectl(&["create", "serviceaccount", "thief", "-n", &world.system]).ok();
    let rightful = world.take_daemon();
    let before = row(&world)["epoch"].clone();
    for (token, why) in [
        (stolen, "bound to the node"),
        (world.projected("thief", &world.node, "lakeshore"), "/thief"),
        (world.projected("nymph", &world.node, "https://kubernetes.default.svc"), "audience"),
    ] {
        world.write("identity", &token);
        world.start_daemon();
        world.until("it is refused and audited", || {
            let lines: Vec<String> = world.log("server.log").lines().filter(|line| line.contains("connection_refused")).map(str::to_owned).collect();
            lines.iter().any(|line| line.contains(why)).then_some(())
        });
        world.until("the daemon says so", || world.log("daemon.log").contains("identity not accepted").then_some(()));
        world.kill_daemon();
        assert!(!world.log("server.log").contains(token.trim()) && !world.log("daemon.log").contains(token.trim()), "no token is ever logged");
    }
    let row = row(&world);
    assert_eq!((row["connected"].as_bool(), &row["epoch"]), (Some(true), &before), "the rightful session goes on");
    world.launched();
    let mut rightful = rightful;
    let _ = rightful.kill();
    let _ = rightful.wait();
}

#[test]
fn without_a_proof_a_daemon_works_and_is_loudly_unproven() {
    let mut world = World::without_daemon();
    fs::remove_file(world.path("identity")).expect("it is there");
    world.start_daemon();
    world.until("the daemon is connected", || {
        let daemons = world.lakeshore(&["daemons", "-o", "json"]).json();
        daemons.as_array()?.iter().any(|daemon| daemon["connected"] == true).then_some(())
    });
    assert_eq!(row(&world)["identity"], "UNPROVEN: enrolment token only");
    assert!(world.lakeshore(&["clusters", "list"]).ok().text().contains("none: UNPROVEN"));
    assert!(world.log("daemon.log").contains("no proof of who it is") && world.log("server.log").contains("UNPROVEN"));
    world.launched();
    // With the proof that the chart would have mounted, the same daemon records the keys, and nothing falls back from then on.
    world.kill_daemon();
    let identity = world.projected("nymph", &world.node, "lakeshore");
    world.write("identity", &identity);
    world.start_daemon();
    world.until("it proves itself", || (row(&world)["proven"] == true).then_some(()));
    world.kill_daemon();
    fs::remove_file(world.path("identity")).expect("it is there");
    world.start_daemon();
    world.until("the enrolment token alone is refused", || world.log("server.log").contains("no identity token was shown").then_some(()));
}
