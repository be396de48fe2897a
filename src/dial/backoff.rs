//! When to dial again.

use std::time::Duration;

/// Shortest pause. **Source:** `design.md` section 4.
const MIN: Duration = Duration::from_millis(500);
/// Longest pause. **Source:** `design.md` section 4.
const MAX: Duration = Duration::from_secs(30);

/// Exponential, with full jitter: a uniform draw between 0.5 s and a ceiling that doubles from 1 s to 30 s. A thousand daemons
/// that lost the same control plane come back spread out.
#[derive(Clone, Debug, Default)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The next pause. `random` is a uniform draw that the caller made.
    pub fn next(&mut self, random: u64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let ceiling = MIN.saturating_mul(1 << self.failures.min(6)).min(MAX);
        let spread = u64::try_from((ceiling - MIN).as_millis()).unwrap_or(u64::MAX);
        MIN + Duration::from_millis(random % (spread + 1))
    }

    /// A session was stable: the next failure starts from the shortest pause.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ceiling_doubles_up_to_30_s_and_a_stable_session_resets_it() {
        let mut backoff = Backoff::default();
        let mut ceilings = Vec::new();
        for _ in 0..8 {
            let mut probe = backoff.clone();
            // The largest draw that is a multiple of the spread lands on the ceiling.
            ceilings.push((0..30_000u64).map(|r| probe.clone().next(r)).max().expect("not empty"));
            probe.next(0);
            backoff.next(0);
        }
        let ms = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000];
        assert_eq!(ceilings, ms.map(Duration::from_millis));
        backoff.reset();
        assert!(backoff.next(u64::MAX) <= Duration::from_secs(1));
    }

    proptest! {
        #[test]
        fn a_pause_is_between_half_a_second_and_thirty(failures in 0u32..u32::MAX, random in any::<u64>()) {
            let pause = Backoff { failures }.next(random);
            prop_assert!((MIN..=MAX).contains(&pause));
        }
    }
}
