//! Layers of texts become one checked configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::error::{ConfigError, Origin};
use super::file;
use super::flags::Flags;
use super::key::{KEYS, Key};
use super::url::{self, Transport};
use crate::types::{KubeNamespace, Placement, ResourceName};

/// The daemon's configuration: complete and checked.
#[derive(Clone, Debug)]
pub struct Config {
    /// A change of it needs a restart.
    pub boot: Boot,
    /// A change of it can be taken while the daemon runs.
    pub live: Live,
    /// What is allowed and still not wise; each is worth a line in the log.
    pub warnings: Vec<String>,
}

/// Who the daemon is, whom it trusts and where its things are.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The control plane.
    pub control_plane: ControlPlane,
    /// What the daemon answers for: its node, or the cluster.
    pub placement: Placement,
    /// The Lease that a daemon of role `cluster` must hold.
    pub lease: Lease,
    /// The daemon's own Kubernetes namespace, when it was told; else that of its ServiceAccount counts.
    pub namespace: Option<KubeNamespace>,
    /// Root of all workdirs.
    pub workdir_root: PathBuf,
    /// Where `/healthz` and `/readyz` are served.
    pub health_listen: SocketAddr,
    /// How log lines look.
    pub log_format: LogFormat,
    /// A file for audit lines beside stdout.
    pub audit_file: Option<PathBuf>,
    /// A kubeconfig instead of the Pod's ServiceAccount.
    pub kubeconfig: Option<PathBuf>,
    /// Longest time between SIGTERM and exit.
    pub drain: Duration,
    /// The policy file. Its *content* is live: it is watched.
    pub policy_file: PathBuf,
}

/// How the control plane is reached.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    /// `ws://` or `wss://`, checked, without user or password.
    pub url: String,
    /// File with the enrolment token; its content is live.
    pub token_file: PathBuf,
    /// File with the projected ServiceAccount token that proves who the daemon is; its content is live.
    pub identity_token_file: Option<PathBuf>,
    /// PEM bundle that replaces the system's roots.
    pub ca_file: Option<PathBuf>,
    /// TLS name to expect.
    pub server_name: Option<String>,
    /// Proxy, which may carry user and password; `None` leaves it to `HTTPS_PROXY` and `NO_PROXY`.
    pub proxy: Option<SecretString>,
}

/// The Lease of the daemons of role `cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name, in the daemon's own namespace.
    pub name: ResourceName,
    /// How long it counts without being renewed.
    pub duration: Duration,
}

/// What can change while the daemon runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// What is logged, in `tracing`'s language.
    pub log_filter: String,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "json",
            Self::Text => "text",
        })
    }
}

/// Puts the layers together: flag, environment, file, default.
///
/// # Errors
/// [`ConfigError`], which names the key, variable or flag at fault and what to write.
pub fn resolve(file: Option<&str>, env: &BTreeMap<String, String>, flags: &Flags) -> Result<Config, ConfigError> {
    let layers = Layers { file: file.map(file::flatten).transpose()?.unwrap_or_default(), env, flags };
    let mut warnings = Vec::new();
    let url = layers.required("control_plane.url", "the control plane's address", |text| {
        if let Transport::Clear { host } = url::control_plane(text)? {
            let warning = "scripts, their environment and the enrolment token cross the network unencrypted; use wss";
            warnings.push(format!("control_plane.url is ws:// to {host}: {warning}"));
        }
        Ok(text.to_owned())
    })?;
    let control_plane = ControlPlane {
        url,
        token_file: layers.required("control_plane.token_file", "the enrolment token's file", path)?,
        identity_token_file: layers.optional("control_plane.identity_token_file", path)?,
        ca_file: layers.optional("control_plane.ca_file", path)?,
        server_name: layers.optional("control_plane.server_name", server_name)?,
        proxy: layers.optional("control_plane.proxy", |text| url::proxy(text).map(|()| SecretString::from(text)))?,
    };
    let boot = Boot {
        control_plane,
        placement: placement(&layers)?,
        lease: Lease {
            name: layers.required("lease.name", "the Lease's name", name)?,
            duration: layers.required("lease.seconds", "the Lease's duration", lease_seconds)?,
        },
        namespace: layers.optional("namespace", name)?,
        workdir_root: layers.required("workdir.root", "the workdir root", root)?,
        health_listen: layers.required("health.listen", "the health address", |text| {
            text.parse().map_err(|_| format!("{text:?} is not ADDRESS:PORT such as 0.0.0.0:8081 or [::]:8081"))
        })?,
        log_format: layers.required("log.format", "the log format", log_format)?,
        audit_file: layers.optional("audit.file", path)?,
        kubeconfig: layers.optional("kubeconfig", path)?,
        drain: layers.required("drain_seconds", "the drain time", drain)?,
        policy_file: layers.required("policy_file", "the policy file", path)?,
    };
    let live = Live { log_filter: layers.required("log.filter", "the log filter", |text| Ok(text.to_owned()))? };
    Ok(Config { boot, live, warnings })
}

struct Layers<'a> {
    file: BTreeMap<&'static str, String>,
    env: &'a BTreeMap<String, String>,
    flags: &'a Flags,
}

