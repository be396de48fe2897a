//! Fault proxies: they stand between two real programs and spoil what goes through them, as a test tells them while they run.
//!
//! [`tcp`] knows only bytes, [`ws`] the messages between a daemon and the control plane, [`api`] the calls of a daemon to
//! the API server. Each listens on loopback and lives on threads of its own, so that plain threads and async tests drive it alike;
//! dropping it ends its connections. [`ws`] and [`api`] ask a hook what to do with each thing, and have traps: the first thing that
//! fits is held until the test says how it goes on, so that "killed between A and B" is a fact and not a race.
//!
//! Use: `#[path = "../support/proxy/mod.rs"] mod proxy;`. Tests: `tests/proxy/`.

#![allow(dead_code, unreachable_pub, reason = "each test target uses a part")]

pub(crate) mod api;
pub(crate) mod tcp;
pub(crate) mod trap;
pub(crate) mod ws;

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).thread_name("fault-proxy").enable_all().build().expect("threads for the proxies"));

/// Runs a future on the proxies' threads, for tests that are plain threads.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    RUNTIME.block_on(future)
}

/// What runs on the proxies' threads while a test does something else.
pub(crate) struct Task<T>(tokio::task::JoinHandle<T>);

impl<T> Task<T> {
    /// Waits for its end.
    pub(crate) fn join(self) -> T {
        block_on(self.0).expect("it does not panic")
    }

    /// Ends it where it waits.
    pub(crate) fn abort(self) {
        self.0.abort();
    }
}

/// Starts something there.
pub(crate) fn background<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Task<T> {
    Task(RUNTIME.spawn(task))
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    drop(RUNTIME.spawn(task)); // detached: it ends with its proxy's token
}

/// A listener on a free port of loopback, ready at once.
fn listen() -> (TcpListener, SocketAddr) {
    let listener = StdListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener of our own");
    let address = listener.local_addr().expect("it is bound");
    let _inside = RUNTIME.enter();
    (TcpListener::from_std(listener).expect("a listener of our own"), address)
}

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
