//! House rule: arrows go one way, and a test says so.
//!
//! `lib.rs` lists the modules in the order data flows, each with its layer. This reads every path in `src/` and fails on an arrow
//! to a larger layer, to a later module of layer 1, or between two parts of any other layer; on I/O, time or chance in layer 1; on a
//! file that has outgrown its limit; and on a README whose code tour no longer matches. Code under `#[cfg(test)]` is free.

#[path = "layering/scan.rs"]
mod scan;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Most lines a source file may have, tests not counted. **Source:** house rule; the anchors' files lie below it.
const MAX_FILE_LINES: usize = 450;
/// Most lines of a binary: crypto provider, parse, run, exit code.
const MAX_BIN_LINES: usize = 40;

/// What layer 1 may not name, and why. A path is refused when it begins with one of these.
const NOT_IN_LAYER_1: [(&str, &str); 14] = [
    ("tokio", "layer 1 has no async"),
    ("tracing", "layer 1 does not log"),
    ("getrandom", "layer 1 has no chance: take random bytes as an argument"),
    ("std::fs", "layer 1 has no I/O: take the text as an argument"),
    ("std::io", "layer 1 has no I/O"),
    ("std::process", "layer 1 has no I/O"),
    ("std::thread", "layer 1 has no I/O"),
    ("std::env", "layer 1 has no I/O: take the environment as an argument"),
    ("std::net::TcpStream", "layer 1 has no I/O"), // addresses are plain values
    ("std::net::TcpListener", "layer 1 has no I/O"),
    ("std::net::UdpSocket", "layer 1 has no I/O"),
    ("std::net::ToSocketAddrs", "layer 1 has no I/O: resolving a name is a request"),
    ("std::os", "layer 1 has no I/O"),
    ("kube", "only layers 2 and up talk to a cluster"),
];
/// Words that read a clock or wait, wherever they come from.
const WORDS_NOT_IN_LAYER_1: [&str; 4] = ["SystemTime", "Instant", "async", "await"];
/// The modules of layer 1 that may name Kubernetes' types: one makes a manifest, the other reads an object.
const KNOW_KUBERNETES_TYPES: [&str; 2] = ["render", "observe"];

/// The one place of each program where the environment is read; everything else gets values.
const READ_THE_ENVIRONMENT: [&str; 2] = ["src/cli/env.rs", "src/daemon/command.rs"];

/// A module as `lib.rs` declares it.
struct Module {
    name: String,
    layer: u8,
    /// Files of it that stand in another layer (`its reload.rs is [2]`).
    exceptions: BTreeMap<String, u8>,
}

impl Module {
    fn layer_of(&self, file: &str) -> u8 {
        self.exceptions.get(file).copied().unwrap_or(self.layer)
    }
}

/// Reads the lines `pub mod NAME; // [N]`.
fn modules(lib: &str) -> Vec<Module> {
    let number = |text: &str| text.split_once('[')?.1.split_once(']')?.0.parse().ok();
    lib.lines()
        .filter_map(|line| {
            let (name, remark) = line.strip_prefix("pub mod ")?.split_once(';')?;
            let layer = number(remark)?;
            let exceptions = remark.split("its ").skip(1).filter_map(|e| Some((e.split_once(" is ")?.0.to_owned(), number(e)?))).collect();
            Some(Module { name: name.to_owned(), layer, exceptions })
        })
        .collect()
}

/// Everything wrong with a tree given as path → text, `src/lib.rs` among them.
fn problems(tree: &BTreeMap<String, String>) -> Vec<String> {
    let modules = modules(&tree["src/lib.rs"]);
    let mut problems = Vec::new();
    let blanked: BTreeMap<&str, String> = tree.iter().filter(|(p, _)| p.ends_with(".rs")).map(|(p, text)| (p.as_str(), scan::blank(text))).collect();
    let tests: Vec<String> = blanked.iter().flat_map(|(path, text)| scan::test_files(text).into_iter().map(|name| child(path, name))).collect();
    for (&path, text) in &blanked {
        let module = path.trim_end_matches(".rs").trim_end_matches("/mod");
        if tests.iter().any(|test| module == test || module.starts_with(&format!("{test}/"))) || module.ends_with("tests") {
            continue;
        }
        let (code, tests) = scan::without_tests(text);
        let lines = text.lines().count() - tests;
        let limit = if path.starts_with("src/bin/") { MAX_BIN_LINES } else { MAX_FILE_LINES };
        if lines > limit {
            problems.push(format!("{path}: {lines} lines without tests, the limit is {limit}: split it by what changes together"));
        }
        let name = module.trim_start_matches("src/").split('/').next().unwrap_or_default();
        if let Some(from) = modules.iter().position(|m| m.name == name) {
            check_file(&modules, from, path, &code, &mut problems);
        }
    }
    if let Some(tour) = tree.get("README.md").and_then(|readme| code_tour(readme)) {
        check_tour(&modules, &tour, &mut problems);
    }
    problems
}

