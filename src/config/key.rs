//! The keys: one row each.

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its path in the file, parts joined by dots.
    pub path: &'static str,
    /// Its environment variable.
    pub env: &'static str,
    /// Its flag, without the dashes.
    pub flag: &'static str,
    /// What holds when nobody sets it; `None` means that it is then absent or, for `required` keys, an error.
    pub default: Option<&'static str>,
}

const fn key(path: &'static str, env: &'static str, flag: &'static str, default: Option<&'static str>) -> Key {
    Key { path, env, flag, default }
}

/// Every key, in the order `--print-config` writes them. The chart's paths are the defaults.
pub const KEYS: [Key; 19] = [
    key("control_plane.url", "NYMPH_CONTROL_PLANE_URL", "control-plane-url", None),
    key("control_plane.token_file", "NYMPH_TOKEN_FILE", "token-file", Some("/var/run/nymph/token/token")),
    key("control_plane.identity_token_file", "NYMPH_IDENTITY_TOKEN_FILE", "identity-token-file", None),
    key("control_plane.ca_file", "NYMPH_CA_FILE", "ca-file", None),
    key("control_plane.server_name", "NYMPH_SERVER_NAME", "server-name", None),
    key("control_plane.proxy", "NYMPH_PROXY", "proxy", None),
    key("role", "NYMPH_ROLE", "role", Some("node")),
    key("node_name", "NYMPH_NODE_NAME", "node-name", None),
    key("policy_file", "NYMPH_POLICY_FILE", "policy-file", Some("/etc/nymph/policy.yaml")),
    key("workdir.root", "NYMPH_WORKDIR_ROOT", "workdir-root", Some("/var/lib/nymph/work")),
    key("health.listen", "NYMPH_HEALTH_LISTEN", "health-listen", Some("0.0.0.0:8081")),
    // kube_client logs whole response bodies at WARN when it cannot decode them.
    key("log.filter", "NYMPH_LOG", "log-filter", Some("info,kube_client=off,kube_runtime=off")),
    key("log.format", "NYMPH_LOG_FORMAT", "log-format", Some("json")),
    key("audit.file", "NYMPH_AUDIT_FILE", "audit-file", None),
    key("kubeconfig", "NYMPH_KUBECONFIG", "kubeconfig", None),
    key("lease.name", "NYMPH_LEASE_NAME", "lease-name", Some("nymph-cluster")),
    key("lease.seconds", "NYMPH_LEASE_SECONDS", "lease-seconds", Some("30")),
    // Below the 30 s that Kubernetes gives a Pod by default between SIGTERM and SIGKILL.
    key("drain_seconds", "NYMPH_DRAIN_SECONDS", "drain-seconds", Some("20")),
    key("namespace", "NYMPH_NAMESPACE", "own-namespace", None),
];
