//! Extractors whose refusals are problems like any other.

use std::sync::Arc;

use axum::extract::rejection::{BytesRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use serde::de::DeserializeOwned;

use super::{ApiError, App, Code, MAX_BODY};
use crate::wire::{MAX_VALUES, most_values};

/// Path parameters, percent-decoded.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(ApiError))]
pub(crate) struct Path<T>(pub(crate) T);

/// Query parameters.
#[derive(Debug, FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(ApiError))]
pub(crate) struct Query<T>(pub(crate) T);

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::new(Code::InvalidPath, rejection.body_text())
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(Code::InvalidPath, rejection.body_text())
    }
}

impl From<BytesRejection> for ApiError {
    fn from(rejection: BytesRejection) -> Self {
        if rejection.status() == http::StatusCode::PAYLOAD_TOO_LARGE {
            Self::new(Code::BodyTooLarge, format!("the body is over the limit of {MAX_BODY} bytes"))
        } else {
            Self::new(Code::InvalidJson, "the body was not received whole")
        }
    }
}

/// A JSON body, and its bytes as they came.
#[derive(Debug)]
pub(crate) struct Body<T> {
    pub(crate) value: T,
    pub(crate) bytes: Bytes,
}

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        if !is_json(request.headers()) {
            return Err(ApiError::new(Code::InvalidJson, "the body must be sent as Content-Type: application/json"));
        }
        let bytes = Bytes::from_request(request, app).await?;
        if most_values(&bytes) > MAX_VALUES {
            return Err(ApiError::new(Code::BodyTooLarge, format!("the body holds over {MAX_VALUES} JSON values")));
        }
        let value = serde_json::from_slice(&bytes).map_err(|error| ApiError::new(Code::InvalidJson, describe(&error)))?;
        Ok(Self { value, bytes })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// What a JSON error says, without a value that serde would quote: it may be a secret.
fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let names_only =
        ["unknown field", "missing field", "duplicate field", "expected", "EOF", "trailing", "key must", "control character", "invalid escape"];
    let at = format!("line {} column {}", error.line(), error.column());
    if names_only.iter().any(|start| text.starts_with(start)) && text.len() < 400 { text } else { format!("a value is of a wrong kind at {at}") }
}
