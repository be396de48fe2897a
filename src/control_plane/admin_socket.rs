//! The 0600 socket in the data folder, by which `lakeshore tokens create` and `lakeshore backup` reach a running server: one JSON
//! line each way. A backup's archive comes between two such lines, in chunks: four bytes of length each, big-endian, and none after
//! one of length 0.
//!
//! Whoever may open the socket owns the folder, and could read the database itself: no token is asked for.

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
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
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::backup::{BackedUp, BackupError, Copied, Counting, Plan};
use super::http::{self, App};
use super::store::{ExclusiveStore, StoreError};
use crate::error::Chain;

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
    /// What the operator must know of how the database was found, when no server had opened it.
    pub notices: Vec<String>,
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
    BackUp {},
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Created {
        id: String,
        name: String,
        token: String,
    },
    Refused(String),
    /// An archive comes, with so many bytes of content.
    Archive {
        bytes: u64,
    },
    BackedUp(BackedUp),
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
            let (row, mut created) = http::draw_caller_token(request).map_err(refused)?;
            let put = store.create_token(&row)?;
            http::stored_caller_token(&created.name, put).map_err(refused)?;
            created.notices = store.notices().to_vec();
            Ok(created)
        }
        Err(StoreError::InUse { .. }) => {
            let answer = ask(data, &Request::CreateToken(request)).map_err(|source| TokenError::Socket { path: data.join(SOCKET), source })?;
            match answer {
                Answer::Created { id, name, token } => Ok(CreatedToken { id, name, token: token.into(), notices: vec![] }),
                Answer::Refused(why) => Err(TokenError::Refused(why)),
                Answer::Archive { .. } | Answer::BackedUp(_) => {
                    let source = io::Error::new(io::ErrorKind::InvalidData, "the answer is not one to a new token");
                    Err(TokenError::Socket { path: data.join(SOCKET), source })
                }
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn ask(data: &Path, request: &Request) -> io::Result<Answer> {
    let (_handle, path) = through(data, SOCKET)?;
    let stream = StdStream::connect(path)?;
    stream.set_read_timeout(Some(WAIT))?;
    send(&stream, request)?;
    read_answer(&mut BufReader::new(stream))
}

fn send(mut stream: &StdStream, line: &impl Serialize) -> io::Result<()> {
    stream.set_write_timeout(Some(WAIT))?;
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_answer(stream: &mut impl BufRead) -> io::Result<Answer> {
    let mut answer = String::new();
    stream.take(MAX_LINE).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

/// Has the running server write a backup to `out`.
pub(super) fn back_up(data: &Path, out: &mut dyn Write, progress: &mut dyn FnMut(u64, u64)) -> Result<BackedUp, BackupError> {
    let at = |source| BackupError::Socket { path: data.join(SOCKET), source };
    let connect = || {
        let (_handle, path) = through(data, SOCKET)?;
        let stream = StdStream::connect(path)?; // without a time-out for reading: the copy of a large database takes its time
        send(&stream, &Request::BackUp {})?;
        Ok(BufReader::new(stream))
    };
    let mut stream = connect().map_err(at)?;
    let odd = || at(io::Error::new(io::ErrorKind::InvalidData, "the answer is not one to a backup; use the server's release"));
    let total = match read_answer(&mut stream).map_err(at)? {
        Answer::Archive { bytes } => bytes,
        Answer::Refused(why) => return Err(BackupError::Refused(why)),
        Answer::Created { .. } | Answer::BackedUp(_) => return Err(odd()),
    };
    let mut out = Counting { out, written: 0, total, progress };
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length).map_err(at)?;
        let length = u64::from(u32::from_be_bytes(length));
        if length == 0 {
            break;
        }
        let copied = io::copy(&mut (&mut stream).take(length), &mut out).map_err(BackupError::Archive)?;
        if copied < length {
            return Err(at(io::ErrorKind::UnexpectedEof.into()));
        }
    }
    match read_answer(&mut stream).map_err(at)? {
        Answer::BackedUp(done) => Ok(done),
        Answer::Refused(why) => Err(BackupError::Refused(why)),
        Answer::Created { .. } | Answer::Archive { .. } => Err(odd()),
    }
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

/// What requests are answered from.
pub(crate) struct Desk {
    pub(crate) app: Arc<App>,
    pub(crate) data: PathBuf,
    /// One backup at a time: its copy of the database has one name.
    pub(crate) backup: Semaphore,
}

/// Answers until `stop` is cancelled.
pub(crate) async fn run(listener: UnixListener, desk: Desk, stop: CancellationToken) {
    let desk = Arc::new(desk);
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                let desk = Arc::clone(&desk);
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &desk).await {
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

async fn serve(mut stream: UnixStream, desk: &Desk) -> io::Result<()> {
    let mut line = String::new();
    timeout(WAIT, tokio::io::BufReader::new((&mut stream).take(MAX_LINE)).read_line(&mut line)).await??;
    let answer = match serde_json::from_str(&line) {
        Ok(Request::CreateToken(request)) => match http::create_caller_token(desk.app.store.as_ref(), request).await {
            Ok(created) => Answer::Created { id: created.id, name: created.name, token: created.token.expose_secret().to_owned() },
            Err(error) => Answer::Refused(error.text()),
        },
        Ok(Request::BackUp {}) => match plan(desk).await {
            Ok((plan, _turn)) => return send_archive(stream, plan).await,
            Err(why) => Answer::Refused(why),
        },
        Err(_) => Answer::Refused("the request is not understood; use the same release as the server's".into()),
    };
    let mut line = serde_json::to_vec(&answer)?;
    line.push(b'\n');
    timeout(WAIT, stream.write_all(&line)).await?
}

/// Copies the database, and looks up what goes with it.
async fn plan(desk: &Desk) -> Result<(Plan, SemaphorePermit<'_>), String> {
    let turn = desk.backup.try_acquire().map_err(|_| "another backup is under way; try again when it is done".to_owned())?;
    let copy = Copied::in_folder(&desk.data);
    let logs = desk.app.store.copy(copy.path().to_owned()).await.map_err(|error| Chain(&error).to_string())?;
    let plan = Plan::new(copy, logs, &desk.app.hub.logs).map_err(|error| Chain(&error).to_string())?;
    Ok((plan, turn))
}

async fn send_archive(stream: UnixStream, plan: Plan) -> io::Result<()> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    let work = move || {
        send(&stream, &Answer::Archive { bytes: plan.bytes() })?;
        let mut chunks = BufWriter::with_capacity(CHUNK, Chunks(&stream));
        let done = plan.write(&mut chunks).and_then(|done| chunks.flush().map(|()| done));
        drop(chunks);
        let mut stream = &stream;
        match done {
            Ok(done) => {
                stream.write_all(&0_u32.to_be_bytes())?;
                tracing::info!(database_bytes = done.database_bytes, logs = done.logs, log_bytes = done.log_bytes, "Backup written");
                send(stream, &Answer::BackedUp(done))
            }
            Err(error) => {
                stream.write_all(&0_u32.to_be_bytes())?;
                send(stream, &Answer::Refused(error.to_string()))?;
                Err(error)
            }
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// Bytes of one chunk of an archive.
const CHUNK: usize = 64 << 10;

/// Puts its length before each piece that is written.
struct Chunks<'a>(&'a StdStream);

impl Write for Chunks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = bytes.get(..CHUNK).unwrap_or(bytes);
        if !bytes.is_empty() {
            let length = u32::try_from(bytes.len()).unwrap_or_default();
            self.0.write_all(&length.to_be_bytes())?;
            self.0.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
