//! Tables, and random histories of a daemon, a line that loses things, and a control plane.

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::types::Reason;

fn dispatch() -> DispatchId {
    DispatchId::from_random([7; 16])
}

fn instance() -> InstanceName {
    dispatch().instance_name(Attempt(1))
}

fn seen(state: State, message: &str, second: i64) -> Observation {
    Observation {
        state,
        reason: Reason::Other,
        message: message.into(),
        exit_code: None,
        uid: None,
        node: None,
        created_at: None,
        started_at: None,
        finished_at: None,
        observed_at: Timestamp::from_second(second).expect("in range"),
        has_log: false,
    }
}

fn push(outbox: &mut Outbox, observation: Observation) -> Option<Report> {
    outbox.push(&instance(), &dispatch(), Attempt(1), observation)
}

#[test]
fn a_sequence_rises_by_one_from_what_the_control_plane_holds() {
    let mut outbox = Outbox::default();
    outbox.seed(&instance(), 41);
    assert_eq!(outbox.resend(5), []);
    let first = push(&mut outbox, seen(State::Starting, "a", 1)).expect("it is news");
    assert_eq!((first.seq, first.epoch), (42, 5));
    assert_eq!(push(&mut outbox, seen(State::Running, "b", 2)).expect("it is news").seq, 43);
}

#[test]
fn what_differs_only_in_its_moment_is_no_news() {
    let mut outbox = Outbox::default();
    outbox.resend(1);
    assert!(push(&mut outbox, seen(State::Running, "a", 1)).is_some());
    assert!(push(&mut outbox, seen(State::Running, "a", 9)).is_none());
    assert!(push(&mut outbox, seen(State::Running, "b", 9)).is_some());
}

#[test]
fn without_a_session_the_newest_waits_and_takes_one_number() {
    let mut outbox = Outbox::default();
    for (second, message) in (1..).zip(["a", "b", "c"]) {
        assert!(push(&mut outbox, seen(State::Running, message, second)).is_none(), "there is no session");
    }
    let sent = outbox.resend(3);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].seq, sent[0].epoch, sent[0].observation.message.as_str()), (1, 3, "c"));
}

#[test]
fn what_is_not_acknowledged_is_sent_again_with_its_number_and_the_new_epoch() {
    let mut outbox = Outbox::default();
    outbox.resend(1);
    let sent = push(&mut outbox, seen(State::Running, "a", 1)).expect("it is news");
    outbox.disconnected();
    assert_eq!(outbox.resend(2), [Report { epoch: 2, ..sent.clone() }]);
    outbox.ack(&instance(), sent.seq);
    assert_eq!((outbox.resend(3), outbox.pending()), (vec![], 0));
}

#[test]
fn an_older_acknowledgement_leaves_the_newer_report_pending_and_one_of_the_future_counts_for_what_was_sent() {
    let mut outbox = Outbox::default();
    outbox.resend(1);
    let first = push(&mut outbox, seen(State::Starting, "a", 1)).expect("it is news");
    let second = push(&mut outbox, seen(State::Running, "b", 2)).expect("it is news");
    outbox.ack(&instance(), first.seq);
    assert_eq!(outbox.resend(2).iter().map(|report| report.seq).collect::<Vec<_>>(), [second.seq]);
    outbox.ack(&instance(), 1_000);
    assert!(push(&mut outbox, seen(State::Stopping, "c", 3)).is_some());
    assert_eq!(outbox.resend(3).len(), 1, "the acknowledgement of the future did not silence it");
}

#[test]
fn the_end_is_never_replaced_and_is_settled_when_it_is_on_disk() {
    let mut outbox = Outbox::default();
    assert!(push(&mut outbox, seen(State::Stopped, "the end", 1)).is_none(), "there is no session");
    assert!(push(&mut outbox, seen(State::Running, "late news", 2)).is_none());
    assert!(!outbox.is_settled(&instance()));
    let sent = outbox.resend(1);
    assert_eq!(sent[0].observation.message, "the end");
    assert!(push(&mut outbox, seen(State::Unknown, "late news", 3)).is_none());
    assert!(!outbox.is_settled(&instance()), "it is under way");
    outbox.ack(&instance(), sent[0].seq);
    assert!(outbox.is_settled(&instance()));
    assert!(push(&mut outbox, seen(State::Stopped, "seen again by a relist", 4)).is_none());
}

#[test]
fn a_control_plane_that_came_back_from_a_backup_is_told_again() {
    let mut outbox = Outbox::default();
    outbox.resend(1);
    let sent = push(&mut outbox, seen(State::Running, "a", 1)).expect("it is news");
    outbox.ack(&instance(), sent.seq);
    outbox.seed(&instance(), 0);
    assert_eq!(outbox.resend(2).iter().map(|report| report.seq).collect::<Vec<_>>(), [sent.seq]);
}

