//! What a later release may add: fields anywhere but in a dispatch, which an earlier one passes over without taking anything else for another.

use serde_json::json;

use crate::corpus::files;
use crate::form::{FORMS, Form, object, objects};

const LATER: &str = "of_a_later_release";
/// Objects that hold what others name: a key there is data, or, in a placement, the kind of place.
const DATA: [&str; 5] = ["labels", "allocatable", "jwks", "placement", "resources"];

#[test]
fn an_unknown_field_in_an_envelope_or_message_changes_nothing() {
    let mut tried = 0;
    for form in FORMS.into_iter().filter(|form| *form != Form::Dispatch) {
        for (file, bytes) in files(form) {
            let (json, _) = form.open(&bytes);
            for at in objects(&json, &DATA) {
                for unknown in [json!(null), json!({LATER: [1, {}]})] {
                    let mut json = json.clone();
                    object(&mut json, &at).insert(LATER.to_owned(), unknown);
                    assert_eq!(form.read(&form.close(&json, &bytes)), form.read(&bytes), "{form:?} {file} with an unknown field at {at:?}");
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 100, "only {tried} were tried");
}

#[test]
fn an_unknown_field_in_a_dispatch_is_refused_and_named_at_every_level() {
    let mut levels = Vec::new();
    for (file, bytes) in files(Form::Dispatch) {
        let (json, _) = Form::Dispatch.open(&bytes);
        for at in objects(&json, &DATA) {
            let mut json = json.clone();
            object(&mut json, &at).insert(LATER.to_owned(), json!(1));
            let error = Form::Dispatch.read(&json.to_string().into_bytes()).expect_err("the field is unknown");
            assert!(error.contains(&format!("unknown field `{LATER}`")), "{file} at {at:?}: {error}");
            levels.push(at);
        }
    }
    levels.sort();
    levels.dedup();
    assert_eq!(levels, ["", "/caller", "/work", "/work/launch", "/work/launch/env/0", "/work/launch/env/1"]);
}

#[test]
fn a_later_kind_of_work_is_refused_and_named() {
    let body = json!({"version": 1, "caller": {"namespace": "d", "provider": "p", "user": "u"}, "work": {"run": {}}});
    let error = Form::Dispatch.read(&body.to_string().into_bytes()).expect_err("the kind is unknown");
    assert!(error.contains("unknown field `run`"), "{error}");
}
