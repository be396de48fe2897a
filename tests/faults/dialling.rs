//! Row 14: what the control plane, or whatever stands in its place, may answer to a dial.

use std::time::{Duration, Instant};

use crate::proxy::ws::Answer;
use crate::rig::{Rig, peak_rss};
use crate::rows::{remark, shown};

/// The daemon cannot be hurt by an answer of 5 MiB: what it may grow by, in MiB.
const GROWTH: u64 = 16;

/// How soon an answer may be followed by another dial, and how the daemon says it.
struct Kind {
    answer: Answer,
    /// No other dial before.
    not_before: Duration,
    says: &'static str,
}

fn kinds() -> Vec<Kind> {
    let kind = |answer, seconds, says| Kind { answer, not_before: Duration::from_millis(seconds), says };
    vec![
        // Terminal: only a new token or 5 minutes help.
        kind(Answer::Http(401, None, "scripted: who are you"), 8_000, "scripted: who are you"),
        kind(Answer::Http(403, None, "scripted: not you"), 8_000, "scripted: not you"),
        kind(Answer::Http(503, Some(6), "scripted: later"), 6_000, "scripted: later"),
        kind(Answer::Http(426, None, "scripted: another version"), 400, "scripted: another version"),
        kind(Answer::Http(500, None, "scripted: broken"), 400, "scripted: broken"),
        kind(Answer::Garbage, 400, "handshake"),
        kind(Answer::Header(5 << 20), 400, "handshake"),
        kind(Answer::Silence, 400, "shaking hands"),
    ]
}

#[test]
fn every_answer_to_a_dial_is_survived_and_the_token_stays_out_of_the_log() {
    let mut rig = Rig::new();
    let (token, proof) = (rig.log("token").trim().to_owned(), rig.log("identity").trim().to_owned());
    let pid = rig.daemon_pid();
    let rss = peak_rss(pid);
    for (round, Kind { answer, not_before, says }) in kinds().into_iter().enumerate() {
        let (logged, dials) = (rig.log("daemon.log").len(), rig.ws.dials());
        rig.ws.answer(answer.clone());
        rig.ws.cut();
        rig.until("it dials", || (rig.ws.dials() > dials).then_some(()));
        let dialled = Instant::now();
        rig.until(&format!("readiness says {says:?}"), || rig.probe("/readyz").filter(|(status, text)| *status == 503 && text.contains(says)));
        let dials = rig.ws.dials();
        while dialled.elapsed() < not_before {
            assert_eq!(rig.ws.dials(), dials, "it dialled again too soon after {answer:?}");
            assert_eq!(rig.probe("/healthz").map(|(status, _)| status), Some(200));
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(rig.daemon_lives(), "an answer ended it: {answer:?}");
        let said = rig.log("daemon.log");
        let lines = said[logged..].lines().filter(|line| line.contains("Not connected to the control plane")).count();
        assert!((1..=3).contains(&lines), "a reason is loud once: {lines} lines");
        rig.ws.answer(Answer::Relay);
        // A changed token file makes it dial at once, also after a terminal answer.
        rig.write("token", &format!("{token}{}", "\n".repeat(round % 2 + 1)));
        rig.until("the next session", || (rig.ws.open() == 1).then_some(()));
        rig.until_connected();
    }
    assert_eq!(rig.daemon_pid(), pid, "the same process throughout");
    for log in ["daemon.log", "server.log"] {
        assert!(!rig.log(log).contains(&token) && !rig.log(log).contains(&proof), "a token is in {log}");
    }
    let grown = peak_rss(pid) - rss;
    assert!(grown <= GROWTH, "it grew by {grown} MiB");
    remark(14, &format!("peak RSS +{grown} MiB"));
    shown(14, "P", kinds().len());
}
