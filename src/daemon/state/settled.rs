//! Dispatches that ended in this process, so that one that is offered again is not done again.
//!
//! An object that exists is found by its name; this is for those whose object is gone. It outlives sessions and not the process: a
//! control plane that is honest never offers again what it has acknowledged the end of.

use std::collections::{HashSet, VecDeque};

use crate::types::{Attempt, DispatchId};

/// How many are remembered: some 70 bytes each, 5 MB in all, and more than a node runs in a week.
const MAX_SETTLED: usize = 65_536;

/// The newest ended dispatches.
#[derive(Debug, Default)]
pub(super) struct Settled {
    known: HashSet<(DispatchId, Attempt)>,
    order: VecDeque<(DispatchId, Attempt)>,
}

impl Settled {
    pub(super) fn insert(&mut self, dispatch: DispatchId, attempt: Attempt) {
        if !self.known.insert((dispatch.clone(), attempt)) {
            return;
        }
        self.order.push_back((dispatch, attempt));
        if self.order.len() > MAX_SETTLED
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, dispatch: &DispatchId, attempt: Attempt) -> bool {
        self.known.contains(&(dispatch.clone(), attempt))
    }
}
