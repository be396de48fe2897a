//! Flow control of one log stream.

/// The receiving end: how much more may come. A slow disk or reader slows its own stream only, and memory is bounded by the credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    credit: u64,
    spent: u64,
}

impl Window {
    /// Opens with the credit that the sender is told.
    pub fn new(credit: u64) -> Self {
        Self { credit, spent: 0 }
    }

    /// Bytes arrived; `None` when they are more than there was credit for.
    #[must_use]
    pub fn arrived(&mut self, bytes: u64) -> Option<()> {
        self.credit = self.credit.checked_sub(bytes)?;
        self.spent += bytes;
        Some(())
    }

    /// Whether there is credit to give back.
    pub fn is_spent(&self) -> bool {
        self.spent > 0
    }

    /// What arrived is on disk: gives as much credit again, which the sender is to be told.
    pub fn refill(&mut self) -> u64 {
        let credit = std::mem::take(&mut self.spent);
        self.credit += credit;
        credit
    }
}
