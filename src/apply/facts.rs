//! What the API server says of itself, the node, and our rights.

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{GetParams, PostParams};
use kube::core::Request;

use super::call::{ApiServer, CallError};
use super::pod::unreadable;
use crate::types::{KubeNamespace, NodeName};
use crate::wire::ClusterKeys;

/// A right that the daemon needs in a run namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// `create`, `get`…
    pub verb: &'static str,
    /// API group of the resource; empty for the core's.
    pub group: &'static str,
    /// `pods`.
    pub resource: &'static str,
    /// `log`, or empty.
    pub subresource: &'static str,
}

impl Access {
    /// All that a daemon does to Pods.
    pub const NEEDED: [Self; 6] = [
        Self { verb: "create", group: "", resource: "pods", subresource: "" },
        Self { verb: "get", group: "", resource: "pods", subresource: "" },
        Self { verb: "list", group: "", resource: "pods", subresource: "" },
        Self { verb: "watch", group: "", resource: "pods", subresource: "" },
        Self { verb: "delete", group: "", resource: "pods", subresource: "" },
        Self { verb: "get", group: "", resource: "pods", subresource: "log" },
    ];
    /// What one of role `cluster` does to Jobs that a gone node has left.
    pub const OF_CLUSTER: [Self; 2] = [
        Self { verb: "list", group: "batch", resource: "jobs", subresource: "" },
        Self { verb: "delete", group: "batch", resource: "jobs", subresource: "" },
    ];
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.subresource.is_empty() { Ok(()) } else { write!(f, "/{}", self.subresource) }
    }
}

impl ApiServer {
    /// The server's version, such as `v1.33.1`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn version(&self) -> Result<String, CallError> {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let what = "read the version";
        let request = http::Request::get("/version").body(vec![]).map_err(|error| unreadable(what, &error))?;
        self.call::<Version>(what, &request).await.map(|version| version.git_version)
    }

    /// The Node object.
    ///
    /// # Errors
    /// [`CallError`]; 403 without the right, 404 when it does not exist.
    pub async fn node(&self, name: &NodeName) -> Result<Node, CallError> {
        let what = format!("read Node {name}");
        let request = Request::new("/api/v1/nodes").get(name.as_str(), &GetParams::default()).map_err(|error| unreadable(&what, &error))?;
        self.call(&what, &request).await
    }

    /// UID of the namespace `kube-system`, which names the cluster for as long as it lives.
    ///
    /// # Errors
    /// [`CallError`]; 403 without the right.
    pub async fn cluster_uid(&self) -> Result<Option<String>, CallError> {
        let what = "read Namespace kube-system";
        let request = Request::new("/api/v1/namespaces").get("kube-system", &GetParams::default()).map_err(|error| unreadable(what, &error))?;
        self.call::<Namespace>(what, &request).await.map(|namespace| namespace.metadata.uid)
    }

    /// Keys by which the cluster signs ServiceAccount tokens, and their issuer. Kubernetes lets every ServiceAccount read them.
    ///
    /// # Errors
    /// [`CallError`]; 403 where the cluster's owner took that right away.
    pub async fn signing_keys(&self) -> Result<ClusterKeys, CallError> {
        #[derive(serde::Deserialize)]
        struct Discovery {
            issuer: String,
        }
        let (discovery, keys) = ("read the issuer of ServiceAccount tokens", "read the keys of ServiceAccount tokens");
        let request = http::Request::get("/.well-known/openid-configuration").body(vec![]).map_err(|error| unreadable(discovery, &error))?;
        let Discovery { issuer } = self.call(discovery, &request).await?;
        let request = http::Request::get("/openid/v1/jwks").body(vec![]).map_err(|error| unreadable(keys, &error))?;
        Ok(ClusterKeys { issuer, jwks: self.call(keys, &request).await? })
    }

    /// Whether the daemon's account has a right in a namespace. Every account may ask this of itself.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn may(&self, namespace: &KubeNamespace, access: Access) -> Result<bool, CallError> {
        let what = format!("review the right to {access} in {namespace}");
        let review = serde_json::json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "namespace": namespace.as_str(), "verb": access.verb, "group": access.group, "resource": access.resource, "subresource": access.subresource,
            }},
        });
        let request = Request::new("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .create(&PostParams::default(), review.to_string().into_bytes())
            .map_err(|error| unreadable(&what, &error))?;
        let answer: SelfSubjectAccessReview = self.call(&what, &request).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}
