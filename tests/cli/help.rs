//! Help and usage: what a person reads first.

use crate::covers::covers;
use crate::lakeshore::lakeshore;

/// Every command and subcommand that has a help of its own; but for `serve`, whose flags are the control plane's.
const COMMANDS: [&str; 30] = [
    "",
    "launch",
    "instances",
    "logs",
    "stop",
    "providers",
    "providers add",
    "providers list",
    "providers show",
    "providers remove",
    "providers test",
    "providers instances",
    "modes",
    "modes add",
    "modes list",
    "modes show",
    "modes remove",
    "clusters",
    "clusters enroll",
    "clusters rotate",
    "clusters revoke",
    "daemons",
    "namespaces",
    "namespaces create",
    "tokens",
    "tokens create",
    "tokens revoke",
    "backup",
    "version",
    "completion",
];

#[test]
fn help_teaches_each_command() {
    for command in COMMANDS {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let ended = lakeshore(&arguments).run();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{command}");
        insta::assert_snapshot!(format!("help {command}").trim_end().replace(' ', "_"), ended.stdout());
    }
}

#[test]
fn a_wrong_command_line_is_explained_and_exits_with_2() {
    covers!("S107", "S130");
    for (name, arguments) in [
        ("unknown command", &["lanch"][..]),
        ("no subcommand", &["providers"]),
        ("no launcher", &["providers", "add", "demo"]),
        ("bad instance id", &["logs", "my-pod"]),
        ("bad name", &["providers", "show", "../up"]),
        ("two tokens", &["--token", "x", "--token-file", "y", "daemons"]),
        ("bad format", &["daemons", "-o", "xml"]),
    ] {
        let ended = lakeshore(arguments).run();
        assert_eq!((ended.code, ended.stdout()), (Some(2), ""), "{name}");
        insta::assert_snapshot!(format!("usage {name}").replace(' ', "_"), ended.stderr);
    }
}

#[test]
fn a_wrong_launch_exits_with_125_since_2_could_be_the_scripts_own() {
    covers!("S130");
    for arguments in
        [&["launch"][..], &["launch", "py"], &["launch", "py", "x.py", "--nod", "n"], &["--output", "json", "launch", "py", "x.py", "--node", "UP!"]]
    {
        assert_eq!(lakeshore(arguments).run().code, Some(125), "{arguments:?}");
    }
}

#[test]
fn without_arguments_the_first_steps_are_shown() {
    let ended = lakeshore(&[]).run();
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("First steps:"), "{}", ended.stderr);
}

#[test]
fn completion_is_made_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let ended = lakeshore(&["completion", shell]).run();
        assert_eq!(ended.code, Some(0), "{shell}");
        assert!(ended.stdout().contains("providers"), "{shell}");
    }
}
