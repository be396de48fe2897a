//! How long to wait before the next try: longer each time, and never in step with others.

use std::time::Duration;

/// The first wait is at most this long: a broken stream is mostly back at once.
const FIRST: Duration = Duration::from_millis(500);
/// No wait is longer: somebody is watching.
const LONGEST: Duration = Duration::from_secs(5);

/// Counts the tries since something last worked.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    tries: u32,
}

impl Backoff {
    /// Something worked: the next wait is a short one again.
    pub(super) fn reset(&mut self) {
        self.tries = 0;
    }

    /// Waits before the next try.
    ///
    /// # Cancel safety
    ///
    /// Safe: the try is counted before the wait.
    pub(super) async fn wait(&mut self) {
        let ceiling = ceiling(self.tries);
        self.tries = self.tries.saturating_add(1);
        // Between half and all of it: full jitter could mean no wait at all, and a server that answers at once with an error.
        let half = ceiling / 2;
        tokio::time::sleep(half + half.mul_f64(fraction())).await;
    }
}

fn ceiling(tries: u32) -> Duration {
    FIRST.saturating_mul(2_u32.saturating_pow(tries)).min(LONGEST)
}

/// Between 0 and 1, by chance; 1 when the system gives no randomness, which only costs the jitter.
fn fraction() -> f64 {
    getrandom::u32().map_or(1.0, |random| f64::from(random) / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_their_limit() {
        let waits: Vec<_> = (0..6).map(|tries| ceiling(tries).as_millis()).collect();
        assert_eq!(waits, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!(ceiling(u32::MAX), LONGEST);
    }
}
