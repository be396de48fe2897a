//! Wiring: from options to a server that runs, and back to one that has stopped politely.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::admin_socket::Desk;
use super::backup::Copied;
use super::clock::Clock;
use super::disk::Disk;
use super::http::App;
use super::hub::{Hub, HubSettings};
use super::logs::LogFiles;
use super::options::ServeOptions;
use super::store::{ExclusiveStore, LOGS, Put, SqliteStore, Store, StoreError, TokenRow};
use super::tls::{Certificate, TlsError};
use super::tokens::{TokenKind, new_id};
use super::{admin_socket, http, listen};
use crate::telemetry::{self, TelemetryError};

/// How long requests and sessions may take to end when the server stops.
const DRAIN: Duration = Duration::from_secs(10);

/// A server that could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The store cannot be used.
    #[error("open the store")]
    Store(#[from] StoreError),
    /// A file or folder in the data folder cannot be used.
    #[error("use {}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The address cannot be listened on.
    #[error("listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The certificate cannot be used.
    #[error("set up TLS")]
    Tls(#[from] TlsError),
    /// The bootstrap token cannot be used.
    #[error("take the bootstrap token from {}: {what}", path.display())]
    BootstrapToken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// The log cannot be set up.
    #[error("set up the log")]
    Log(#[from] TelemetryError),
    /// Signals cannot be waited for.
    #[error("wait for signals")]
    Signal(#[source] io::Error),
}

/// A control plane that runs in this process. Dropping it lets it run on; [`Server::stop`] ends it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
    go_away: GoAway,
    data: PathBuf,
}

struct GoAway(Arc<Hub>);

impl std::fmt::Debug for GoAway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GoAway")
    }
}

impl Server {
    /// Opens the store and listens. When this returns, the address takes connections.
    ///
    /// # Errors
    /// [`ServeError`] that names what is at fault; nothing runs then.
    pub async fn start(options: &ServeOptions) -> Result<Self, ServeError> {
        let exclusive = ExclusiveStore::open(&options.data)?;
        for notice in exclusive.notices() {
            tracing::warn!(data = %options.data.display(), "{notice}");
        }
        drop(Copied::in_folder(&options.data)); // of a backup that was killed
        let store: Arc<dyn Store> = Arc::new(SqliteStore::start(exclusive)?);
        if let Some(path) = &options.bootstrap_token_file {
            bootstrap(store.as_ref(), path).await?;
        }
        let certificate = match (&options.tls_cert, &options.tls_key) {
            (Some(chain), Some(key)) => Some(Arc::new(Certificate::open(chain.clone(), key.clone())?)),
            _ => None,
        };
        let folder = options.data.join(LOGS);
        let logs = LogFiles::open(folder.clone()).map_err(|source| ServeError::File { path: folder, source })?;
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let audience = options.audience.clone();
        let settings = HubSettings { lost_after: options.lost_after, log_limit: options.log_limit_bytes, audience };
        let hub = Arc::new(Hub::new(Arc::clone(&store), logs, settings, Clock::system(), tasks.clone(), stop.clone()));
        let app = Arc::new(App {
            store,
            hub: Arc::clone(&hub),
            disk: Disk::new(options.data.clone(), options.min_free_bytes),
            launch_wait: options.launch_wait,
            stale_after: options.stale_after,
            tasks: tasks.clone(),
            stop: stop.clone(),
        });
        let socket = admin_socket::bind(&options.data).map_err(|source| ServeError::File { path: options.data.join("admin.sock"), source })?;
        let failed = |source| ServeError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let desk = Desk { app: Arc::clone(&app), data: options.data.clone(), backup: Semaphore::new(1) };
        tasks.spawn(admin_socket::run(socket, desk, stop.clone()));
        tasks.spawn(listen::run(listener, certificate.clone(), http::router(app), stop.clone(), tasks.clone()));
        tracing::info!(address = %address, tls = certificate.is_some(), data = %options.data.display(), version = env!("CARGO_PKG_VERSION"), "Control plane listens");
        Ok(Self { address, stop, tasks, go_away: GoAway(hub), data: options.data.clone() })
    }

    /// Where it listens; the port that the system chose when the options said 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends daemons away, lets requests finish, and returns when all that was acknowledged is on disk; after 10 s at the latest.
    pub async fn stop(self) {
        self.go_away.0.go_away();
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(DRAIN, self.tasks.wait()).await.is_err() {
            tracing::warn!("Some requests did not finish in time");
        }
        drop(Copied::in_folder(&self.data)); // of a backup that this ends
        tracing::info!("Control plane stopped");
    }
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`] when it cannot start.
pub async fn serve(options: ServeOptions) -> Result<(), ServeError> {
    telemetry::init(&options.log_filter, options.log_format)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(ServeError::Signal)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(ServeError::Signal)?;
    let server = Server::start(&options).await?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    server.stop().await;
    Ok(())
}

/// Makes the token in `path` known as an admin's, in place of the one that an earlier start took from there.
async fn bootstrap(store: &dyn Store, path: &Path) -> Result<(), ServeError> {
    let text = std::fs::read_to_string(path).map_err(|source| ServeError::File { path: path.to_owned(), source })?;
    let wrong = |what| ServeError::BootstrapToken { path: path.to_owned(), what };
    let hash = TokenKind::Caller
        .hash(text.trim())
        .ok_or_else(|| wrong("it must hold one token: lakeshore_ and 43 characters of base64url (32 random bytes)"))?;
    let id = new_id().map_err(|_| wrong("the system gives no randomness"))?;
    let row = TokenRow { id, name: "admin".into(), hash, admin: true, bootstrap: true, namespaces: vec![], created_at: Timestamp::now() };
    match store.put_bootstrap_token(row).await? {
        Put::Done => Ok(()),
        Put::Exists | Put::SlugTaken { .. } | Put::Missing(_) => {
            Err(wrong("a token named admin was made by hand; revoke it, or leave this file out"))
        }
    }
}
