//! Every variant of what travels. A new one does not compile until it is listed here, and once listed it must stand in the corpus.

use nymph::wire::{Binary, ToControlPlane, ToDaemon, Work};

macro_rules! variants {
    ($list:ident, $of:ident, $enum:ident: $($variant:ident),+ $(,)?) => {
        pub(crate) const $list: &[&str] = &[$(stringify!($variant)),+];

        pub(crate) fn $of(value: &$enum) -> &'static str {
            match value {
                $($enum::$variant { .. } => stringify!($variant)),+
            }
        }
    };
}

variants!(TO_CONTROL_PLANE, to_control_plane, ToControlPlane:
    Hello, Heartbeat, Accepted, Rejected, Report, LogEnd, CheckResult, LookupResult, NodeFacts, NodeGone, NodeBack, Keys);
variants!(TO_DAEMON, to_daemon, ToDaemon:
    Welcome, Open, Close, Heartbeat, AcceptedAck, Ack, Cancel, LogsFollow, LogsCredit, LogsStop, Nodes, Orphans, Check, Lookup);
variants!(BINARY, binary, Binary: Dispatch, Log);
variants!(WORK, work, Work: Launch);

/// Every value of an enum without fields, by a match that a new one does not pass.
macro_rules! every {
    ($enum:ident: $($variant:ident),+ $(,)?) => {{
        let every = [$($enum::$variant),+];
        for value in every {
            match value {
                $($enum::$variant => {}),+
            }
        }
        every
    }};
}
pub(crate) use every;
