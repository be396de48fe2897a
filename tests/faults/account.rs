//! Row 19: the token of the daemon's ServiceAccount is revoked, and another takes its place.

use std::time::Duration;

use serde_json::{Value, json};

use crate::proxy::api::ApiProxy;
use crate::rig::Rig;
use crate::rows::{remark, shown};
use crate::shell::until_within;
use crate::world::{kubectl, measured, run};

/// kube reads a token file again when what it has is older than 50 s.
const REREAD: Duration = Duration::from_secs(61);
/// Between tries of a watch or a look-up.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[test]
fn a_revoked_token_shows_and_the_one_that_replaces_it_is_taken_up() {
    let mut rig = Rig::without_daemon();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bound", "namespace": rig.system}});
    run("kubectl", &["create", "-f", "-"], Some(&secret.to_string())).ok();
    let token = |more: &[&str]| {
        let args = [&["create", "token", "nymph", "--namespace", &rig.system], more].concat();
        kubectl(&args).ok().text().trim().to_owned()
    };
    let (bound, free) = (token(&["--bound-object-kind", "Secret", "--bound-object-name", "bound"]), token(&[]));
    rig.write("account-token", &bound);
    // Without the namespace that does not exist, so that readiness means something.
    rig.write("policy.yaml", &format!("version: 1\nrun_namespaces: [{}]\nimages: [\"localhost/*\"]\n", rig.runs));
    through_a_token_file(&mut rig);
    rig.start_daemon();
    rig.until("the daemon is ready", || rig.probe("/readyz").filter(|(status, _)| *status == 200));
    let before = rig.launched_with("before");
    rig.assert_made_once(&before);

    kubectl(&["delete", "secret", "bound", "-n", &rig.system]).ok();
    rig.until("the API server refuses the token", || {
        rig.api.cut_streams();
        rig.probe("/readyz").filter(|(status, text)| *status == 503 && text.contains("Unauthorized"))
    });
    assert_eq!(rig.probe("/healthz").map(|(status, _)| status), Some(200), "a restart would not help");
    let waiting = rig.launching("waiting").join().expect("the control plane runs");
    assert_eq!((waiting.status, waiting.body["state"].as_str()), (202, Some("starting")), "{}", waiting.body);
    assert!(!rig.log("daemon.log").contains(&bound), "the token is in the log");

    rig.write("account-token", &free);
    let id = waiting.body["instanceId"].as_str().expect("an id");
    let (_, took) = rig.until("the new token is in use", || rig.pods().iter().any(|pod| pod == id).then_some(()));
    measured("a new ServiceAccount token is taken up", REREAD + LONGEST_PAUSE, took);
    rig.assert_made_once(id);
    rig.assert_made_once(&before);
    // A watch is taken to work when it did not fail for two of its longest pauses.
    let ready = || rig.probe("/readyz").filter(|(status, _)| *status == 200);
    until_within(REREAD + 4 * LONGEST_PAUSE, "readiness is back", || rig.log("daemon.log"), ready);
    remark(19, &format!("new token in use after {:.0} s", took.as_secs_f64()));
    shown(19, "K", 1);
}

/// The daemon's kubeconfig names the token's file, as a Pod's own does.
fn through_a_token_file(rig: &mut Rig) {
    let original: Value = serde_json::from_str(&rig.log("kubeconfig")).expect("JSON");
    let mut config = original.clone();
    config["users"] = json!([{"name": "daemon", "user": {"tokenFile": rig.path("account-token")}}]);
    rig.api = ApiProxy::start(&rig.path("kubeconfig"));
    let through = rig.api.kubeconfig(&config);
    rig.write("kubeconfig-through-proxy", &through.to_string());
}
