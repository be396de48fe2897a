//! Clients for the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::client::proxy::matcher::Matcher;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::types::KubeNamespace;

/// Where the kubelet writes the Pod's namespace. **Source:** `rest.InClusterConfig` in `k8s.io/client-go`.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// How long a TCP connection to the API server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// No client for the API server can be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// Not in a Pod with a ServiceAccount, and no kubeconfig either.
    #[error("this is no Pod with a ServiceAccount; for development give --kubeconfig FILE")]
    NotInCluster {
        #[source]
        source: InClusterError,
    },
    /// The kubeconfig cannot be used.
    #[error("kubeconfig {path} cannot be used")]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<KubeconfigError>,
    },
    /// It is not YAML of a kubeconfig. What the reader said is left out: it shows the lines around the fault, and these may hold a key.
    #[error("kubeconfig {path} is not the YAML of a kubeconfig")]
    NotAKubeconfig { path: PathBuf },
    /// kube cannot build a client.
    #[error("cannot make a client for the API server")]
    Build {
        #[source]
        source: Box<kube::Error>,
    },
}

/// One client for each kind of use: kube speaks HTTP/1.1, and a hundred log follows must not stand in the way of a delete.
pub(super) struct Clients {
    pub(super) calls: Client,
    pub(super) watches: Client,
    pub(super) follows: Client,
}

/// # Errors
/// [`ClientError`]: a configuration error.
pub(super) async fn clients(kubeconfig: Option<&Path>) -> Result<Clients, ClientError> {
    let mut config = match kubeconfig {
        // Never `Config::infer`: it obeys KUBECONFIG, the home folder and variables that redirect or impersonate.
        None => Config::incluster().map_err(|source| ClientError::NotInCluster { source })?,
        Some(path) => from_file(path).await.map_err(|source| match source {
            KubeconfigError::Parse(_) => ClientError::NotAKubeconfig { path: path.to_owned() },
            source => ClientError::Kubeconfig { path: path.to_owned(), source: Box::new(source) },
        })?,
    };
    config.default_retry = false; // it would repeat a POST whose outcome is not known, and sleep as long as a server asks
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let build = || Client::try_from(config.clone()).map_err(|source| ClientError::Build { source: Box::new(source) });
    Ok(Clients { calls: build()?, watches: build()?, follows: build()? })
}

async fn from_file(path: &Path) -> Result<Config, KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let own_proxy = kubeconfig.clusters.iter().any(|named| named.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some()));
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    if !own_proxy {
        // kube 5.0 compares NO_PROXY with the proxy's address instead of the cluster's: decided here by curl's rules.
        config.proxy_url = Matcher::from_env().intercept(&config.cluster_url).map(|proxy| proxy.uri().clone());
    }
    Ok(config)
}

/// The namespace that this daemon lives in, when it lives in a Pod.
pub(super) fn own_namespace() -> Option<KubeNamespace> {
    std::fs::read_to_string(NAMESPACE_FILE).ok()?.trim().parse().ok()
}

/// This machine's name, which in a Pod is the Pod's; for people who look at a Lease.
pub(super) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}