/// Where a module lives that the file at `path` declares, without its ending: beside a `mod.rs`, below any other file.
fn child(path: &str, name: &str) -> String {
    let below = path.trim_end_matches("/mod.rs").trim_end_matches("/lib.rs").trim_end_matches(".rs");
    format!("{below}/{name}")
}

fn check_file(modules: &[Module], from: usize, path: &str, code: &str, problems: &mut Vec<String>) {
    let file = path.rsplit('/').next().unwrap_or(path);
    let depth = path.matches('/').count() - usize::from(file == "mod.rs");
    let (module, layer) = (&modules[from], modules[from].layer_of(file));
    let mut problem = |line: usize, text: String| problems.push(format!("{path}:{line}: {text}"));

    for scan::Path { line, segments } in scan::paths(code) {
        if let Some(rest) = from_root(&segments, depth) {
            let Some(to) = modules.iter().position(|m| m.name == rest[0]) else {
                if matches!(rest[0].as_str(), "self" | "*") {
                    problem(line, format!("{} hides which module is used", segments.join("::")));
                }
                continue; // a macro of the crate
            };
            let to_layer = rest.get(1).map_or(modules[to].layer, |part| modules[to].layer_of(&format!("{part}.rs")));
            if let Some(why) = wrong_arrow((from, layer), (to, to_layer)) {
                problem(line, format!("{} [{layer}] must not use {} [{to_layer}]: {why}", module.name, modules[to].name));
            }
        }
        let name = segments.join("::");
        let reads = ["var", "vars", "var_os", "vars_os"].iter().any(|f| name.ends_with(&format!("env::{f}")));
        if reads && !READ_THE_ENVIRONMENT.contains(&path) {
            problem(line, format!("{name}: only {} read the environment", READ_THE_ENVIRONMENT.join(" and ")));
        }
        if layer == 1 {
            let begins = |with: &str| name.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
            if let Some((_, why)) = NOT_IN_LAYER_1.iter().find(|(with, _)| begins(with)) {
                problem(line, format!("{name}: {why}"));
            }
            if begins("k8s_openapi") && !KNOW_KUBERNETES_TYPES.contains(&module.name.as_str()) {
                problem(line, format!("{name}: of layer 1 only {} know Kubernetes' types", KNOW_KUBERNETES_TYPES.join(" and ")));
            }
            if segments.ends_with(&["Timestamp".into(), "now".into()]) || segments.ends_with(&["Zoned".into(), "now".into()]) {
                problem(line, format!("{name}: layer 1 has no clock: take the time as an argument"));
            }
        }
    }
    if layer == 1 {
        for (line, token) in scan::tokens(code).iter().filter(|(_, token)| WORDS_NOT_IN_LAYER_1.contains(&token.as_str())) {
            problem(*line, format!("`{token}`: layer 1 has no clock and no async"));
        }
    }
}

/// The segments behind the crate's root, when the path begins there: by `crate::`, or by enough `super::`.
fn from_root(segments: &[String], depth: usize) -> Option<&[String]> {
    let supers = segments.iter().take_while(|s| *s == "super").count();
    let rest = if segments[0] == "crate" { &segments[1..] } else { segments.get(supers..).filter(|_| supers > 0 && supers >= depth)? };
    (!rest.is_empty()).then_some(rest)
}

/// Why an arrow between two (index, layer) pairs is wrong, if it is.
fn wrong_arrow(from: (usize, u8), to: (usize, u8)) -> Option<&'static str> {
    match (from.1, to.1) {
        _ if from.0 == to.0 => None,
        (from, to) if to > from => Some("arrows go to smaller layers only"),
        (1, 1) if to.0 > from.0 => Some("inside layer 1 arrows go to what stands before it in lib.rs"),
        (from, to) if from == to && from != 1 => Some("the parts of one layer do not know each other"),
        _ => None,
    }
}

