//! Chance from a seed: the same seed makes the same schedule, on every machine.

use std::time::Duration;

/// SplitMix64. **Source:** Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// True `permille` times in a thousand.
    pub(super) fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// Mostly near `low`, now and then as far as `high`: delays have long tails.
    pub(super) fn delay(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        let span = high_ms.saturating_sub(low_ms);
        let span = if self.chance(850) { span / 8 } else { span };
        Duration::from_millis(low_ms + self.below(span + 1))
    }

    pub(super) fn bytes(&mut self) -> [u8; 16] {
        let (a, b) = (self.next().to_be_bytes(), self.next().to_be_bytes());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&a);
        bytes[8..].copy_from_slice(&b);
        bytes
    }
}
