//! One-shot traps: the first thing that fits is held until the test says how it goes on.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;

use super::locked;

/// Longest wait for a trap to spring.
const PATIENCE: Duration = Duration::from_secs(90);

/// The test's end of a trap. Dropped, it lets go of what it holds.
pub(crate) struct Trap<S, A> {
    sprung: mpsc::Receiver<S>,
    release: Option<oneshot::Sender<A>>,
}

struct Armed<S, A> {
    fits: Box<dyn Fn(&S) -> bool + Send>,
    tell: mpsc::Sender<S>,
    verdict: oneshot::Receiver<A>,
}

/// The proxy's end of all its traps.
pub(super) struct Traps<S, A>(Mutex<Vec<Armed<S, A>>>);

impl<S, A> Default for Traps<S, A> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S: Clone, A> Traps<S, A> {
    pub(super) fn arm(&self, fits: impl Fn(&S) -> bool + Send + 'static) -> Trap<S, A> {
        let (tell, sprung) = mpsc::channel();
        let (release, verdict) = oneshot::channel();
        locked(&self.0).push(Armed { fits: Box::new(fits), tell, verdict });
        Trap { sprung, release: Some(release) }
    }

    /// Holds `seen` if a trap fits it, until the test decides; `None` when none fits or the test lets go without a word.
    pub(super) async fn pass(&self, seen: &S) -> Option<A> {
        let armed = {
            let mut all = locked(&self.0);
            let at = all.iter().position(|armed| (armed.fits)(seen))?;
            all.remove(at)
        };
        let _ = armed.tell.send(seen.clone()); // a test that is over looks no more
        armed.verdict.await.ok()
    }
}

impl<S, A> Trap<S, A> {
    /// Waits until something is held, and says what.
    #[track_caller]
    pub(crate) fn sprung(&self, what: &str) -> S {
        self.sprung.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("waited {PATIENCE:?} for the proxy to see {what}"))
    }

    /// Whether something is held within `wait`.
    pub(crate) fn springs_within(&self, wait: Duration) -> Option<S> {
        self.sprung.recv_timeout(wait).ok()
    }

    /// Says how what is held goes on.
    pub(crate) fn release(mut self, verdict: A) {
        if let Some(release) = self.release.take() {
            let _ = release.send(verdict); // its connection may be gone
        }
    }
}
