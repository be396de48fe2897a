//! Dispatches to render, and where.

use std::collections::BTreeMap;
use std::path::Path;

use nymph::policy::{Admitted, Policy};
use nymph::render::{Place, RenderError, Rendered, launch};
use nymph::types::{Attempt, DispatchId, Placement};
use nymph::wire::{Caller, Dispatch, LaunchDispatch, Work, Workdir};

const POLICY: &str = "version: 1\nrun_namespaces: [nymph-runs, extra]\nimages: [\"*\"]\n";

/// A dispatch that leaves everything out that can be left out.
pub(crate) fn minimal() -> LaunchDispatch {
    LaunchDispatch {
        namespace: None,
        image: "localhost/python:1".into(),
        script_base64: LaunchDispatch::encode_script("print('hello')\n"),
        args: vec![],
        env: vec![],
        resources: None,
        labels: BTreeMap::new(),
        workdir: Workdir::None,
    }
}

/// What the policy makes of it; only the policy can make an `Admitted`.
pub(crate) fn admit(launch: LaunchDispatch) -> Admitted {
    let caller = Caller { namespace: "default".into(), provider: "My Provider".into(), user: "ada@example".into() };
    let dispatch = Dispatch { version: 1, caller, work: Work::Launch(launch) };
    Policy::parse(POLICY).expect("a good policy").judge(&dispatch).unwrap_or_else(|rejection| panic!("{rejection:?}"))
}

/// Renders on node `n1` below `/var/lib/nymph/work`.
pub(crate) fn render(launch: LaunchDispatch) -> Result<Rendered, RenderError> {
    render_at(&admit(launch), "n1", Path::new("/var/lib/nymph/work"))
}

/// Renders on a node below a root.
pub(crate) fn render_at(admitted: &Admitted, node: &str, root: &Path) -> Result<Rendered, RenderError> {
    render_in(admitted, &Placement::Node(node.parse().expect("a node's name")), root)
}

/// Renders at a placement.
pub(crate) fn render_in(admitted: &Admitted, placement: &Placement, root: &Path) -> Result<Rendered, RenderError> {
    let (dispatch_id, attempt) = (DispatchId::from_random([7; 16]), Attempt(1));
    let instance = dispatch_id.instance_name(attempt);
    let place = Place { placement, install: "c1-0a1b2c3d", workdir_root: root, dispatch_id: &dispatch_id, attempt, instance: &instance };
    launch(admitted, &place)
}
