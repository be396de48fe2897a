//! The REST interface: a file a resource. The contract is in the routes below and in `error.rs`.

mod auth;
mod clusters;
mod daemons;
mod error;
mod extract;
mod health;
mod instances;
mod launches;
mod logs;
mod modes;
mod namespaces;
mod providers;
mod tokens;
mod view;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{delete, get, post};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::disk::Disk;
use super::hub::{Hub, connect};
use super::store::Store;
use crate::wire::CONNECT_PATH;

pub(crate) use error::{ApiError, Code};
pub(crate) use tokens::{create as create_caller_token, draw as draw_caller_token, stored as stored_caller_token};

/// Longest body of a request, in bytes: 900 KiB of any script, escaped.
pub(crate) const MAX_BODY: usize = 2 << 20;

/// What handlers share.
pub(crate) struct App {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) disk: Disk,
    pub(crate) launch_wait: Duration,
    pub(crate) stale_after: Duration,
    /// Work that goes on when its caller hangs up, and that shutdown waits for.
    pub(crate) tasks: TaskTracker,
    /// Cancelled when the server stops: whatever waits for something to happen ends.
    pub(crate) stop: CancellationToken,
}

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let namespaced = Router::new()
        .route("/providers", get(providers::list).post(providers::create))
        .route("/providers/{provider}", get(providers::show).put(providers::replace).delete(providers::remove))
        .route("/providers/{provider}/test", post(providers::test))
        .route("/providers/{provider}/launch", post(launches::launch))
        .route("/providers/{provider}/instances", get(instances::list_of_provider))
        .route("/providers/{provider}/instances/{instance}", get(instances::show_of_provider).delete(instances::remove))
        .route("/providers/{provider}/instances/{instance}/logs", get(logs::of_provider))
        .route("/modes", get(modes::list).post(modes::create))
        .route("/modes/{mode}", get(modes::show).put(modes::replace).delete(modes::remove))
        .route("/instances", get(instances::list))
        .route("/instances/{instance}", get(instances::show))
        .route("/instances/{instance}/logs", get(logs::of_namespace));
    let protected = Router::new()
        .route("/v1/clusters", get(clusters::list).post(clusters::enroll))
        .route("/v1/clusters/{cluster}/tokens", post(clusters::rotate))
        .route("/v1/clusters/{cluster}/tokens/{token}", delete(clusters::revoke))
        .route("/v1/daemons", get(daemons::list))
        .route("/v1/namespaces", get(namespaces::list).post(namespaces::create))
        .nest("/v1/namespaces/{namespace}", namespaced)
        .route("/v1/tokens", get(tokens::list).post(tokens::create_route))
        .route("/v1/tokens/{token}", delete(tokens::revoke))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&app), auth::require_token));
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/v1/version", get(health::version))
        .route(CONNECT_PATH, get(connect::connect))
        .merge(protected)
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn(log_request))
        .with_state(app)
}

async fn no_route(request: Request) -> ApiError {
    ApiError::new(Code::RouteNotFound, format!("there is no path {:?}", request.uri().path().chars().take(200).collect::<String>()))
}

async fn no_method(request: Request) -> ApiError {
    ApiError::new(Code::MethodNotAllowed, format!("{} is not a method of this path; the header Allow lists those that are", request.method()))
}

/// One line a request: its route, never its query or headers.
async fn log_request(request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or_else(|| "unmatched".to_owned(), |path| path.as_str().to_owned());
    let response = next.run(request).await;
    let (status, elapsed_ms) = (response.status().as_u16(), u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    tracing::debug!(%method, route, status, elapsed_ms, "Request answered");
    response
}

type AppState = State<Arc<App>>;
