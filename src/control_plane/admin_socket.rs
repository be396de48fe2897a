//! The 0600 socket in the data folder, by which `lakeshore tokens create` and `lakeshore backup` reach a running server: one JSON
//! line each way. A backup's archive comes between two such lines, in chunks: four bytes of length each, big-endian, and none after
//! one of length 0.
//!
//! Whoever may open the socket owns the folder, and could read the database itself: no token is asked for.

mod receive;

use std::fs::{File, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::backup::{BackedUp, Copied, Plan};
use super::http::{self, App};
use super::store::{ExclusiveStore, StoreError};
use crate::error::Chain;
pub(super) use receive::back_up;

/// Its name in the data folder.
const SOCKET: &str = "admin.sock";
/// Longest line either way, in bytes.
const MAX_LINE: u64 = 64 << 10;
/// How long either side waits for the other.
const WAIT: Duration = Duration::from_secs(10);
/// How often a server that makes a copy says so.
const WORKING_EVERY: Duration = Duration::from_secs(2);

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
    /// No server runs, and somebody else has the folder.
    #[error("{}", held(path))]
    Held {
        /// The folder.
        path: PathBuf,
    },
    /// A server holds the folder, and its socket did not take the request. Nothing was made.
    #[error("ask the server that runs on this data folder, by {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The server took the request and did not answer: whether the token was made is not known.
    #[error("{why} from the server that runs on this data folder, by {}", path.display())]
    NoAnswer {
        /// The socket.
        path: PathBuf,
        /// What came instead.
        why: String,
    },
}

/// What to say when the folder is locked and no server listens.
pub(super) fn held(folder: &Path) -> String {
    format!(
        "the data folder {} is held by another lakeshore command, such as a backup, or by a server that starts or ends; try again when it is done",
        folder.display()
    )
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
    /// The request was taken, and its answer takes time.
    Working {},
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
/// [`TokenError`]; nothing was made then, unless it is [`TokenError::NoAnswer`].
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
        Err(StoreError::InUse { .. }) => match ask(data, &Request::CreateToken(request))? {
            Answer::Created { id, name, token } => Ok(CreatedToken { id, name, token: token.into(), notices: vec![] }),
            Answer::Refused(why) => Err(TokenError::Refused(why)),
            Answer::Archive { .. } | Answer::BackedUp(_) | Answer::Working {} => {
                Err(TokenError::NoAnswer { path: data.join(SOCKET), why: "no answer to a new token, but another,".to_owned() })
            }
        },
        Err(error) => Err(error.into()),
    }
}

fn connect(data: &Path) -> io::Result<StdStream> {
    let (_handle, path) = through(data, SOCKET)?;
    StdStream::connect(path)
}

/// Whether nobody listens there: the socket is absent, or was left by a server that is gone.
fn is_deserted(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

fn ask(data: &Path, request: &Request) -> Result<Answer, TokenError> {
    let socket = |source| TokenError::Socket { path: data.join(SOCKET), source };
    let stream = connect(data).map_err(|error| if is_deserted(&error) { TokenError::Held { path: data.to_owned() } } else { socket(error) })?;
    stream.set_read_timeout(Some(WAIT)).and_then(|()| send(&stream, request)).map_err(socket)?;
    read_answer(&mut BufReader::new(stream)).map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer within {} s", WAIT.as_secs()),
            _ => format!("no whole answer ({error})"),
        };
        TokenError::NoAnswer { path: data.join(SOCKET), why }
    })
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
    if is_gone(&stream)? {
        tracing::warn!("A client of the admin socket was gone before its request was looked at; nothing was done");
        return Ok(());
    }
    match serde_json::from_str(&line) {
        Ok(Request::CreateToken(request)) => create(stream, desk, request).await,
        Ok(Request::BackUp {}) => match plan_for(&mut stream, desk).await {
            Some(Ok((plan, _turn))) => send_archive(stream, plan).await,
            Some(Err(why)) => answer(&mut stream, &Answer::Refused(why)).await,
            None => Ok(()),
        },
        Err(_) => answer(&mut stream, &Answer::Refused("the request is not understood; use the same release as the server's".into())).await,
    }
}

async fn answer(stream: &mut UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    timeout(WAIT, stream.write_all(&line)).await?
}

/// Whether the other side has hung up: a request of one that did is not carried out, since nobody would know that it was.
fn is_gone(stream: &UnixStream) -> io::Result<bool> {
    let stream = StdStream::from(stream.as_fd().try_clone_to_owned()?); // as non-blocking as the original
    match (&stream).read(&mut [0]) {
        Ok(read) => Ok(read == 0),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(true),
        Err(error) => Err(error),
    }
}

/// Makes a token, and revokes it when its text cannot be handed over: it would be valid, and nobody's.
async fn create(mut stream: UnixStream, desk: &Desk, request: NewToken) -> io::Result<()> {
    let store = desk.app.store.as_ref();
    let created = match http::create_caller_token(store, request).await {
        Ok(created) => created,
        Err(error) => return answer(&mut stream, &Answer::Refused(error.text())).await,
    };
    let CreatedToken { id, name, token, .. } = created;
    let told = answer(&mut stream, &Answer::Created { id: id.clone(), name, token: token.expose_secret().to_owned() }).await;
    if told.is_err() {
        let revoked = store.revoke_token(id.clone(), Timestamp::now()).await;
        tracing::warn!(token = %id, revoked = matches!(revoked, Ok(true)), "A new token could not be handed over");
    }
    told
}

/// Prepares a backup, and says in the meantime that it works. `None` when the client has gone.
async fn plan_for<'a>(stream: &mut UnixStream, desk: &'a Desk) -> Option<Result<(Plan, SemaphorePermit<'a>), String>> {
    let (mut planned, mut gone) = (pin!(plan(desk)), false);
    let mut working = tokio::time::interval(WORKING_EVERY);
    loop {
        tokio::select! {
            planned = planned.as_mut() => return (!gone).then_some(planned),
            // Even for nobody the copy is waited for: another one may only then be written under its name.
            _ = working.tick(), if !gone => gone = answer(stream, &Answer::Working {}).await.is_err(),
        }
    }
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