#[test]
fn a_number_that_an_earlier_process_used_is_not_used_again() {
    let mut outbox = Outbox::default();
    // A new process sees its object before its first session, in which the control plane tells how far the old process had come.
    assert!(push(&mut outbox, seen(State::Running, "a", 1)).is_none());
    outbox.seed(&instance(), 7);
    assert_eq!(outbox.resend(2).iter().map(|report| report.seq).collect::<Vec<_>>(), [8]);
}

#[test]
fn a_forgotten_instance_has_nothing_pending() {
    let mut outbox = Outbox::default();
    assert!(push(&mut outbox, seen(State::Stopped, "a", 1)).is_none());
    assert_eq!((outbox.pending(), outbox.latest(&instance()).map(|o| o.state)), (1, Some(State::Stopped)));
    outbox.forget(&instance());
    assert_eq!((outbox.pending(), outbox.latest(&instance())), (0, None));
    assert_eq!(outbox.resend(1), []);
}

/// What may happen. A report or an acknowledgement may be lost at any point, and then the session breaks.
#[derive(Clone, Debug)]
enum Event {
    See(State, u8),
    Lose,
    LoseAck,
    Reconnect,
    /// The daemon's process is new: its outbox is empty, and it looks at its object again.
    Restart,
}

/// A control plane that keeps the rules of the wire: older epochs and sequences are ignored, what is stored is acknowledged.
#[derive(Default)]
struct Stored {
    epoch: u64,
    seq: u64,
    observation: Option<Observation>,
}

impl Stored {
    fn take(&mut self, report: &Report) -> Option<u64> {
        if report.epoch < self.epoch {
            return None;
        }
        if report.seq > self.seq {
            let backwards = self.observation.as_ref().is_some_and(|known| known.state == State::Stopped);
            assert!(!backwards, "a report after the end was sent: {report:?}");
            self.seq = report.seq;
            self.observation = Some(report.observation.clone());
        }
        Some(self.seq)
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_the_control_plane_ends_with_the_latest(events in proptest::collection::vec(prop_oneof![
        6 => (prop_oneof![Just(State::Starting), Just(State::Running), Just(State::Stopping), Just(State::Unknown)], 0..4u8).prop_map(|(s, m)| Event::See(s, m)),
        1 => Just(Event::See(State::Stopped, 9)),
        2 => Just(Event::Lose),
        2 => Just(Event::LoseAck),
        3 => Just(Event::Reconnect),
        1 => Just(Event::Restart),
    ], 0..60)) {
        let (mut outbox, mut stored, mut epoch) = (Outbox::default(), Stored::default(), 0);
        let (mut truth, mut lose, mut lose_ack, mut clock): (Option<Observation>, bool, bool, i64) = (None, false, false, 0);
        let mut up = false;
        for event in events.into_iter().chain([Event::Reconnect]) {
            clock += 1;
            let reports = match event {
                Event::See(state, message) => {
                    let observation = seen(state, &message.to_string(), clock);
                    // An object that has ended does not run again: what comes later is a stale view of it.
                    if truth.as_ref().is_none_or(|truth| truth.state != State::Stopped) {
                        truth = Some(observation.clone());
                    }
                    push(&mut outbox, observation).into_iter().collect()
                }
                Event::Lose => { lose = true; vec![] }
                Event::LoseAck => { lose_ack = true; vec![] }
                Event::Reconnect | Event::Restart => {
                    if matches!(event, Event::Restart) {
                        outbox = Outbox::default();
                        if let Some(truth) = truth.clone() {
                            prop_assert!(push(&mut outbox, truth).is_none(), "there is no session yet");
                        }
                    }
                    epoch += 1;
                    (stored.epoch, up, lose, lose_ack) = (epoch, true, false, false);
                    if stored.observation.as_ref().is_none_or(|known| known.state != State::Stopped) {
                        outbox.seed(&instance(), stored.seq);
                    } else {
                        outbox.ack(&instance(), stored.seq);
                    }
                    outbox.resend(epoch)
                }
            };
            for report in reports {
                prop_assert!(up && report.epoch == epoch, "a report outside a session");
                let acknowledged = if std::mem::take(&mut lose) { None } else { stored.take(&report) };
                match acknowledged.filter(|_| !std::mem::take(&mut lose_ack)) {
                    Some(seq) => outbox.ack(&instance(), seq),
                    None => { outbox.disconnected(); up = false; }
                }
            }
        }
        // The last event was a clean session: everything must have arrived.
        let (known, truth) = (stored.observation, truth);
        prop_assert_eq!(known.map(|o| (o.state, o.message)), truth.map(|o| (o.state, o.message)));
        prop_assert_eq!(outbox.pending(), 0);
    }
}
