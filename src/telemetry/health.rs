//! Whether the daemon can do its work, and what stands in the way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// What must hold for the daemon to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// A session with the control plane is open.
    ControlPlane,
    /// A valid policy is in force.
    Policy,
    /// Every watch has listed its objects and runs.
    Watches,
    /// The last audit line could be written.
    Audit,
    /// The daemon is not on its way out.
    Running,
}

impl Condition {
    const ALL: [Self; 5] = [Self::ControlPlane, Self::Policy, Self::Watches, Self::Audit, Self::Running];

    /// Its name, as the endpoint writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control_plane",
            Self::Policy => "policy",
            Self::Watches => "watches",
            Self::Audit => "audit",
            Self::Running => "running",
        }
    }
}

/// Shared by those who know and the endpoint that tells. Clones share one state. Holds a std mutex: it is never held over an await.
#[derive(Clone, Default)]
pub struct Health {
    failing: Arc<Mutex<BTreeMap<Condition, String>>>,
}

impl Health {
    /// Everything but auditing has yet to be shown.
    pub fn starting() -> Self {
        let health = Self::default();
        for condition in [Condition::ControlPlane, Condition::Policy, Condition::Watches] {
            health.fail(condition, "starting");
        }
        health
    }

    /// The condition holds.
    pub fn hold(&self, condition: Condition) {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner).remove(&condition);
    }

    /// The condition does not hold, and why; true when that is news.
    pub fn fail(&self, condition: Condition, why: impl Into<String>) -> bool {
        let why = why.into();
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.insert(condition, why.clone()).is_none_or(|before| before != why)
    }

    /// # Errors
    /// What stands in the way of being ready, one condition a line.
    pub fn ready(&self) -> Result<(), String> {
        let failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<String> = Condition::ALL.iter().filter_map(|c| failing.get(c).map(|why| format!("{}: {why}", c.name()))).collect();
        if lines.is_empty() { Ok(()) } else { Err(lines.join("\n")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_when_every_condition_holds_and_else_says_which_does_not() {
        let health = Health::starting();
        for condition in [Condition::ControlPlane, Condition::Policy, Condition::Watches] {
            assert!(health.ready().expect_err("not yet").contains(condition.name()));
            health.hold(condition);
        }
        assert_eq!(health.ready(), Ok(()));
        assert!(health.fail(Condition::Audit, "disk full"));
        assert!(!health.fail(Condition::Audit, "disk full"), "the same reason is no news");
        assert_eq!(health.ready(), Err("audit: disk full".into()));
    }
}