/// The `src/…` names of the README's code tour: lines that begin, behind list or table marks, with one in backticks.
fn code_tour(readme: &str) -> Option<Vec<String>> {
    let heading = |line: &str| line.starts_with('#');
    let section = readme.lines().skip_while(|l| !(heading(l) && l.to_lowercase().contains("code tour"))).skip(1).collect::<Vec<_>>();
    let tour = section.iter().take_while(|l| !heading(l)).filter_map(|line| {
        let name = line.trim_start_matches([' ', '-', '*', '|']).strip_prefix("`src/")?.split_once('`')?.0;
        let name = name.trim_end_matches('/').trim_end_matches(".rs");
        (name != "lib" && !name.starts_with("bin")).then(|| name.to_owned())
    });
    (!section.is_empty()).then(|| tour.collect())
}

fn check_tour(modules: &[Module], tour: &[String], problems: &mut Vec<String>) {
    for module in modules.iter().filter(|m| !tour.contains(&m.name)) {
        problems.push(format!("README.md: the code tour has no line for `src/{}`", module.name));
    }
    for name in tour.iter().filter(|name| !modules.iter().any(|m| m.name == **name)) {
        problems.push(format!("README.md: the code tour shows `src/{name}`, which lib.rs does not declare"));
    }
}

fn read_tree(root: &Path, folder: &Path, tree: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a folder of the checkout") {
        let path = entry.expect("an entry of it").path();
        if path.is_dir() {
            read_tree(root, &path, tree);
        } else {
            let name = path.strip_prefix(root).expect("below the root").display().to_string();
            tree.insert(name, fs::read_to_string(&path).expect("source is UTF-8"));
        }
    }
}

#[test]
fn the_source_tree_obeys_its_own_architecture_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tree = BTreeMap::new();
    read_tree(root, &root.join("src"), &mut tree);
    if let Ok(readme) = fs::read_to_string(root.join("README.md")) {
        tree.insert("README.md".to_owned(), readme);
    }
    let modules = modules(&tree["src/lib.rs"]);
    let declared = tree["src/lib.rs"].lines().filter(|l| l.starts_with("pub mod ")).count();
    assert_eq!(modules.len(), declared, "each `pub mod x;` of lib.rs ends in its layer: `// [n]`");
    assert!(modules.len() > 10, "lib.rs was not read");
    let problems = problems(&tree);
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
}

/// A small crate: `planted` is added to it, and what the check says of it comes back.
fn planted(path: &str, text: &str) -> Vec<String> {
    let lib = "pub mod types; // [0]\npub mod wire; // [1]\npub mod render; // [1]\npub mod observe; // [1]\npub mod config; // [1], its reload.rs is [2]\n\
               pub mod apply; // [2]\npub mod watch; // [2]\n#[cfg(feature = \"daemon\")]\npub mod daemon; // [3]\npub mod control_plane; // [3]\npub mod cli; // [4]\n";
    problems(&BTreeMap::from([("src/lib.rs".to_owned(), lib.to_owned()), (path.to_owned(), text.to_owned())]))
}

