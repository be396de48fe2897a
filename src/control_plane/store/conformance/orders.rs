//! Random orders of events against the invariants.

use proptest::prelude::*;

use super::*;
use crate::types::advance;

/// One thing that happens to a store.
#[derive(Clone, Debug)]
enum Step {
    Launch(u8),
    Accept { number: u8, session: usize },
    Refuse { number: u8, session: usize, taken: bool },
    Report { number: u8, session: usize, seq: u64, state: State },
    Delete(u8),
    Session,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (number, session) = (0u8..3, 0usize..3);
    let states = prop::sample::select(vec![State::Starting, State::Running, State::Stopping, State::Stopped, State::Unknown]);
    let step = prop_oneof![
        3 => number.clone().prop_map(Step::Launch),
        4 => (number.clone(), session.clone()).prop_map(|(number, session)| Step::Accept { number, session }),
        1 => (number.clone(), session.clone(), any::<bool>()).prop_map(|(number, session, taken)| Step::Refuse { number, session, taken }),
        6 => (number.clone(), session, 1u64..6, states).prop_map(|(number, session, seq, state)| Step::Report { number, session, seq, state }),
        1 => number.prop_map(Step::Delete),
        1 => Just(Step::Session),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..60)
}

/// Whatever is delivered, in whatever order, by whatever session, with the process gone in between: a yes is committed in one
/// session only, states never go back, and what has ended stays as it ended (I1 to I3).
pub(in crate::control_plane::store) fn check<K: Kind>() {
    let config = ProptestConfig { cases: 24, source_file: Some(file!()), ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let found = runner.run(&steps(), |steps| runtime.block_on(run::<K>(steps)));
    found.unwrap_or_else(|broken| panic!("{broken}"));
}

async fn run<K: Kind>(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let kind = K::new();
    let mut store = kind.open();
    set_up(store.as_ref()).await;
    let mut sessions = vec![session(store.as_ref(), "node1").await.0];
    let mut accepted_in: std::collections::HashMap<u8, u64> = std::collections::HashMap::new();
    let mut before: Vec<Option<Instance>> = vec![None; 3];
    for step in steps {
        let fence = |session: usize| sessions[sessions.len().saturating_sub(1 + session)].clone();
        match step {
            Step::Launch(number) if before[usize::from(number)].is_none() => drop(launched(store.as_ref(), number).await),
            Step::Launch(_) => {}
            Step::Accept { number, session } => {
                let fence = fence(session);
                let epoch = fence.epoch;
                if store.accept(fence, acceptance(number)).await.expect("it is stored") == Accepted::Committed {
                    prop_assert_eq!(*accepted_in.entry(number).or_insert(epoch), epoch, "two sessions may create");
                    prop_assert_eq!(epoch, sessions.len() as u64, "a stale session may create");
                }
            }
            Step::Refuse { number, session, taken } => {
                let code = if taken { RejectionCode::NameTaken } else { RejectionCode::Invalid };
                store.refuse(fence(session), refusal(number, 1, code)).await.expect("it is stored");
            }
            Step::Report { number, session, seq, state } => {
                let fence = fence(session);
                let epoch = fence.epoch;
                let stored = store.report(fence, report(number, seq, epoch, state, Reason::Other)).await.expect("it is stored");
                if let Reported::Stored(row) = stored {
                    prop_assert!(row.report_seq >= seq, "acknowledged and not taken");
                }
            }
            Step::Delete(number) => {
                if let Some(row) = &before[usize::from(number)] {
                    store.request_delete("default".into(), "demo".into(), row.name.clone(), now()).await.expect("it is stored");
                }
            }
            Step::Session => sessions.push(session(store.as_ref(), "node1").await.0),
            Step::Reopen => {
                drop(store);
                store = kind.open();
            }
        }
        for number in 0..3u8 {
            let after = store.instance_of(dispatch_id(number)).await.expect("it is read");
            if let (Some(old), Some(new)) = (&before[usize::from(number)], &after) {
                prop_assert_eq!(advance(old.seen.state, new.seen.state), new.seen.state, "{:?} then {:?}", old.seen.state, new.seen.state);
                prop_assert!(new.report_seq >= old.report_seq);
                if old.phase == Phase::Ended {
                    prop_assert_eq!((new.phase, new.seen.state, new.seen.reason), (old.phase, old.seen.state, old.seen.reason));
                }
                if old.phase != Phase::Queued {
                    prop_assert_eq!(&new.name, &old.name);
                }
            }
            before[usize::from(number)] = after;
        }
    }
    Ok(())
}
