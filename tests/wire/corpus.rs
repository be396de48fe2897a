//! The corpus: a file a frame, as it travelled. Files are only ever added, so that every later release goes on reading what an earlier one wrote.
//!
//! A file is named `NAME.CASE.N`: `full` has every field that its writer knew, `thin` none of the single ones that may be left out, `least` nothing
//! that may be left out, `empty` is what we write when there is nothing to say, and `word` is there for one word of a closed list. When the structs grow, `tests/run generate` adds a file with the next
//! number beside the old one; it never changes or removes one.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::form::{FORMS, Form, Read, object, objects};
use crate::samples::{Cases, samples};

/// Set by `tests/run generate`: what is missing is added.
const GENERATE: &str = "NYMPH_GENERATE";

fn folder(form: Form) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire/corpus/v1")).join(form.folder())
}

/// Every file of a form, by name.
pub(crate) fn files(form: Form) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder(form)).into_iter().flatten();
    let read = |path: PathBuf| (path.file_name().expect("a file").to_string_lossy().into_owned(), fs::read(&path).expect("a file of the checkout"));
    entries.map(|entry| read(entry.expect("an entry").path())).collect()
}

fn form_of(frame: &Read) -> Form {
    match frame {
        Read::ToControlPlane(_) => Form::ToControlPlane,
        Read::ToDaemon(_) => Form::ToDaemon,
        Read::Binary(_) => Form::Binary,
        Read::Dispatch(_) => Form::Dispatch,
    }
}

/// The frame without each field that may be left out; `whole` says whether that holds for fields that hold others, too.
fn without(form: Form, frame: &[u8], whole: bool) -> Vec<u8> {
    let mut json = form.open(frame).0;
    let mut found = objects(&json, &[]);
    if !whole {
        found.reverse(); // the innermost first
    }
    for at in found {
        let Some(keys) = json.pointer(&at).and_then(Value::as_object).map(|map| map.keys().cloned().collect::<Vec<_>>()) else { continue };
        for key in keys {
            let map = object(&mut json, &at);
            if !whole && map.get(&key).is_some_and(|value| value.is_object() || value.is_array()) {
                continue;
            }
            let Some(removed) = map.remove(&key) else { continue };
            if form.read(&form.close(&json, frame)).is_err() {
                object(&mut json, &at).insert(key, removed);
            }
        }
    }
    form.close(&json, frame)
}

/// Every frame that must stand in the corpus: form, name with case, bytes.
fn wanted() -> Vec<(Form, String, Vec<u8>)> {
    let mut wanted: Vec<(Form, String, Vec<u8>)> = Vec::new();
    for sample in samples() {
        let form = form_of(&sample.frame);
        let full = sample.frame.write();
        let cases = match sample.cases {
            Cases::Word => vec![("word", full)],
            Cases::All => {
                let (thin, least) = (without(form, &full, false), without(form, &full, true));
                let empty = form.read(&least).expect("only what may be left out is").write();
                vec![("full", full), ("thin", thin), ("least", least), ("empty", empty)]
            }
        };
        for (case, bytes) in cases {
            let same = |(known, name, other): &(Form, String, Vec<u8>)| {
                *known == form && name.starts_with(&format!("{}.", sample.name)) && form.open(other) == form.open(&bytes)
            };
            if !wanted.iter().any(same) {
                wanted.push((form, format!("{}.{case}", sample.name), bytes));
            }
        }
    }
    wanted
}

/// Adds the frame as a file with a number that no file has.
fn add(form: Form, name: &str, bytes: &[u8]) {
    fs::create_dir_all(folder(form)).expect("the checkout is writable");
    let path = |n: u32| folder(form).join(format!("{name}.{n}.{}", form.ending()));
    let free = (1..).map(path).find(|path| !path.exists()).expect("numbers are many");
    fs::write(free, bytes).expect("the checkout is writable");
}

#[test]
fn every_kind_of_frame_stands_in_the_corpus_as_it_is_written_now() {
    let mut missing = Vec::new();
    for (form, name, bytes) in wanted() {
        let word = name.ends_with(".word");
        let stands = files(form).iter().any(|(file, known)| file.starts_with(&format!("{name}.")) && (word || form.open(known) == form.open(&bytes)));
        if !stands && std::env::var_os(GENERATE).is_some() {
            add(form, &name, &bytes);
        } else if !stands {
            missing.push(format!("{}/{name}", form.folder()));
        }
    }
    assert!(
        missing.is_empty(),
        "no file of tests/wire/corpus/v1 is what is written now: {missing:?}; run `tests/run generate wire`, which adds files"
    );
    for form in FORMS {
        let stand: Vec<_> = files(form).values().map(|bytes| form.read(bytes).expect("it stands in the corpus").variant()).collect();
        for variant in form.variants() {
            assert!(stand.contains(variant), "{form:?}: no frame of the corpus is a {variant}; add one to samples.rs");
        }
    }
}

fn silent(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

/// Whether everything that `old` says is in `new`. A null says nothing, nor does an empty list or object.
fn says_all(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            old.iter().all(|(key, value)| silent(value) || new.get(key).is_some_and(|new| says_all(new, value)))
        }
        (Value::Array(new), Value::Array(old)) => new.len() == old.len() && new.iter().zip(old).all(|(new, old)| says_all(new, old)),
        (new, old) => new == old,
    }
}

#[test]
fn every_file_is_read_and_written_again_with_the_same_meaning() {
    let mut told = BTreeMap::<&str, String>::new();
    for form in FORMS {
        for (file, bytes) in files(form) {
            let read = form.read(&bytes).unwrap_or_else(|error| panic!("{form:?} {file} is no longer read: {error}"));
            let written = read.write();
            assert_eq!(form.read(&written).as_ref(), Ok(&read), "{form:?} {file}: written and read again it is another");
            let ((new, new_payload), (old, old_payload)) = (form.open(&written), form.open(&bytes));
            assert!(says_all(&new, &old), "{form:?} {file}: something is lost\n{old}\n{new}");
            assert_eq!(new_payload, old_payload, "{form:?} {file}");
            told.entry(form.folder()).or_default().push_str(&format!("{file}\n    {}\n", shown(&read)));
        }
    }
    for (folder, told) in told {
        insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, { insta::assert_snapshot!(folder, told) });
    }
}

fn shown(read: &Read) -> String {
    match read {
        Read::ToControlPlane(message) => format!("{message:?}"),
        Read::ToDaemon(message) => format!("{message:?}"),
        Read::Binary(frame) => format!("{frame:?}"),
        Read::Dispatch(dispatch) => format!("{dispatch:?}"),
    }
}
