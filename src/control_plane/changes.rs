//! Tells those who wait for a dispatch that its row has changed. They read the row again: nothing is told here but "look".

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::types::DispatchId;

/// Who waits for which dispatch. Bounded by the number of waiting callers.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    waiting: Mutex<HashMap<DispatchId, watch::Sender<()>>>,
}

impl Changes {
    /// A receiver that sees each change from now on. Subscribe first, then read the row: no change falls between.
    pub(crate) fn subscribe(&self, dispatch_id: &DispatchId) -> watch::Receiver<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, sender| sender.receiver_count() > 0);
        waiting.entry(dispatch_id.clone()).or_insert_with(|| watch::channel(()).0).subscribe()
    }

    /// Says that the row has changed; after the commit.
    pub(crate) fn touch(&self, dispatch_id: &DispatchId) {
        if let Some(sender) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).get(dispatch_id) {
            sender.send_replace(());
        }
    }
}
