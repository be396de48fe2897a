//! Any bytes as a dispatch, judged by a policy that allows all and rendered: nothing panics, and the script and its arguments arrive as they were sent.
//!
//! What does not begin like JSON is a script and its arguments, with a byte 0xff between them: the fuzzer need not learn base64 to reach the wrapper.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use nymph::policy::{Policy, parse_dispatch};
use nymph::render::{Place, launch};
use nymph::types::{Attempt, DispatchId, Placement};
use nymph::wire::{Caller, Dispatch, LaunchDispatch, Work, Workdir};

fn policy() -> &'static Policy {
    static POLICY: OnceLock<Policy> = OnceLock::new();
    POLICY.get_or_init(|| Policy::parse("version: 1\nrun_namespaces: [nymph-runs, extra]\nimages: [\"*\"]\n").expect("a good policy"))
}

pub(crate) fn run(data: &[u8]) {
    let dispatch = if data.first() == Some(&b'{') { parse_dispatch(data).ok() } else { Some(of_script(data)) };
    let Some(dispatch) = dispatch else { return };
    let Ok(admitted) = policy().judge(&dispatch) else { return };
    let Work::Launch(asked) = &dispatch.work;
    let script = asked.script().expect("it was admitted");
    assert_eq!((admitted.script(), admitted.args()), (script.as_str(), asked.args.as_slice()));

    let (dispatch_id, attempt) = (DispatchId::from_random([7; 16]), Attempt(1));
    let instance = dispatch_id.instance_name(attempt);
    let node = Placement::Node("n1".parse().expect("a node name"));
    for placement in [&node, &Placement::Cluster] {
        let root = Path::new("/var/lib/nymph/work");
        let place = Place { placement, install: "c1-0a1b2c3d", workdir_root: root, dispatch_id: &dispatch_id, attempt, instance: &instance };
        let Ok(rendered) = launch(&admitted, &place) else { continue };
        let again = launch(&admitted, &place).expect("it was rendered before");
        assert_eq!(again, rendered, "the same input gives the same manifest");
        let container = &rendered.manifest["spec"]["containers"][0];
        assert_eq!(container["command"], serde_json::json!(["/bin/sh", "-c"]));
        let text = container["args"][0].as_str().expect("a text");
        assert_eq!(carried(&after_kubelet(text)), (script.clone(), asked.args.clone()));
    }
}

fn of_script(data: &[u8]) -> Dispatch {
    let mut parts = data.split(|byte| *byte == 0xff).map(|part| String::from_utf8_lossy(part).into_owned());
    let script = parts.next().unwrap_or_default();
    let work = LaunchDispatch {
        namespace: None,
        image: "localhost/python:1".into(),
        script_base64: LaunchDispatch::encode_script(&script),
        args: parts.collect(),
        env: vec![],
        resources: None,
        labels: BTreeMap::new(),
        workdir: Workdir::None,
    };
    let caller = Caller { namespace: "default".into(), provider: "p".into(), user: "u".into() };
    Dispatch { version: 1, caller, work: Work::Launch(work) }
}

/// What the kubelet leaves: every `$` is doubled, so that nothing is ever taken for a variable.
fn after_kubelet(text: &str) -> String {
    let mut left = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == '$' {
            assert_eq!(chars.next(), Some('$'), "a single dollar");
        }
        left.push(c);
    }
    left
}

/// What the shell text writes as the script, and gives as arguments: a second reading of the few lines that the wrapper writes.
fn carried(text: &str) -> (String, Vec<String>) {
    let mut rest = text;
    let mut script = String::new();
    if let Some(after) = rest.strip_prefix("cat >/tmp/u.py <<'") {
        let (delimiter, body) = after.split_once("' || exit\n").expect("a heredoc");
        let mut lines = body.split_inclusive('\n');
        script = lines.by_ref().take_while(|line| line.strip_suffix('\n') != Some(delimiter)).collect();
        rest = &body[script.len() + delimiter.len() + 1..];
        if let Some(after) = rest.strip_prefix("printf %s ") {
            let (tail, after) = word(after);
            script.push_str(&tail);
            rest = after.strip_prefix(" >>/tmp/u.py || exit\n").expect("it is appended");
        }
    } else {
        let (whole, after) = word(rest.strip_prefix("printf %s ").expect("one of two ways to write"));
        script.push_str(&whole);
        rest = after.strip_prefix(" >/tmp/u.py || exit\n").expect("it is written");
    }
    let mut rest = rest.strip_prefix("exec python3 /tmp/u.py").expect("Python is started");
    let mut args = Vec::new();
    while let Some(after) = rest.strip_prefix(' ') {
        let (arg, after) = word(after);
        args.push(arg);
        rest = after;
    }
    assert_eq!(rest, "", "nothing follows the arguments");
    (script, args)
}

/// One word of the shell, in single quotes; a quote inside stands as `'\''`.
fn word(text: &str) -> (String, &str) {
    let mut rest = text.strip_prefix('\'').expect("a quoted word");
    let mut word = String::new();
    loop {
        let (part, after) = rest.split_once('\'').expect("the quote is closed");
        word.push_str(part);
        match after.strip_prefix("\\''") {
            Some(after) => {
                word.push('\'');
                rest = after;
            }
            None => return (word, after),
        }
    }
}