#[test]
fn right_arrows_are_let_through() {
    for (path, text) in [
        ("src/render/mod.rs", "use crate::wire::Dispatch;\nuse super::types::X;\nuse super::wire;"),
        ("src/cli/launch.rs", "use crate::{control_plane::serve, types::State};\nuse super::super::daemon;"),
        ("src/config/reload.rs", "use crate::wire; use tokio::time::sleep;"),
        ("src/wire/mod.rs", "// crate::daemon\n#[cfg(test)]\nmod tests { use crate::daemon::X; use std::fs; }"),
        ("src/cli/env.rs", "let home = std::env::var_os(\"HOME\");"),
        ("src/observe/mod.rs", "use k8s_openapi::api::core::v1::Pod;"),
        ("src/config/mod.rs", "use std::net::SocketAddr; pub use reload::watch; use crate::config::reload;"),
        ("src/wire/frame.rs", "use super::message::Message; // own sibling, not the crate's root"),
    ] {
        assert_eq!(planted(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

#[test]
fn a_planted_wrong_arrow_is_caught() {
    for (path, text, expected) in [
        ("src/wire/mod.rs", "\nuse crate::daemon::State;", "src/wire/mod.rs:2: wire [1] must not use daemon [3]"),
        ("src/wire/mod.rs", "use super::render::X;", "what stands before it in lib.rs"),
        ("src/wire/frame.rs", "use super::super::render::X;", "wire [1] must not use render [1]"),
        ("src/types/ids.rs", "fn f() { crate::wire::decode() }", "types [0] must not use wire [1]"),
        ("src/daemon/mod.rs", "use crate::{types, control_plane::Hub};", "daemon [3] must not use control_plane [3]"),
        ("src/apply/mod.rs", "use crate::watch;fn f() { watch::go() } use crate::watch::X;", "apply [2] must not use watch [2]"),
        ("src/apply/mod.rs", "use crate::cli::X;", "apply [2] must not use cli [4]"),
        ("src/render/mod.rs", "use crate::config::reload::Watcher;", "render [1] must not use config [2]"),
        ("src/wire/mod.rs", "use crate::*;", "hides which module"),
        ("src/wire/mod.rs", "use std::{fmt, fs};", "std::fs: layer 1 has no I/O"),
        ("src/wire/mod.rs", "use k8s_openapi::api::core::v1::Pod;", "of layer 1 only render and observe"),
        ("src/render/mod.rs", "use kube::api::DynamicObject;", "only layers 2 and up"),
        ("src/render/mod.rs", "let now = jiff::Timestamp::now();", "no clock"),
        ("src/render/mod.rs", "fn f(at: std::time::SystemTime) {}", "no clock"),
        ("src/config/mod.rs", "pub async fn load() {}", "no async"),
        ("src/config/mod.rs", "tracing::info!(x)", "does not log"),
        ("src/cli/launch.rs", "let home = std::env::var_os(\"HOME\");", "only src/cli/env.rs and src/daemon/command.rs"),
    ] {
        let problems = planted(path, text);
        assert!(problems.iter().any(|p| p.contains(expected)), "{path}: {text}\nexpected {expected:?}, got {problems:?}");
    }
}

#[test]
fn a_file_may_not_outgrow_its_limit_but_its_tests_may() {
    let code = "fn f() {}\n".repeat(MAX_FILE_LINES);
    assert_eq!(planted("src/apply/mod.rs", &code), Vec::<String>::new());
    assert_eq!(planted("src/apply/mod.rs", &format!("{code}#[cfg(test)]\nmod tests {{\n\n// why\n{code}}}\n")), Vec::<String>::new());
    assert!(planted("src/apply/mod.rs", &format!("{code}fn g() {{}}\n"))[0].contains("451 lines"));
    assert!(planted("src/bin/x.rs", &"fn f() {}\n".repeat(MAX_BIN_LINES + 1))[0].contains("the limit is 40"));
}

#[test]
fn a_file_that_is_only_a_test_is_free() {
    let long = format!("use crate::cli::X;\n{}", "fn f() {}\n".repeat(MAX_FILE_LINES));
    let tree = |declaration: &str, test: &str| {
        let lib = ("src/lib.rs".to_owned(), "pub mod wire; // [1]\npub mod cli; // [4]\n".to_owned());
        problems(&BTreeMap::from([lib, ("src/wire/mod.rs".to_owned(), declaration.to_owned()), (test.to_owned(), long.clone())]))
    };
    for test in ["src/wire/corpus.rs", "src/wire/corpus/mod.rs", "src/wire/corpus/old.rs"] {
        assert_eq!(tree("#[cfg(test)]\nmod corpus;\n", test), Vec::<String>::new(), "{test}");
        assert_eq!(tree("mod corpus;\n", test).len(), 2, "{test}: too long, and an arrow upward");
    }
    assert_eq!(child("src/wire/frame.rs", "corpus"), "src/wire/frame/corpus");
}

#[test]
fn the_code_tour_names_each_module_once() {
    let modules = modules("pub mod error; // [0]\npub mod wire; // [1]\n");
    let tour = |readme: &str| {
        let mut problems = Vec::new();
        check_tour(&modules, &code_tour(readme).expect("the section is there"), &mut problems);
        problems
    };
    assert_eq!(
        tour("# nymph\n## Code tour\n\n| `src/error.rs` | x |\n- `src/wire/` the protocol\n`src/bin/nymph.rs`\n## Next\n`src/gone/`"),
        Vec::<String>::new()
    );
    assert!(tour("## Code tour\n`src/error.rs`")[0].contains("no line for `src/wire`"));
    assert!(tour("## Code tour\n`src/error.rs`\n`src/wire/`\n`src/old/`")[0].contains("`src/old`"));
    assert!(code_tour("# nymph\n## Install\n").is_none());
}
