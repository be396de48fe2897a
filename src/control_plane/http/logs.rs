//! Log bytes over HTTP: exactly the container's, from any offset, to the end or for as long as they come.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use tokio::sync::watch;

use super::auth::Caller;
use super::extract::{Path, Query};
use super::instances::visible;
use super::{ApiError, App, AppState, Code};
use crate::control_plane::store::{Instance, StoreError};

/// Bytes that are read from disk at a time: what one slow reader holds in memory.
const PIECE: usize = 64 << 10;
/// Offset of the body's first byte.
const OFFSET: HeaderName = HeaderName::from_static("x-nymph-log-offset");
/// Set when the log went over its limit: how many bytes of its end were not stored by the time of the answer.
const DROPPED: HeaderName = HeaderName::from_static("x-nymph-log-dropped-bytes");

/// What part of a log is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    #[serde(default)]
    follow: bool,
    #[serde(default)]
    offset: u64,
}

/// `GET …/providers/{name}/instances/{id}/logs`.
pub(super) async fn of_provider(
    caller: Caller,
    State(app): AppState,
    Path((namespace, provider, id)): Path<(String, String, String)>,
    Query(part): Query<Part>,
) -> Result<Response, ApiError> {
    let row = visible(&app, &caller, &namespace, Some(&provider), &id).await?;
    answer(app, row, part)
}

/// `GET …/instances/{id}/logs`.
pub(super) async fn of_namespace(
    caller: Caller,
    State(app): AppState,
    Path((namespace, id)): Path<(String, String)>,
    Query(part): Query<Part>,
) -> Result<Response, ApiError> {
    let row = visible(&app, &caller, &namespace, None, &id).await?;
    answer(app, row, part)
}

fn answer(app: Arc<App>, row: Instance, part: Part) -> Result<Response, ApiError> {
    if part.offset > row.log.stored {
        let detail = format!("offset {} is beyond the {} bytes that are stored of the log of {}", part.offset, row.log.stored, row.name);
        return Err(ApiError::new(Code::InvalidPath, detail).field("offset"));
    }
    let dropped = row.log_dropped();
    let reader = Reader { changes: app.hub.changes.subscribe(&row.dispatch_id), app, row, offset: part.offset, follow: part.follow };
    let body = stream::try_unfold(reader, |mut reader| async move { Ok::<_, ReadError>(reader.next().await?.map(|bytes| (bytes, reader))) });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(OFFSET, part.offset.into());
    if dropped > 0 {
        headers.insert(DROPPED, dropped.into());
    }
    Ok(response)
}

/// Why a body ends before its log does: the connection is cut, so that a reader never takes a part for the whole.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("read a log segment")]
    Segment(#[from] std::io::Error),
    #[error("read how far the log has come")]
    Store(#[from] StoreError),
    #[error("the reader was stopped")]
    Join(#[from] tokio::task::JoinError),
    #[error("the control plane stops")]
    Stopping,
}

/// One reader's place in a log. Nothing is read ahead: it goes as fast as its connection takes bytes.
struct Reader {
    app: Arc<App>,
    changes: watch::Receiver<()>,
    row: Instance,
    offset: u64,
    follow: bool,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        loop {
            if self.app.stop.is_cancelled() {
                return Err(ReadError::Stopping);
            }
            if self.offset < self.row.log.stored {
                let left = usize::try_from(self.row.log.stored - self.offset).unwrap_or(PIECE);
                let (logs, name, offset) = (self.app.hub.logs.clone(), self.row.name.clone(), self.offset);
                let bytes = tokio::task::spawn_blocking(move || logs.read(&name, offset, left.min(PIECE))).await??;
                self.offset += bytes.len() as u64;
                return Ok(Some(bytes));
            }
            if !self.follow {
                return Ok(None);
            }
            self.changes.mark_unchanged(); // before the row is read: what changes from here on is seen below
            let fresh = self.app.store.instance_of(self.row.dispatch_id.clone()).await?;
            let grown = fresh.as_ref().is_some_and(|row| row.log.stored > self.offset);
            self.row = match fresh {
                Some(row) => row,
                None => return Ok(None),
            };
            if grown {
                continue;
            }
            if self.row.log_done() {
                return Ok(None);
            }
            match self.app.stop.run_until_cancelled(self.changes.changed()).await {
                Some(Ok(())) => {}
                Some(Err(_)) | None => return Err(ReadError::Stopping),
            }
        }
    }
}