impl Layers<'_> {
    /// The text that counts for `key`, and where it came from. Empty ones do not count.
    fn text(&self, key: &'static Key) -> Option<(&str, Origin)> {
        let flag = self.flags.value(key.flag).map(|text| (text, Origin::Flag(key.flag)));
        let env = self.env.get(key.env).map(|text| (text.as_str(), Origin::Env(key.env)));
        let file = self.file.get(key.path).map(|text| (text.as_str(), Origin::File(key.path)));
        let default = key.default.map(|text| (text, Origin::Default(key.path)));
        [flag, env, file, default].into_iter().flatten().find(|(text, _)| !text.is_empty())
    }

    fn optional<T>(&self, path: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<Option<T>, ConfigError> {
        let Some((text, origin)) = KEYS.iter().find(|key| key.path == path).and_then(|key| self.text(key)) else { return Ok(None) };
        parse(text).map(Some).map_err(|why| ConfigError::Value { origin, why })
    }

    fn required<T>(&self, path: &'static str, what: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Result<T, ConfigError> {
        let (env, flag) = KEYS.iter().find(|key| key.path == path).map_or(("", ""), |key| (key.env, key.flag));
        self.optional(path, parse)?.ok_or(ConfigError::Missing { what, path, env, flag })
    }
}

/// A node's daemon needs its node's name; one of the cluster has none, and a name by mistake would be a daemon in a wrong place.
fn placement(layers: &Layers<'_>) -> Result<Placement, ConfigError> {
    let cluster = layers.required("role", "the role", |text| match text {
        "node" => Ok(false),
        "cluster" => Ok(true),
        other => Err(format!("{other:?} is no role; write node or cluster")),
    })?;
    if !cluster {
        return layers.required("node_name", "the node's name", name).map(Placement::Node);
    }
    let why = "a daemon of role cluster works for no node: leave it out, or set role to node";
    layers.optional("node_name", |_| Err::<Placement, _>(why.to_owned()))?;
    Ok(Placement::Cluster)
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.contains('\0') { Err("it has a NUL byte".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// The same path is given to the kubelet as a hostPath, so it must mean the same to both.
fn root(text: &str) -> Result<PathBuf, String> {
    let root = Path::new(text);
    let plain = root.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if root.is_absolute() && plain && root.file_name().is_some() && !text.contains('\0') {
        Ok(root.components().collect())
    } else {
        Err(format!("{text:?} is not an absolute path below '/' without '..'; write one such as /var/lib/nymph/work"))
    }
}

fn name<T: std::str::FromStr<Err: fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{error}"))
}

fn server_name(text: &str) -> Result<String, String> {
    if text.contains(['/', ':', ' ']) && text.parse::<std::net::IpAddr>().is_err() {
        return Err(format!("{text:?} is not a bare host name, as it stands in the certificate"));
    }
    Ok(text.to_owned())
}

fn log_format(text: &str) -> Result<LogFormat, String> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        other => Err(format!("{other:?} is not a log format; write json or text")),
    }
}

fn drain(text: &str) -> Result<Duration, String> {
    // An hour: more is a slip, since a Pod that is asked to end is killed long before.
    match text.parse::<u64>() {
        Ok(seconds) if seconds <= 3_600 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is not a whole number of seconds from 0 to 3600")),
    }
}

fn lease_seconds(text: &str) -> Result<Duration, String> {
    // Below three seconds a slow API server would take the Lease away.
    match text.parse::<u64>() {
        Ok(seconds) if (3..=600).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("{text:?} is not a whole number of seconds from 3 to 600")),
    }
}

impl Config {
    /// The configuration as a file that would give it, for `--print-config`. User and password of a proxy are hidden.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        let mut section = "";
        for key in &KEYS {
            let (head, name) = key.path.split_once('.').unwrap_or(("", key.path));
            if head != section && !head.is_empty() {
                text.push_str(&format!("{head}:\n"));
            }
            section = head;
            let value = self.value(key.path).map_or_else(|| "null".to_owned(), |value| if value.1 { value.0 } else { quote(&value.0) });
            text.push_str(&format!("{}{name}: {value}\n", if head.is_empty() { "" } else { "  " }));
        }
        text
    }

    /// The text of a key, and whether it is a bare number.
    fn value(&self, path: &str) -> Option<(String, bool)> {
        let Boot { control_plane: cp, .. } = &self.boot;
        let file = |path: &PathBuf| path.to_string_lossy().into_owned();
        let text = match path {
            "control_plane.url" => cp.url.clone(),
            "control_plane.token_file" => file(&cp.token_file),
            "control_plane.identity_token_file" => cp.identity_token_file.as_ref().map(file)?,
            "control_plane.ca_file" => cp.ca_file.as_ref().map(file)?,
            "control_plane.server_name" => cp.server_name.clone()?,
            "control_plane.proxy" => cp.proxy.as_ref().map(hide)?,
            "role" => self.boot.placement.role().to_string(),
            "node_name" => self.boot.placement.node()?.to_string(),
            "policy_file" => file(&self.boot.policy_file),
            "workdir.root" => file(&self.boot.workdir_root),
            "health.listen" => self.boot.health_listen.to_string(),
            "log.filter" => self.live.log_filter.clone(),
            "log.format" => self.boot.log_format.to_string(),
            "audit.file" => self.boot.audit_file.as_ref().map(file)?,
            "kubeconfig" => self.boot.kubeconfig.as_ref().map(file)?,
            "lease.name" => self.boot.lease.name.to_string(),
            "lease.seconds" => return Some((self.boot.lease.duration.as_secs().to_string(), true)),
            "drain_seconds" => return Some((self.boot.drain.as_secs().to_string(), true)),
            "namespace" => self.boot.namespace.as_ref().map(KubeNamespace::to_string)?,
            _ => return None,
        };
        Some((text, false))
    }
}

/// A JSON string, which is a YAML string in every version of YAML.
fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn hide(proxy: &SecretString) -> String {
    match proxy.expose_secret().rsplit_once('@') {
        Some((_, place)) => format!("http://(hidden)@{place}"),
        None => proxy.expose_secret().to_owned(),
    }
}
