//! How many calls to the API server may be under way: a window that adapts, as TCP's does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::info;

/// Most calls at a time. Each takes milliseconds, so that this is thousands a second; and one daemon of many leaves room in the
/// server's own fair queues.
const MOST: usize = 32;
/// Fewest: one call that never returns must leave room for another.
const FEWEST: usize = 2;
/// An answer that took this long waited in the server's queues: its fair queueing holds calls back for seconds before it says 429, and
/// single objects take milliseconds. Below it lie slow admission webhooks, which are no sign of load.
const SLOW: Duration = Duration::from_secs(3);

/// What an answer says about the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// It keeps up.
    Fine,
    /// It asks for less: 429, 5xx, no answer in time, or an answer that took long.
    Heavy,
    /// No connection, or one that broke: no sign of load, but a server that comes back is not to be met by a full window.
    Away,
}

impl Load {
    /// Reads the status of an answer.
    pub(super) fn of(status: u16, took: Duration) -> Self {
        if matches!(status, 429 | 500..) || took >= SLOW { Self::Heavy } else { Self::Fine }
    }

    /// What is logged when it cuts the window.
    pub(super) const fn told(self) -> &'static str {
        match self {
            Self::Fine | Self::Heavy => "The API server is under load; making fewer calls at a time",
            Self::Away => "The API server cannot be reached; making fewer calls at a time until it can",
        }
    }
}

/// Decides the window's size: one more for each window of calls that went well, half of it when one did not. Calls of one window fail
/// together, and halve it once.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Size {
    now: usize,
    /// Calls that went well since the size last changed.
    fine: usize,
    /// Rises with each cut; a call belongs to the round that it began in.
    round: u64,
}

impl Size {
    const fn full() -> Self {
        Self { now: MOST, fine: 0, round: 0 }
    }

    /// A call of `round` ended. Says by how much the size changed.
    fn ended(&mut self, round: u64, load: Load) -> isize {
        let before = self.now;
        match load {
            Load::Heavy | Load::Away if round == self.round => {
                (self.now, self.fine, self.round) = ((self.now / 2).max(FEWEST), 0, self.round + 1);
            }
            Load::Heavy | Load::Away => {} // its window was cut already
            Load::Fine => {
                self.fine += 1;
                if self.fine >= self.now && self.now < MOST {
                    (self.now, self.fine) = (self.now + 1, 0);
                }
            }
        }
        self.now.cast_signed() - before.cast_signed()
    }
}

/// The window. Waiting calls get in by order of arrival; clones share it.
#[derive(Clone)]
pub struct Window(Arc<Inner>);

struct Inner {
    places: Arc<Semaphore>,
    /// The size, and how many places are still to be taken back from calls under way.
    size: Mutex<(Size, usize)>,
}

/// A place in the window; left when it is dropped.
pub struct Place {
    window: Window,
    permit: Option<OwnedSemaphorePermit>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner { places: Arc::new(Semaphore::new(MOST)), size: Mutex::new((Size::full(), 0)) }))
    }

    /// Waits for a place. One place is for one deed, which may be several calls one after the other, pauses included.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the turn.
    pub async fn enter(&self) -> Place {
        let permit = Arc::clone(&self.0.places).acquire_owned().await.ok(); // never closed
        Place { window: self.clone(), permit }
    }

    pub(super) fn round(&self) -> u64 {
        self.size().0.round
    }

    /// A call that began in `round` ended.
    pub(super) fn ended(&self, round: u64, load: Load) {
        let mut size = self.size();
        let change = size.0.ended(round, load);
        let by = change.unsigned_abs();
        if change > 0 {
            let kept = by.min(size.1);
            size.1 -= kept;
            self.0.places.add_permits(by - kept);
        } else if change < 0 {
            size.1 += by - self.0.places.forget_permits(by);
            info!(window = size.0.now, "{}", load.told());
        }
    }

    fn size(&self) -> std::sync::MutexGuard<'_, (Size, usize)> {
        self.0.size.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut size = self.window.size();
        if size.1 > 0
            && let Some(permit) = self.permit.take()
        {
            size.1 -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_answer_of_a_busy_server_halves_the_window_and_its_companions_do_not() {
        let mut size = Size::full();
        for _ in 0..32 {
            size.ended(0, Load::Heavy);
        }
        assert_eq!((size.now, size.round), (16, 1));
        for (round, now) in [(1, 8), (2, 4), (3, 2), (4, 2)] {
            size.ended(round, Load::Heavy);
            assert_eq!(size.now, now);
        }
    }

    #[test]
    fn it_grows_by_one_for_each_window_of_calls_that_went_well() {
        let mut size = Size { now: 2, fine: 0, round: 4 };
        let mut calls = 0;
        for wanted in 3..=MOST {
            while size.now < wanted {
                size.ended(4, Load::Fine);
                calls += 1;
            }
        }
        assert_eq!(calls, (2..MOST).sum::<usize>());
        size.ended(4, Load::Fine);
        assert_eq!(size.now, MOST);
    }

    #[test]
    fn what_counts_as_load() {
        let (soon, late) = (Duration::from_millis(5), SLOW);
        for status in [200, 201, 403, 404, 409, 422] {
            assert_eq!((Load::of(status, soon), Load::of(status, late)), (Load::Fine, Load::Heavy), "{status}");
        }
        for status in [429, 500, 503, 504] {
            assert_eq!(Load::of(status, soon), Load::Heavy, "{status}");
        }
    }

    proptest! {
        #[test]
        fn its_size_stays_within_bounds_and_its_places_follow(calls in proptest::collection::vec((0u64..4, any::<bool>(), 0usize..40), 0..400)) {
            let window = Window::new();
            let mut held = Vec::new();
            for (age, fine, hold) in calls {
                while held.len() > hold {
                    held.pop();
                }
                while held.len() < hold {
                    let Ok(permit) = Arc::clone(&window.0.places).try_acquire_owned() else { break };
                    held.push(Place { window: window.clone(), permit: Some(permit) });
                }
                window.ended(window.round().saturating_sub(age), if fine { Load::Fine } else { Load::Heavy });
                prop_assert!((FEWEST..=MOST).contains(&window.size().0.now));
            }
            held.clear();
            prop_assert_eq!(window.0.places.available_permits(), window.size().0.now);
            prop_assert_eq!(window.size().1, 0);
        }
    }
}
