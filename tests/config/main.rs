//! Ring `config`: which layer wins, what is refused and what a message says. Needs nothing.

use std::collections::BTreeMap;

use clap::{Args, FromArgMatches};
use nymph::config::{Config, ConfigError, Flags, KEYS, resolve};
use nymph::error::Chain;
use nymph::types::Placement;

const MINIMAL: &str = "control_plane: {url: 'wss://lakeshore.example'}\nnode_name: n1\n";

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn flags(args: &[&str]) -> Flags {
    let command = Flags::augment_args(clap::Command::new("daemon").no_binary_name(true));
    Flags::from_arg_matches(&command.try_get_matches_from(args).expect("known flags")).expect("known flags")
}

fn from_file(text: &str) -> Result<Config, ConfigError> {
    resolve(Some(text), &BTreeMap::new(), &Flags::default())
}

fn message(error: &ConfigError) -> String {
    Chain(error).to_string()
}

#[test]
fn the_minimal_file_gives_every_default() {
    let config = from_file(MINIMAL).expect("two keys are enough");
    insta::assert_snapshot!(config.to_yaml());
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn what_is_printed_is_a_file_that_gives_the_same_configuration() {
    let text = "control_plane: {url: 'ws://127.0.0.1:1/x', ca_file: /ca, server_name: cp, proxy: 'http://p:1'}\nnode_name: '1'\nnamespace: own\n\
                drain_seconds: 7\nlog: {format: text, filter: 'debug,a=\"b\"'}\naudit: {file: /a}\nkubeconfig: /k\nhealth: {listen: '[::1]:9'}\n";
    let printed = from_file(text).expect("a good file").to_yaml();
    assert_eq!(from_file(&printed).expect("it was printed by us").to_yaml(), printed);
}

#[test]
fn a_flag_wins_over_the_environment_that_over_the_file_and_that_over_the_default() {
    // For every key at once: four texts that are valid and differ.
    let texts = |key: &str| match key {
        "control_plane.url" => ["wss://file", "wss://env", "wss://flag"],
        "control_plane.proxy" => ["http://file:1", "http://env:1", "http://flag:1"],
        "health.listen" => ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"],
        "log.format" => ["text", "json", "text"],
        "drain_seconds" => ["1", "2", "3"],
        "lease.seconds" => ["5", "6", "7"],
        "role" => ["node", "node", "node"],
        _ => ["/file", "/env", "/flag"],
    };
    for key in &KEYS {
        let plain = ["node_name", "namespace", "control_plane.server_name", "lease.name"].contains(&key.path);
        let [file, environment, flag] = texts(key.path).map(|text| if plain { text.trim_start_matches('/') } else { text });
        let nested = match key.path.split_once('.') {
            Some((section, name)) => format!("{section}: {{{name}: '{file}'}}\n"),
            None => format!("{}: '{file}'\n", key.path),
        };
        let required = [("control-plane-url", "wss://x"), ("node-name", "n")];
        let others: Vec<String> = required.iter().filter(|(name, _)| *name != key.flag).map(|(n, v)| format!("--{n}={v}")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let flagged = format!("--{}={flag}", key.flag);
        let all = [others.as_slice(), &[flagged.as_str()]].concat();
        let set = env(&[(key.env, environment)]);
        let shown = |config: Result<Config, ConfigError>| {
            let yaml = config.unwrap_or_else(|e| panic!("{}: {}", key.path, message(&e))).to_yaml();
            let name = key.path.rsplit('.').next().expect("a name");
            let section = key.path.split_once('.').map(|(section, _)| section);
            let mut lines = yaml.lines().skip_while(|line| section.is_some_and(|s| *line != format!("{s}:")));
            let line = lines.find(|line| line.trim_start().starts_with(&format!("{name}: "))).expect("every key is printed");
            line.split_once(": ").expect("a value").1.trim_matches('"').to_owned()
        };
        assert_eq!(shown(resolve(Some(&nested), &set, &flags(&all))), flag, "{}: flag over environment", key.path);
        assert_eq!(shown(resolve(Some(&nested), &set, &flags(&others))), environment, "{}: environment over file", key.path);
        assert_eq!(shown(resolve(Some(&nested), &BTreeMap::new(), &flags(&others))), file, "{}: file over default", key.path);
        if !required.iter().any(|(name, _)| *name == key.flag) {
            let default = shown(resolve(None, &env(&[(key.env, "")]), &flags(&others)));
            assert_eq!(default, key.default.unwrap_or("null"), "{}: an empty variable is none", key.path);
        }
    }
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_right_one() {
    for (text, expected) in [
        ("control_plain: {url: x}\n", "unknown key `control_plain` in the configuration file; did you mean `control_plane`?"),
        ("control_plane: {urll: x}\n", "unknown key `control_plane.urll` in the configuration file; did you mean `control_plane.url`?"),
        ("control_plane: {token: x}\n", "`control_plane.token_file`"),
        ("nodename: x\n", "did you mean `node_name`?"),
        ("control_plane: {node_name: x}\n", "unknown key `control_plane.node_name` in the configuration file; did you mean `node_name`?"),
        ("control_plane: {replicas: 3}\n", "known here: control_plane.url, control_plane.token_file"),
        (
            "replicas: 3\n",
            "known here: control_plane, role, node_name, policy_file, workdir, health, log, audit, kubeconfig, lease, drain_seconds, namespace",
        ),
        ("drain_seconds: {x: 1}\n", "key `drain_seconds` of the configuration file must be one value"),
        ("log: debug\n", "key `log` of the configuration file must be a section"),
        ("node_name: [a]\n", "key `node_name` of the configuration file must be one value"),
        ("- a\n", "must be a mapping"),
        ("node_name: a\nnode_name: b\n", "node_name"),
        ("node_name: 'a\n", "the configuration file is not understood"),
    ] {
        let error = from_file(text).expect_err(text);
        assert!(message(&error).contains(expected), "{text:?} gives {}", message(&error));
    }
}

#[test]
fn a_missing_value_says_the_three_ways_to_give_it() {
    let error = from_file("").expect_err("two keys are required");
    for way in ["`control_plane.url`", "NYMPH_CONTROL_PLANE_URL", "--control-plane-url"] {
        assert!(message(&error).contains(way), "{}", message(&error));
    }
    let error = from_file("control_plane: {url: 'wss://x'}\nnode_name: ''\n").expect_err("an empty name is none");
    assert!(message(&error).contains("NYMPH_NODE_NAME"), "{}", message(&error));
}

#[test]
fn a_bad_value_is_refused_where_it_was_written() {
    let good = [("NYMPH_CONTROL_PLANE_URL", "wss://x"), ("NYMPH_NODE_NAME", "n")];
    for (name, value, expected) in [
        ("NYMPH_CONTROL_PLANE_URL", "https://x", "write wss://x"),
        ("NYMPH_NODE_NAME", "Node_1", "not a valid node name"),
        ("NYMPH_WORKDIR_ROOT", "relative", "absolute path"),
        ("NYMPH_WORKDIR_ROOT", "/a/../b", "absolute path"),
        ("NYMPH_WORKDIR_ROOT", "/", "absolute path"),
        ("NYMPH_HEALTH_LISTEN", "8081", "ADDRESS:PORT"),
        ("NYMPH_LOG_FORMAT", "xml", "json or text"),
        ("NYMPH_DRAIN_SECONDS", "20s", "whole number of seconds"),
        ("NYMPH_DRAIN_SECONDS", "-1", "whole number of seconds"),
        ("NYMPH_DRAIN_SECONDS", "86400", "from 0 to 3600"),
        ("NYMPH_PROXY", "socks5://p", "only HTTP proxies"),
        ("NYMPH_SERVER_NAME", "https://cp", "bare host name"),
        ("NYMPH_ROLE", "master", "write node or cluster"),
        ("NYMPH_LEASE_SECONDS", "1", "from 3 to 600"),
        ("NYMPH_NAMESPACE", "A", "not a valid Kubernetes namespace"),
    ] {
        let mut vars = env(&good);
        vars.insert(name.to_owned(), value.to_owned());
        let error = resolve(None, &vars, &Flags::default()).expect_err(name);
        let text = message(&error);
        assert!(text.contains(expected) && text.contains(&format!("environment variable {name}")), "{text}");
    }
    let error = resolve(Some(MINIMAL), &BTreeMap::new(), &flags(&["--drain-seconds=x"])).expect_err("not a number");
    assert!(message(&error).contains("flag --drain-seconds"), "{}", message(&error));
    let error = from_file("control_plane: {url: 'ws//x'}\nnode_name: n\n").expect_err("not a URL");
    assert!(message(&error).contains("key `control_plane.url` of the configuration file"), "{}", message(&error));
}

#[test]
fn a_daemon_of_role_cluster_has_no_node() {
    let text = "control_plane: {url: 'wss://x'}\nrole: cluster\n";
    let config = from_file(text).expect("no node is needed");
    assert_eq!(config.boot.placement, Placement::Cluster);
    assert!(config.to_yaml().contains("role: \"cluster\"\nnode_name: null\n"), "{}", config.to_yaml());
    let error = from_file(&format!("{text}node_name: n1\n")).expect_err("a node's name contradicts the role");
    assert!(message(&error).contains("key `node_name`") && message(&error).contains("leave it out"), "{}", message(&error));
}

#[test]
fn an_unencrypted_address_of_another_machine_is_allowed_with_a_warning() {
    let config = from_file("control_plane: {url: 'ws://lakeshore.lakeshore.svc'}\nnode_name: n\n").expect("allowed");
    assert!(matches!(config.warnings.as_slice(), [one] if one.contains("lakeshore.lakeshore.svc") && one.contains("wss")), "{:?}", config.warnings);
    let config = from_file("control_plane: {url: 'ws://127.0.0.1:7420'}\nnode_name: n\n").expect("allowed");
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
}

#[test]
fn a_proxys_password_is_never_printed() {
    let text = format!("{MINIMAL}kubeconfig: null\n").replace("'}", "', proxy: 'http://me:canary@proxy.example:3128'}");
    let config = from_file(&text).expect("a proxy may have a password");
    assert!(!format!("{config:?}").contains("canary"));
    assert!(config.to_yaml().contains("http://(hidden)@proxy.example:3128") && !config.to_yaml().contains("canary"), "{}", config.to_yaml());
}

#[test]
fn every_key_has_a_flag_whose_help_names_key_and_variable() {
    let command = Flags::augment_args(clap::Command::new("daemon"));
    for key in &KEYS {
        let arg = command.get_arguments().find(|arg| arg.get_long() == Some(key.flag)).unwrap_or_else(|| panic!("--{} is missing", key.flag));
        let help = arg.get_help().expect("help").to_string();
        assert!(help.contains(&format!("[key {}]", key.path)) && help.contains(&format!("[env {}]", key.env)), "--{}: {help}", key.flag);
    }
    assert_eq!(command.get_arguments().filter(|arg| arg.get_long().is_some()).count(), KEYS.len());
}
