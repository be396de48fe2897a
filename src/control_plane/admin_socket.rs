//! The 0600 socket in the data folder, by which `lakeshore tokens create` reaches a running server: one JSON line each way.
//!
//! Whoever may open the socket owns the folder, and could read the database itself: no token is asked for.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::http::{self, App};
use super::store::{ExclusiveStore, StoreError};

/// Its name in the data folder.
const SOCKET: &str = "admin.sock";
/// Longest line either way, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// How long either side waits for the other.
const WAIT: Duration = Duration::from_secs(10);

/// A caller token to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name; shown as who asked.
    pub name: String,
    /// May do everything, in every namespace.
    #[serde(default)]
    pub admin: bool,
    /// The namespaces that it sees when it is not an admin's.
    #[serde(default)]
    pub namespaces: Vec<String>,
}

/// A caller token that was just made. The only moment at which its text is known.
#[derive(Debug)]
pub struct CreatedToken {
    /// Its id, by which it is revoked.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The token itself.
    pub token: SecretString,
}

/// A token that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The store cannot be used.
    #[error("make a token in the store")]
    Store(#[from] StoreError),
    /// The request was refused: what is wrong with it, and what to do.
    #[error("{0}")]
    Refused(String),
    /// A server holds the folder, and its socket did not answer.
    #[error("ask the server that runs on this data folder, by {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Request {
    CreateToken(NewToken),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Created { id: String, name: String, token: String },
    Refused(String),
}

/// The folder, held open, and a path to the socket through it: a socket's own path may have 107 bytes only.
fn through(folder: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let handle = File::open(folder)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}/{name}", handle.as_raw_fd()));
    Ok((handle, path))
}

/// Makes a caller token in the data folder `data`: through the running server when there is one, else in the store itself.
///
/// # Errors
/// [`TokenError`]; nothing was made then, unless the socket failed after the request was sent.
pub fn create_token(data: &Path, request: NewToken) -> Result<CreatedToken, TokenError> {
    match ExclusiveStore::open(data) {
        Ok(mut store) => {
            let refused = |error: http::ApiError| TokenError::Refused(error.text());
            let (row, created) = http::draw_caller_token(request).map_err(refused)?;
            let put = store.create_token(&row)?;
            http::stored_caller_token(&created.name, put).map_err(refused)?;
            Ok(created)
        }
        Err(StoreError::InUse { .. }) => {
            let answer = ask(data, &Request::CreateToken(request)).map_err(|source| TokenError::Socket { path: data.join(SOCKET), source })?;
            match answer {
                Answer::Created { id, name, token } => Ok(CreatedToken { id, name, token: token.into() }),
                Answer::Refused(why) => Err(TokenError::Refused(why)),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn ask(data: &Path, request: &Request) -> io::Result<Answer> {
    let (_handle, path) = through(data, SOCKET)?;
    let mut stream = StdStream::connect(path)?;
    stream.set_read_timeout(Some(WAIT))?;
    stream.set_write_timeout(Some(WAIT))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream.take(MAX_LINE)).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Makes the socket. One that an earlier process left is replaced: the folder's lock is held.
///
/// # Errors
/// What the system said.
pub(crate) fn bind(data: &Path) -> io::Result<UnixListener> {
    let (_handle, path) = through(data, SOCKET)?;
    let (_handle_too, fresh) = through(data, "admin.sock.new")?;
    match std::fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = StdListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, &path)?; // it is reachable by its name only once it has its mode
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// Answers until `stop` is cancelled.
pub(crate) async fn run(listener: UnixListener, app: Arc<App>, stop: CancellationToken) {
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let app = Arc::clone(&app);
                tokio::spawn(async move {
                    let served = timeout(WAIT, serve(stream, &app)).await;
                    if let Ok(Err(error)) = served {
                        tracing::warn!(error = %error, "A request on the admin socket failed");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(error = %error, "The admin socket could not accept");
                tokio::time::sleep(Duration::from_millis(100)).await; // a lack of file descriptors passes
            }
        }
    }
}

async fn serve(mut stream: UnixStream, app: &App) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = String::new();
    tokio::io::BufReader::new(reader.take(MAX_LINE)).read_line(&mut line).await?;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::CreateToken(request)) => match http::create_caller_token(app.store.as_ref(), request).await {
            Ok(created) => Answer::Created { id: created.id, name: created.name, token: created.token.expose_secret().to_owned() },
            Err(error) => Answer::Refused(error.text()),
        },
        Err(_) => Answer::Refused("the request is not understood; use the same release as the server's".into()),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    writer.write_all(&line).await
}
