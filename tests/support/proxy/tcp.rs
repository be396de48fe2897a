//! A relay of bytes that can be slow, dead, deaf or gone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{listen, spawn};

/// What happens to bytes and to new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They go through.
    Pass,
    /// Each piece goes through after this long.
    Delay(Duration),
    /// A partition: nothing goes through, and what was held goes on when it heals, as TCP would send it again.
    Stall,
    /// Taken and lost. A connection that lost bytes stays so for good.
    BlackHole,
    /// New connections are refused; those that are open are not touched.
    Refuse,
}

/// Connections are numbered from 1; a wish about all that are open holds for those up to a number.
#[derive(Clone, Copy)]
struct Wishes {
    mode: Mode,
    cut: u64,
    half_open: u64,
}

impl Wishes {
    fn stalls(&self, id: u64) -> bool {
        id <= self.half_open || self.mode == Mode::Stall
    }
}

#[derive(Default)]
struct Counts {
    accepted: AtomicU64,
    open: AtomicU64,
    up: AtomicU64,
    down: AtomicU64,
}

/// The relay. It dials its upstream anew for each connection, so that the server behind it may be killed and started.
pub(crate) struct TcpProxy {
    address: SocketAddr,
    wishes: watch::Sender<Wishes>,
    counts: Arc<Counts>,
    _stop: DropGuard,
}

impl TcpProxy {
    /// A relay to `upstream`, `host:port`.
    pub(crate) fn start(upstream: &str) -> Self {
        let (listener, address) = listen();
        let (wishes, seen) = watch::channel(Wishes { mode: Mode::Pass, cut: 0, half_open: 0 });
        let (stop, counts) = (CancellationToken::new(), Arc::new(Counts::default()));
        let relay = Relay { upstream: upstream.to_owned(), wishes: seen, counts: Arc::clone(&counts), stop: stop.clone() };
        spawn(relay.run(listener, address));
        Self { address, wishes, counts, _stop: stop.drop_guard() }
    }

    /// Where it listens: `127.0.0.1:port`.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Switches at once, for connections that are open too.
    pub(crate) fn set(&self, mode: Mode) {
        self.wishes.send_modify(|wishes| wishes.mode = mode);
    }

    /// Resets (RST) every connection that is open.
    pub(crate) fn cut(&self) {
        self.wishes.send_modify(|wishes| wishes.cut = self.counts.accepted.load(Ordering::SeqCst));
    }

    /// Makes every connection that is open half-open: its peer is gone without a FIN. New ones go through.
    pub(crate) fn half_open(&self) {
        self.wishes.send_modify(|wishes| wishes.half_open = self.counts.accepted.load(Ordering::SeqCst));
    }

    /// Connections taken so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.counts.accepted.load(Ordering::SeqCst)
    }

    /// Connections that are open now.
    pub(crate) fn open(&self) -> u64 {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// Bytes let through so far: to the upstream, and back.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.counts.up.load(Ordering::SeqCst), self.counts.down.load(Ordering::SeqCst))
    }
}

#[derive(Clone)]
struct Relay {
    upstream: String,
    wishes: watch::Receiver<Wishes>,
    counts: Arc<Counts>,
    stop: CancellationToken,
}

impl Relay {
    async fn run(self, listener: TcpListener, address: SocketAddr) {
        let stop = self.stop.clone();
        stop.run_until_cancelled(self.accept(listener, address)).await;
    }

    async fn accept(mut self, mut listener: TcpListener, address: SocketAddr) {
        loop {
            // A closed port is the only true refusal.
            if self.wishes.borrow_and_update().mode == Mode::Refuse {
                drop(listener);
                if self.wishes.wait_for(|wishes| wishes.mode != Mode::Refuse).await.is_err() {
                    return;
                }
                listener = bind_again(address).await;
            }
            let stream = tokio::select! {
                changed = self.wishes.changed() => if changed.is_err() { return } else { continue },
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(_) => continue,
                },
            };
            let id = self.counts.accepted.fetch_add(1, Ordering::SeqCst) + 1;
            let relay = self.clone();
            spawn(async move {
                relay.counts.open.fetch_add(1, Ordering::SeqCst);
                let stop = relay.stop.clone();
                stop.run_until_cancelled(relay.connection(id, stream)).await;
                relay.counts.open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }

    async fn connection(&self, id: u64, mut client: TcpStream) {
        let _ = client.set_nodelay(true);
        let mut cut = self.wishes.clone();
        let dialled = tokio::select! {
            dialled = self.dial(id) => dialled,
            _ = cut.wait_for(|wishes| id <= wishes.cut) => None,
        };
        let Some(mut server) = dialled else {
            let _ = client.set_zero_linger(); // closes with RST
            return;
        };
        let over = {
            let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
            let both = async {
                let up = self.pump(id, from_client, to_server, &self.counts.up);
                let down = self.pump(id, from_server, to_client, &self.counts.down);
                tokio::join!(up, down)
            };
            tokio::select! {
                both = both => both == (Ok(()), Ok(())),
                _ = cut.wait_for(|wishes| id <= wishes.cut) => false,
            }
        };
        if !over {
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
    }

    async fn dial(&self, id: u64) -> Option<TcpStream> {
        let mut wishes = self.wishes.clone();
        let _ = wishes.wait_for(|wishes| !wishes.stalls(id) && wishes.mode != Mode::BlackHole).await;
        let server = TcpStream::connect(&self.upstream).await.ok()?;
        let _ = server.set_nodelay(true);
        Some(server)
    }

    /// Carries one direction to its end; an error is a broken connection, which the other side shall see as such.
    async fn pump(&self, id: u64, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, count: &AtomicU64) -> Result<(), ()> {
        let mut wishes = self.wishes.clone();
        let mut buffer = vec![0; 16 << 10];
        let mut lost = false;
        loop {
            let _ = wishes.wait_for(|wishes| !wishes.stalls(id)).await;
            let length = tokio::select! {
                biased;
                _ = wishes.wait_for(|wishes| wishes.stalls(id)) => continue,
                read = from.read(&mut buffer) => read.map_err(drop)?,
            };
            let _ = wishes.wait_for(|wishes| !wishes.stalls(id)).await;
            let mode = wishes.borrow().mode;
            lost |= mode == Mode::BlackHole;
            if lost {
                if length == 0 {
                    std::future::pending::<()>().await; // the other side hears nothing of it
                }
                continue;
            }
            if let Mode::Delay(time) = mode {
                sleep(time).await;
            }
            if length == 0 {
                return to.shutdown().await.map_err(drop);
            }
            to.write_all(&buffer[..length]).await.map_err(drop)?;
            count.fetch_add(length as u64, Ordering::SeqCst);
        }
    }
}

async fn bind_again(address: SocketAddr) -> TcpListener {
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => sleep(Duration::from_millis(20)).await, // somebody's own port for a moment
        }
    }
}
