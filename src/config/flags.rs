//! Flags of `nymph daemon`.

use clap::Args;

/// What can be set on the command line. Each flag wins over its environment variable and its key in the file.
///
/// There is none for the enrolment token: command lines can be read by everybody on the machine.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Control plane to dial: wss://HOST or wss://HOST:PORT/PREFIX [key control_plane.url] [env NYMPH_CONTROL_PLANE_URL]
    #[arg(long, value_name = "URL")]
    pub control_plane_url: Option<String>,
    /// File with the enrolment token that `lakeshore clusters enroll` printed [key control_plane.token_file] [env NYMPH_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<String>,
    /// File with the projected ServiceAccount token that proves which daemon this is; without it the control plane has the enrolment token's
    /// word only [key control_plane.identity_token_file] [env NYMPH_IDENTITY_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub identity_token_file: Option<String>,
    /// PEM file of the CAs to trust instead of the system's [key control_plane.ca_file] [env NYMPH_CA_FILE]
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<String>,
    /// TLS name to expect instead of the URL's host [key control_plane.server_name] [env NYMPH_SERVER_NAME]
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// HTTP proxy: http://HOST:PORT; without it HTTPS_PROXY and NO_PROXY count [key control_plane.proxy] [env NYMPH_PROXY]
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// `node`: one daemon on each node, for what runs there; `cluster`: one for the whole cluster [key role] [env NYMPH_ROLE]
    #[arg(long, value_name = "ROLE")]
    pub role: Option<String>,
    /// The Kubernetes node this daemon works for; with role `cluster` none [key node_name] [env NYMPH_NODE_NAME]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// The cluster owner's policy [key policy_file] [env NYMPH_POLICY_FILE]
    #[arg(long, value_name = "FILE")]
    pub policy_file: Option<String>,
    /// Folder of the node below which workdirs are made [key workdir.root] [env NYMPH_WORKDIR_ROOT]
    #[arg(long, value_name = "DIR")]
    pub workdir_root: Option<String>,
    /// Address of /healthz and /readyz [key health.listen] [env NYMPH_HEALTH_LISTEN]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub health_listen: Option<String>,
    /// What is logged, such as `info` or `debug,kube_client=off,kube_runtime=off` [key log.filter] [env NYMPH_LOG]
    #[arg(long, value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// `json` or `text` [key log.format] [env NYMPH_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// File that gets the audit lines too; stdout always gets them [key audit.file] [env NYMPH_AUDIT_FILE]
    #[arg(long, value_name = "FILE")]
    pub audit_file: Option<String>,
    /// Kubeconfig, for development; without it the Pod's own ServiceAccount counts [key kubeconfig] [env NYMPH_KUBECONFIG]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// Name of the Lease in the daemon's own namespace that one daemon of role `cluster` holds [key lease.name] [env NYMPH_LEASE_NAME]
    #[arg(long, value_name = "NAME")]
    pub lease_name: Option<String>,
    /// How long a Lease counts that is not renewed, in seconds; it is renewed three times as often [key lease.seconds] [env NYMPH_LEASE_SECONDS]
    #[arg(long, value_name = "SECONDS")]
    pub lease_seconds: Option<String>,
    /// Longest time between SIGTERM and exit, in seconds [key drain_seconds] [env NYMPH_DRAIN_SECONDS]
    #[arg(long, value_name = "SECONDS")]
    pub drain_seconds: Option<String>,
    /// The daemon's own Kubernetes namespace; without it that of its ServiceAccount [key namespace] [env NYMPH_NAMESPACE]
    #[arg(long, value_name = "NAMESPACE")]
    pub own_namespace: Option<String>,
}

impl Flags {
    /// The value of the flag `--name`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let field = match name {
            "control-plane-url" => &self.control_plane_url,
            "token-file" => &self.token_file,
            "identity-token-file" => &self.identity_token_file,
            "ca-file" => &self.ca_file,
            "server-name" => &self.server_name,
            "proxy" => &self.proxy,
            "role" => &self.role,
            "node-name" => &self.node_name,
            "policy-file" => &self.policy_file,
            "workdir-root" => &self.workdir_root,
            "health-listen" => &self.health_listen,
            "log-filter" => &self.log_filter,
            "log-format" => &self.log_format,
            "audit-file" => &self.audit_file,
            "kubeconfig" => &self.kubeconfig,
            "lease-name" => &self.lease_name,
            "lease-seconds" => &self.lease_seconds,
            "drain-seconds" => &self.drain_seconds,
            "own-namespace" => &self.own_namespace,
            _ => return None,
        };
        field.as_deref()
    }
}
