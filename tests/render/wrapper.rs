//! The wrapper for real: what the kubelet leaves of it is given to a shell, with a `python3` first on PATH that keeps its file and arguments.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;

use nymph::policy::RejectionCode;
use nymph::render::{MAX_COMMAND, RenderError};
use nymph::wire::{EnvVar, LaunchDispatch};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::covers::covers;
use crate::expansion::expand;
use crate::story::{minimal, render};

/// Copies the script and each argument, with a NUL after it, beside itself; exits with the code that stands in the file `code`.
const FAKE_PYTHON: &str = r#"#!/bin/sh
here=${0%/*}
cp -- "$1" "$here/script"
shift
: >"$here/args"
for arg; do printf '%s\0' "$arg" >>"$here/args"; done
exit "$(cat "$here/code")"
"#;

/// Shells to try: the machine's `sh`, and those that images bring.
fn shells() -> &'static [Vec<&'static str>] {
    static SHELLS: OnceLock<Vec<Vec<&'static str>>> = OnceLock::new();
    SHELLS.get_or_init(|| {
        let candidates: [&[&str]; 4] = [&["/bin/sh"], &["dash"], &["busybox", "sh"], &["bash"]];
        let (found, missing): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .map(<[&str]>::to_vec)
            .partition(|shell| Command::new(shell[0]).args(&shell[1..]).args(["-c", "exit 7"]).status().is_ok_and(|status| status.code() == Some(7)));
        for shell in missing {
            eprintln!("skipped: the shell {shell:?} is not here");
        }
        assert!(!found.is_empty(), "no shell at all");
        found
    })
}

/// A folder with the fake `python3`, which takes the place of `/tmp`: the shell runs in it, and nothing is shared between tests.
struct Stage {
    dir: TempDir,
}

struct Arrived {
    output: Output,
    script: Option<Vec<u8>>,
    args: Vec<Vec<u8>>,
}

impl Stage {
    fn new() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let python = dir.path().join("python3");
        fs::write(&python, FAKE_PYTHON).expect("the fake python3");
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).expect("executable");
        fs::write(dir.path().join("code"), "0").expect("the exit code");
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the command of a rendered container with `shell`.
    fn run(&self, shell: &[&str], command: &str) -> Arrived {
        for old in ["u.py", "script", "args"] {
            let _ = fs::remove_file(self.path(old)); // absent before the first run
        }
        let path = format!("{}:{}", self.dir.path().display(), std::env::var("PATH").expect("a PATH"));
        let mut shell_here = Command::new(shell[0]);
        shell_here.args(&shell[1..]).args(["-c", &without_tmp(command)]).env("PATH", path).current_dir(self.dir.path());
        let output = shell_here.output().expect("the shell runs");
        let args = fs::read(self.path("args")).unwrap_or_default();
        let mut args: Vec<Vec<u8>> = args.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
        args.pop(); // each ends in a NUL
        Arrived { output, script: fs::read(self.path("script")).ok(), args }
    }
}

/// Takes `/tmp/` off the paths in our own lines, from the outside in, and leaves the script between them as it is.
fn without_tmp(command: &str) -> String {
    let (before, args) = command.rsplit_once("exec python3 /tmp/u.py").expect("our last line");
    let written = ["cat >/tmp/u.py ", "printf %s "].iter().any(|start| before.starts_with(start));
    assert!(written, "{command}");
    let before = before.strip_prefix("cat >/tmp/u.py ").map_or_else(|| before.to_owned(), |rest| format!("cat >u.py {rest}"));
    let before = before.strip_suffix(">/tmp/u.py || exit\n").map_or_else(|| before.clone(), |rest| format!("{rest}>u.py || exit\n"));
    format!("{before}exec python3 u.py{args}")
}

fn launch(script: &str, args: &[&str]) -> LaunchDispatch {
    LaunchDispatch { script_base64: LaunchDispatch::encode_script(script), args: args.iter().map(|arg| (*arg).to_owned()).collect(), ..minimal() }
}

/// The container's command as the kubelet gives it to the runtime. A variable of every name that occurs is set: none may be expanded.
fn command(launch: LaunchDispatch) -> Result<String, RenderError> {
    let rendered = render(launch)?;
    let container = &rendered.manifest["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["/bin/sh", "-c"]));
    let args = container["args"].as_array().expect("a list");
    assert_eq!(args.len(), 1, "exactly one element");
    let variables = BTreeMap::from([("HOME", "/expanded"), ("VAR", "expanded"), ("", "expanded"), ("id", "expanded")]);
    Ok(expand(args[0].as_str().expect("a text"), &variables))
}

/// Fails unless `script` and `args` arrive byte for byte in every shell.
fn arrives(stage: &Stage, script: &str, args: &[&str]) -> Result<(), TestCaseError> {
    let command = command(launch(script, args)).expect("it fits");
    for shell in shells() {
        let arrived = stage.run(shell, &command);
        prop_assert!(arrived.output.status.success(), "{shell:?}: {:?}\n{command}", arrived.output);
        prop_assert_eq!(arrived.output.stderr.escape_ascii().to_string(), "", "{:?}", shell);
        let got = arrived.script.expect("the script was written");
        prop_assert!(got == script.as_bytes(), "{shell:?}: {:?} became {:?}", script, got.escape_ascii().to_string());
        let expected: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        prop_assert_eq!(arrived.args, expected, "{:?}", shell);
    }
    Ok(())
}

#[test]
fn a_script_arrives_byte_for_byte_whatever_is_in_it() {
    covers!("S76", "S79");
    let stage = Stage::new();
    let long = "x = 'ü$$(HOME)`id`'  # sixty kibibytes\n".repeat(60 * 1024 / 40);
    let letters: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['_']).collect();
    let delimiters: String = letters.iter().map(|letter| format!("{letter}_NYMPH_EOF\n")).collect();
    let most_delimiters = format!("NYMPH_EOF\n{}", delimiters.replace("Q_NYMPH_EOF\n", ""));
    let all_delimiters = format!("NYMPH_EOF\n{delimiters}it's so\n");
    let accents: String = letters.iter().map(|letter| format!("{letter}é{letter}_日\n")).collect();
    for script in [
        "",
        "\n",
        "\n\n\n",
        "print(1)\n",
        "print(1)",
        "a\nb",
        "no newline and a quote '",
        "'\"'\"'\\'",
        "$HOME ${HOME} $(HOME) $$ $$$ $$(VAR) $(VAR $( $) $",
        "$",
        "\n$",
        "`id` $(id) $((1+1)) !! \\n \\\\ \\",
        "line\\\nnext\\\n",
        "EOF\nNYMPH_EOF\nEOF\n",
        "NYMPH_EOF",
        "NYMPH_EOF\n",
        "\nA_NYMPH_EOF\nNYMPH_EOF\n NYMPH_EOF\nNYMPH_EOF \nNYMPH_EOF\r\n",
        &most_delimiters,
        &all_delimiters,
        &accents,
        // A byte that dash 0.5.12 loses after what a delimiter begins with.
        "Né\nNYMPH_EOFé\nNYMPH_EO日\nA_é\n",
        "'NYMPH_EOF'\n\"NYMPH_EOF\"\n",
        "crlf\r\nmixed\nend\r",
        "\tindented\n\t\tNYMPH_EOF\n",
        "  \n \n",
        "naïve Ünïcödé 日本語 🦀\u{200b}\u{feff}\n",
        // Bytes 0x81 to 0x88 are dash's own marks inside a word.
        "\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}ÁÂÃÄÅÆÇÈ",
        "\u{81}\u{82}\u{83}\u{84}\u{85}\u{86}\u{87}\u{88}ÁÂÃÄÅÆÇÈ\n",
        "\u{1}\u{2}\u{7}\u{8}\u{b}\u{c}\u{1b}[31m\u{7f}\n",
        "%s %d %% \\0 \\x41",
        "-n",
        "#!/usr/bin/env python3\nimport sys\nsys.exit(3)\n",
        "import os\nos.remove('/tmp/u.py')\n# /tmp/u.py",
        "f'''{a}\n'''\n\"\"\"\n",
        "*?[a]~{a,b}|&;<>() \n*?[a]~{a,b}|&;<>()",
        &long,
    ] {
        arrives(&stage, script, &[]).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn arguments_arrive_as_they_are() {
    let stage = Stage::new();
    let args =
        ["", " ", "-v", "--", "a b", "it's", "$HOME", "$(HOME)", "$$", "`id`", "\"", "\\", "\n", "line\nNYMPH_EOF\n", "*", "ü 日", "%s", "/tmp"];
    arrives(&stage, "print(1)\n", &args).unwrap_or_else(|error| panic!("{error}"));
    arrives(&stage, "print(1)", &args).unwrap_or_else(|error| panic!("{error}"));
    arrives(&stage, "", &args).unwrap_or_else(|error| panic!("{error}"));
}

/// Text of what shells and Kubernetes treat in a way of their own, and anything else but NUL.
fn texts() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        6 => proptest::sample::select(vec!["$", "$$", "$(", ")", "$(VAR)", "${VAR}", "`", "'", "\"", "\\", "\n", "\r\n", "\t", " ", "NYMPH_EOF", "A_NYMPH_EOF",
            "EOF", "\nN", "\nA_", "#", "!", "\u{81}", "\u{88}", "é", "🦀"]).prop_map(str::to_owned),
        1 => "[^\\x00]{0,6}",
        1 => "[a-z]{1,8}",
    ];
    proptest::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

proptest! {
    // Each case starts as many shells as there are.
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_script_and_any_arguments_arrive_byte_for_byte(script in texts(), args in proptest::collection::vec(texts(), 0..4)) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        arrives(&Stage::new(), &script, &args)?;
    }
}

proptest! {
    #[test]
    fn an_environment_value_is_literal_after_the_kubelets_expansion(value in texts()) {
        let env = vec![EnvVar { name: "VAR".into(), value: "expanded".into() }, EnvVar { name: "ASKED".into(), value: value.clone() }];
        let rendered = render(LaunchDispatch { env, ..minimal() }).expect("it fits");
        let env = rendered.manifest["spec"]["containers"][0]["env"].as_array().expect("a list");
        let asked = env.iter().find(|entry| entry["name"] == "ASKED").expect("it was asked for");
        prop_assert_eq!(expand(asked["value"].as_str().expect("a text"), &BTreeMap::from([("VAR", "expanded"), ("", "expanded")])), value);
    }
}

#[test]
fn the_shell_becomes_python_and_its_exit_code_counts() {
    covers!("S81");
    let stage = Stage::new();
    fs::write(stage.path("code"), "42").expect("the exit code");
    for script in ["print(1)\n", "print(1)", ""] {
        let command = command(launch(script, &[])).expect("it fits");
        assert!(command.ends_with("\nexec python3 /tmp/u.py"), "{command}");
        for shell in shells() {
            assert_eq!(stage.run(shell, &command).output.status.code(), Some(42), "{shell:?}");
        }
    }
}

#[test]
fn a_script_that_cannot_be_written_is_not_started_and_the_shell_says_why() {
    let stage = Stage::new();
    for script in ["print(1)\n", "print(1)", "a\nb", ""] {
        let command = command(launch(script, &[])).expect("it fits");
        for shell in shells() {
            // A folder stands where the script belongs.
            fs::create_dir_all(stage.path("u.py")).expect("a folder");
            let output = stage.run(shell, &command).output;
            assert!(!output.status.success(), "{shell:?}");
            assert!(!stage.path("script").exists(), "{shell:?}: python3 was started");
            let said = String::from_utf8_lossy(&output.stderr).to_lowercase();
            assert!(said.contains("u.py") && said.contains("directory"), "{shell:?}: {said}");
        }
    }
}

#[test]
fn a_script_fits_up_to_the_kernels_limit_and_what_is_longer_is_refused_with_the_sizes() {
    covers!("S79", "B10");
    let stage = Stage::new();
    let around = command(launch("\n", &[])).expect("it fits").len() - 1;
    let most = MAX_COMMAND - around;
    // `$` is doubled for Kubernetes; what counts is what the kubelet leaves.
    let longest = format!("{}\n", "$".repeat(most - 1));
    arrives(&stage, &longest, &[]).unwrap_or_else(|error| panic!("{error}"));

    let script = format!("{longest}\n");
    let error = render(launch(&script, &[])).expect_err("one byte over");
    assert_eq!(error, RenderError::CommandTooLong { script: most + 1, args: 0, command: MAX_COMMAND + 1 });
    let rejection = error.rejection();
    assert_eq!((rejection.code, rejection.rule.as_str()), (RejectionCode::Invalid, "script"));
    for size in [most + 1, MAX_COMMAND, MAX_COMMAND + 1] {
        assert!(rejection.message.contains(&size.to_string()), "{size} is missing in: {}", rejection.message);
    }
    let error = render(launch("print(1)\n", &[&"x".repeat(100_000), &"x".repeat(40_000)])).expect_err("the arguments are too long");
    assert!(matches!(error, RenderError::CommandTooLong { args: 140_000, .. }), "{error}");
}
