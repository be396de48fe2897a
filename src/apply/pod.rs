//! Create, read and delete a Pod.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, GetParams, Preconditions};
use kube::core::Request;

use super::call::{ApiServer, CallError};
use super::remains::Kind;
use crate::types::{InstanceName, KubeNamespace};

/// Who the API server records as the writer of our fields.
const FIELD_MANAGER: &str = "nymph";

/// What became of a POST.
#[derive(Clone, Debug)]
pub enum CreateOutcome {
    /// The object exists and is the one that was sent.
    Created(Box<Pod>),
    /// An object of that name was there before.
    AlreadyExists,
    /// Refused: it was not made and will not be.
    Refused {
        /// HTTP status.
        code: u16,
        /// The cluster's words.
        message: String,
    },
    /// The API server could not be reached: nothing was sent, and nothing can come of it.
    NotSent {
        /// Why not.
        message: String,
    },
    /// It may or may not have been made, or may yet be: read before anything is said.
    Unclear {
        /// Why it is not known.
        message: String,
    },
}

/// What became of a DELETE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteOutcome {
    /// The API server took it; the object goes when its containers have stopped.
    Taken,
    /// No object of that name and UID is there any more.
    AlreadyGone,
    /// Not allowed.
    Refused {
        /// The cluster's words.
        message: String,
    },
    /// It may or may not have been taken: try again.
    Unclear {
        /// Why.
        message: String,
    },
}

impl ApiServer {
    /// POSTs a manifest. The server's strict field validation names unknown fields instead of dropping them.
    pub async fn create_pod(&self, namespace: &KubeNamespace, name: &InstanceName, manifest: &serde_json::Value) -> CreateOutcome {
        // kube's `PostParams` have no `fieldValidation`.
        let path = format!("/api/v1/namespaces/{namespace}/pods?fieldManager={FIELD_MANAGER}&fieldValidation=Strict");
        let request = serde_json::to_vec(manifest).map_err(|error| error.to_string());
        let request = request.and_then(|body| {
            http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json").body(body).map_err(|error| error.to_string())
        });
        let request = match request {
            Ok(request) => request,
            Err(message) => return CreateOutcome::Refused { code: 400, message },
        };
        match self.call::<Pod>(&format!("create Pod {namespace}/{name}"), &request).await {
            Ok(pod) => CreateOutcome::Created(Box::new(pod)),
            Err(CallError::Refused { code: 409, reason, .. }) if reason == "AlreadyExists" => CreateOutcome::AlreadyExists,
            Err(CallError::Refused { code, message, .. }) => CreateOutcome::Refused { code, message },
            Err(error @ CallError::NotSent { .. }) => CreateOutcome::NotSent { message: error.to_string() },
            Err(unclear) => CreateOutcome::Unclear { message: unclear.to_string() },
        }
    }

    /// Reads a Pod as etcd has it now (no `resourceVersion`: never from a cache that lags). `None` when it does not exist.
    ///
    /// # Errors
    /// [`CallError`]; a Pod that does not exist is not an error.
    pub async fn read_pod(&self, namespace: &KubeNamespace, name: &InstanceName) -> Result<Option<Box<Pod>>, CallError> {
        let what = format!("read Pod {namespace}/{name}");
        let request = pods(namespace).get(name.as_str(), &GetParams::default()).map_err(|error| unreadable(&what, &error))?;
        match self.call::<Pod>(&what, &request).await {
            Ok(pod) => Ok(Some(Box::new(pod))),
            Err(CallError::Refused { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the object of that name if it still has that UID. `force` leaves no grace: nobody is there who could end it.
    pub async fn delete(&self, kind: Kind, namespace: &KubeNamespace, name: &str, uid: &str, force: bool) -> DeleteOutcome {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let mut params = DeleteParams::background().preconditions(preconditions);
        params.grace_period_seconds = force.then_some(0);
        let request = match Request::new(kind.path(namespace)).delete(name, &params) {
            Ok(request) => request,
            Err(error) => return DeleteOutcome::Unclear { message: error.to_string() },
        };
        // The answer is the Pod or a Status: neither is needed.
        match self.call::<serde::de::IgnoredAny>(&format!("delete {} {namespace}/{name}", kind.name()), &request).await {
            Ok(_) => DeleteOutcome::Taken,
            Err(CallError::Refused { code: 404 | 409, .. }) => DeleteOutcome::AlreadyGone,
            Err(CallError::Refused { code: 429, message, .. }) => DeleteOutcome::Unclear { message },
            Err(CallError::Refused { message, .. }) => DeleteOutcome::Refused { message },
            Err(error) => DeleteOutcome::Unclear { message: error.to_string() },
        }
    }
}

fn pods(namespace: &KubeNamespace) -> Request {
    Request::new(Kind::Pod.path(namespace))
}

pub(super) fn unreadable(what: &str, error: &dyn std::fmt::Display) -> CallError {
    CallError::Unreadable { what: what.to_owned(), detail: error.to_string() }
}
