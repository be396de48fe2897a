//! What a caller is told when something cannot be done: `application/problem+json`, with a stable code for programs.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::control_plane::disk::Full;
use crate::control_plane::launch::{Invalid, InvalidCode};
use crate::control_plane::store::StoreError;
use crate::error::Chain;
use crate::types::InvalidName;
use crate::wire::{Rejection, RejectionCode};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal;)*) => {
        /// Stable codes of problems. The one table of HTTP statuses.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The code as it is sent.
            pub(crate) fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// The status that goes with it.
            pub(crate) fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    // The request itself.
    InvalidJson = "invalid_json", BAD_REQUEST, "The body is not the JSON that is expected";
    InvalidField = "invalid_field", BAD_REQUEST, "A field has a value that cannot be used";
    UnknownField = "unknown_field", BAD_REQUEST, "A field is not known here";
    FieldNotBuilt = "field_not_built", BAD_REQUEST, "A field is not built in this release";
    MissingImage = "missing_image", BAD_REQUEST, "No image is given";
    MissingScript = "missing_script", BAD_REQUEST, "No script is given";
    InvalidPath = "invalid_path", BAD_REQUEST, "The path or query is malformed";
    LauncherUnknown = "launcher_unknown", BAD_REQUEST, "There is no such launcher";
    LauncherNotBuilt = "launcher_not_built", BAD_REQUEST, "The launcher is not built in this release";
    DispatchNotBuilt = "dispatch_not_built", BAD_REQUEST, "The way of dispatching is not built in this release";
    ClusterUnknown = "cluster_unknown", BAD_REQUEST, "The cluster is not enrolled";
    ModeMismatch = "mode_mismatch", BAD_REQUEST, "The mode belongs to another provider";
    VersionRefused = "version_refused", UPGRADE_REQUIRED, "No common protocol version";
    BadHandshake = "bad_handshake", BAD_REQUEST, "This is not a daemon's handshake";
    Unauthorized = "unauthorized", UNAUTHORIZED, "No valid token was given";
    Forbidden = "forbidden", FORBIDDEN, "The token may not do this";
    BrowserRefused = "browser_refused", FORBIDDEN, "Browsers may not connect here";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "The path exists, the method does not";
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "The body is too large";
    // What it names.
    RouteNotFound = "route_not_found", NOT_FOUND, "There is no such path";
    NamespaceNotFound = "namespace_not_found", NOT_FOUND, "There is no such namespace";
    ProviderNotFound = "provider_not_found", NOT_FOUND, "There is no such provider";
    ModeNotFound = "mode_not_found", NOT_FOUND, "There is no such mode";
    InstanceNotFound = "instance_not_found", NOT_FOUND, "There is no such instance";
    NodeNotFound = "node_not_found", NOT_FOUND, "No daemon of that node is known";
    ClusterNotFound = "cluster_not_found", NOT_FOUND, "There is no such cluster";
    TokenNotFound = "token_not_found", NOT_FOUND, "There is no such token";
    AlreadyExists = "already_exists", CONFLICT, "The name is in use";
    SlugTaken = "slug_taken", CONFLICT, "Another name would share its labels";
    TwoTokens = "two_live_tokens", CONFLICT, "The cluster has two live enrolment tokens";
    ProviderInUse = "provider_in_use", CONFLICT, "The provider has open instances";
    KeyReused = "idempotency_key_reused", CONFLICT, "The idempotency key was used for another request";
    NameTaken = "name_taken", CONFLICT, "No free instance name was found";
    // What the cluster's side said.
    PolicyDenied = "policy_denied", FORBIDDEN, "The policy of the cluster's owner forbids this";
    DispatchInvalid = "invalid", UNPROCESSABLE_ENTITY, "The daemon cannot carry out this launch";
    ClusterRefused = "cluster_refused", UNPROCESSABLE_ENTITY, "The cluster refused to create the instance";
    DaemonUnavailable = "daemon_unavailable", SERVICE_UNAVAILABLE, "The daemon takes no work now";
    NoLiveDaemon = "no_live_daemon", SERVICE_UNAVAILABLE, "No daemon of the cluster is connected";
    NodeNotConnected = "node_not_connected", SERVICE_UNAVAILABLE, "The node's daemon is not connected";
    NoEligibleNode = "no_eligible_node", SERVICE_UNAVAILABLE, "No node can take the launch now";
    DaemonSilent = "daemon_silent", GATEWAY_TIMEOUT, "A daemon did not answer in time";
    // Ourselves.
    StoreFull = "store_full", INSUFFICIENT_STORAGE, "The control plane's disk is full";
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "The control plane cannot use its store";
    Internal = "internal", INTERNAL_SERVER_ERROR, "The control plane has a defect";
}

