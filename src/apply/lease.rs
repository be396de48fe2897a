//! The Lease by which one of several daemons of role `cluster` is the one that acts.

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, PostParams};
use kube::core::Request;

use super::call::{ApiServer, CallError};
use super::pod::unreadable;
use crate::types::{KubeNamespace, ResourceName};

impl ApiServer {
    /// Reads a Lease as etcd has it now; `None` when it does not exist.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn read_lease(&self, namespace: &KubeNamespace, name: &ResourceName) -> Result<Option<Lease>, CallError> {
        let what = format!("read Lease {namespace}/{name}");
        let request = leases(namespace).get(name.as_str(), &GetParams::default()).map_err(|error| unreadable(&what, &error))?;
        match self.call(&what, &request).await {
            Ok(lease) => Ok(Some(lease)),
            Err(CallError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a Lease; `None` when somebody else was first.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn create_lease(&self, namespace: &KubeNamespace, name: &ResourceName, lease: &Lease) -> Result<Option<Lease>, CallError> {
        let what = format!("create Lease {namespace}/{name}");
        let body = serde_json::to_vec(lease).map_err(|error| unreadable(&what, &error))?;
        let request = leases(namespace).create(&PostParams::default(), body).map_err(|error| unreadable(&what, &error))?;
        self.unless_conflict(&what, &request).await
    }

    /// Replaces a Lease that is still as it was read (its resourceVersion is in it); `None` when somebody else was first.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn replace_lease(&self, namespace: &KubeNamespace, name: &ResourceName, lease: &Lease) -> Result<Option<Lease>, CallError> {
        let what = format!("update Lease {namespace}/{name}");
        let body = serde_json::to_vec(lease).map_err(|error| unreadable(&what, &error))?;
        let request = leases(namespace).replace(name.as_str(), &PostParams::default(), body).map_err(|error| unreadable(&what, &error))?;
        self.unless_conflict(&what, &request).await
    }

    async fn unless_conflict(&self, what: &str, request: &http::Request<Vec<u8>>) -> Result<Option<Lease>, CallError> {
        match self.call(what, request).await {
            Ok(lease) => Ok(Some(lease)),
            Err(CallError::Refused { code: 409, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn leases(namespace: &KubeNamespace) -> Request {
    Request::new(format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"))
}