/// A problem, as it is sent. Texts name objects, fields and cures; never a value that could be secret.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: Code,
    detail: String,
    field: Option<String>,
    rule: Option<String>,
    cure: Option<String>,
}

impl ApiError {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), field: None, rule: None, cure: None }
    }

    /// What is wrong and what to do, as one line.
    pub(crate) fn text(&self) -> String {
        match &self.cure {
            Some(cure) => format!("{}: {cure}", self.detail),
            None => self.detail.clone(),
        }
    }

    /// Adds what to do.
    pub(crate) fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }

    /// Adds the field at fault.
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }
}

#[derive(Serialize)]
struct Problem<'a> {
    status: u16,
    code: &'a str,
    title: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cure: Option<&'a str>,
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let (code, status) = (self.code.as_str(), self.code.status());
        let problem = Problem {
            status: status.as_u16(),
            code,
            title: self.code.title(),
            detail: &self.detail,
            field: self.field.as_deref(),
            rule: self.rule.as_deref(),
            cure: self.cure.as_deref(),
        };
        let mut response = (status, Json(problem)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.code == Code::Unauthorized {
            response.headers_mut().insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        tracing::error!(error = %Chain(&error), "A request failed in the store");
        if error.is_full() {
            return Self::new(Code::StoreFull, "the disk under the data folder has no room for this; nothing of it was stored").cure(MAKE_ROOM);
        }
        Self::new(Code::StoreUnavailable, "the store did not answer; the server's log says why")
            .cure("try again; nothing is lost that was acknowledged")
    }
}

/// What to do about a full disk.
const MAKE_ROOM: &str = "free some room there, or give the data folder a larger disk; work is taken again as soon as there is room";

impl From<Full> for ApiError {
    fn from(full: Full) -> Self {
        Self::new(Code::StoreFull, full.to_string()).cure(MAKE_ROOM)
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        let code = match invalid.code {
            InvalidCode::InvalidField => Code::InvalidField,
            InvalidCode::UnknownField => Code::UnknownField,
            InvalidCode::FieldNotBuilt => Code::FieldNotBuilt,
            InvalidCode::MissingImage => Code::MissingImage,
            InvalidCode::MissingScript => Code::MissingScript,
        };
        Self { code, detail: format!("{}: {}", invalid.field, invalid.message), field: Some(invalid.field), rule: None, cure: invalid.cure }
    }
}

impl From<&Rejection> for ApiError {
    fn from(rejection: &Rejection) -> Self {
        let code = match rejection.code {
            RejectionCode::PolicyDenied => Code::PolicyDenied,
            RejectionCode::Invalid => Code::DispatchInvalid,
            RejectionCode::NameTaken => Code::NameTaken,
            RejectionCode::ClusterRefused => Code::ClusterRefused,
            RejectionCode::Unavailable | RejectionCode::Misdirected => Code::DaemonUnavailable,
        };
        Self { code, detail: rejection.message.clone(), field: None, rule: Some(rejection.rule.clone()), cure: None }
    }
}

/// The name that a request wants to give to something new.
pub(crate) fn new_name(text: &str) -> Result<crate::types::ResourceName, ApiError> {
    let invalid = |error: InvalidName| ApiError::new(Code::InvalidField, error.to_string()).field("name");
    let name = text.parse::<crate::types::ResourceName>().map_err(invalid)?;
    if crate::types::slug(name.as_str()).is_empty() {
        let detail = format!("{text:?} has no ASCII letter or digit, so no label can be made of it");
        return Err(ApiError::new(Code::InvalidField, detail).field("name"));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_makes_no_label_is_quoted_as_it_was_sent() {
        let error = new_name("é").expect_err("no ASCII letter");
        assert!(error.detail.starts_with("\"é\" has no ASCII letter"), "{}", error.detail);
    }

    #[test]
    fn the_table_of_codes_and_statuses_is_the_published_one() {
        let table: Vec<_> = Code::ALL.iter().map(|code| format!("{} {}", code.status().as_u16(), code.as_str())).collect();
        insta::assert_yaml_snapshot!(table);
    }
}
