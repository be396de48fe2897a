//! What the witnesses say, compared: pure, so that it is tested with planted faults.
//!
//! None of the evidence is the word of the code under test, but for the end that the caller was told, which is what is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

/// Exit code of what the kubelet had to kill, because its Pod was deleted.
pub(crate) const KILLED: i64 = 137;

/// How an instance ended, as the caller was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) reason: String,
    pub(crate) exit_code: Option<i64>,
}

/// One launch, as its caller knows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// The exit code that its script was to have.
    pub(crate) scripted: i64,
    /// Instance and dispatch of the 202.
    pub(crate) answer: Option<(String, String)>,
    /// What else it was answered for good.
    pub(crate) refusal: Option<String>,
    /// First word of its end.
    pub(crate) end: Option<End>,
    /// How the control plane shows it when all is over.
    pub(crate) finally: Option<End>,
    /// The same in its own words, for who looks for a fault.
    pub(crate) shown: String,
}

/// Everything that was seen, by dispatch or by instance. Times are since the test began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    pub(crate) told: Vec<Told>,
    /// Answers 201 to creates, by dispatch: the API server's audit log.
    pub(crate) creates: BTreeMap<String, usize>,
    /// Lines in the host file, by dispatch.
    pub(crate) lines: BTreeMap<String, usize>,
    /// Exit codes that the kubelet wrote into statuses, by instance.
    pub(crate) finished: BTreeMap<String, i64>,
    /// Third-party deletes that the API server carried out, by instance.
    pub(crate) deleted: BTreeMap<String, Duration>,
    /// When `accepted` first passed, by dispatch.
    pub(crate) accepted: BTreeMap<String, Duration>,
    /// When a report of the object was first acknowledged, by instance: from then on it was seen.
    pub(crate) seen: BTreeMap<String, Duration>,
    /// From the kill of a daemon to the start of the next, when all it had said has passed.
    pub(crate) daemon_kills: Vec<Range<Duration>>,
    /// A kill later than this after `accepted` found the object made.
    pub(crate) prompt: Duration,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) launches: usize,
    pub(crate) answered: usize,
    pub(crate) ends: BTreeMap<String, usize>,
    /// Dispatch or launch, and what is wrong with it.
    pub(crate) missing: Vec<String>,
    pub(crate) doubled: Vec<String>,
    pub(crate) wrong: Vec<String>,
}

impl Verdict {
    pub(crate) fn is_clean(&self) -> bool {
        self.missing.is_empty() && self.doubled.is_empty() && self.wrong.is_empty()
    }
}

impl Evidence {
    /// Judges each launch, and each create that no launch explains.
    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict { launches: self.told.len(), ..Verdict::default() };
        let mut asked = BTreeSet::new();
        let mut names = BTreeMap::new();
        for (number, told) in self.told.iter().enumerate() {
            let Some((instance, dispatch)) = &told.answer else {
                match &told.refusal {
                    Some(refusal) => verdict.wrong.push(format!("launch {number} was refused: {refusal}")),
                    None => verdict.missing.push(format!("launch {number} was never answered")),
                }
                continue;
            };
            verdict.answered += 1;
            asked.insert(dispatch);
            if let Some(other) = names.insert(instance, dispatch) {
                verdict.doubled.push(format!("{instance} was told for {other} and for {dispatch}"));
            }
            self.one(instance, dispatch, told, &mut verdict);
        }
        for (dispatch, made) in &self.creates {
            if *made > 1 {
                verdict.doubled.push(format!("{dispatch} was created {made} times"));
            }
            if !asked.contains(dispatch) {
                verdict.wrong.push(format!("{dispatch} was created, and no answered launch asked for it"));
            }
        }
        let twice = self.lines.iter().filter(|(_, lines)| **lines > 1);
        verdict.doubled.extend(twice.map(|(dispatch, lines)| format!("{dispatch} ran {lines} times")));
        verdict
    }

    fn one(&self, instance: &str, dispatch: &str, told: &Told, verdict: &mut Verdict) {
        let Some(end) = &told.end else {
            return verdict.missing.push(format!("{dispatch} ({instance}) reached no end; it is shown as {}", told.shown));
        };
        *verdict.ends.entry(end.reason.clone()).or_default() += 1;
        if told.finally.as_ref() != Some(end) {
            verdict.wrong.push(format!("{dispatch} ({instance}) was told {end:?}, and is shown as {:?} in the end", told.finally));
        }
        if let Err(why) = self.end(instance, dispatch, told.scripted, end) {
            verdict.wrong.push(format!("{dispatch} ({instance}) was told {end:?}: {why}"));
        }
    }

    /// Whether this end is the true one.
    fn end(&self, instance: &str, dispatch: &str, scripted: i64, end: &End) -> Result<(), String> {
        let made = self.creates.get(dispatch).copied().unwrap_or(0);
        let ran = self.lines.get(dispatch).copied().unwrap_or(0);
        let finished = self.finished.get(instance).copied();
        match (end.reason.as_str(), end.exit_code) {
            ("completed" | "exit_code", Some(code)) => {
                if code != scripted || (code == 0) != (end.reason == "completed") {
                    return Err(format!("its script was to end with {scripted}"));
                }
                if (made, ran) != (1, 1) || finished != Some(code) {
                    return Err(format!("it was created {made} times, ran {ran} times and ended with {finished:?}"));
                }
                Ok(())
            }
            ("deleted_by_other", code) => {
                if !self.deleted.contains_key(instance) {
                    return Err("nobody deleted it".to_owned());
                }
                match code {
                    Some(code) if Some(code) != finished => Err(format!("it ended with {finished:?}")),
                    _ if made != 1 => Err(format!("it was created {made} times")),
                    _ => Ok(()),
                }
            }
            ("lost", None) if made == 0 => self.lost_before_creation(dispatch),
            ("lost", None) => self.lost_after_creation(instance),
            _ => Err("nothing in this test ends like that".to_owned()),
        }
    }

    /// Right only where the daemon was killed between `accepted` and its POST.
    fn lost_before_creation(&self, dispatch: &str) -> Result<(), String> {
        let accepted = *self.accepted.get(dispatch).ok_or("it was never accepted")?;
        let killed = self.daemon_kills.iter().any(|kill| accepted <= kill.end && kill.start < accepted + self.prompt);
        if killed { Ok(()) } else { Err(format!("no daemon was killed within {:?} of its acceptance at {accepted:?}", self.prompt)) }
    }

    /// Right only where a third party deleted the object before it was seen.
    fn lost_after_creation(&self, instance: &str) -> Result<(), String> {
        let deleted = *self.deleted.get(instance).ok_or("it was created, and nobody deleted it")?;
        match self.seen.get(instance) {
            Some(seen) => Err(format!("its report was acknowledged at {seen:?}; it was deleted at {deleted:?}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn end(reason: &str, exit_code: Option<i64>) -> Option<End> {
        Some(End { reason: reason.to_owned(), exit_code })
    }

    /// One launch that ran and ended with 3.
    fn evidence() -> Evidence {
        let told = Told {
            scripted: 3,
            answer: Some(("i".into(), "d".into())),
            end: end("exit_code", Some(3)),
            finally: end("exit_code", Some(3)),
            ..Told::default()
        };
        Evidence {
            told: vec![told],
            creates: BTreeMap::from([("d".into(), 1)]),
            lines: BTreeMap::from([("d".into(), 1)]),
            finished: BTreeMap::from([("i".into(), 3)]),
            accepted: BTreeMap::from([("d".into(), at(1))]),
            seen: BTreeMap::from([("i".into(), at(2))]),
            prompt: at(10),
            ..Evidence::default()
        }
    }

    fn ended(mut evidence: Evidence, reason: &str, exit_code: Option<i64>) -> Evidence {
        evidence.told[0].end = end(reason, exit_code);
        evidence.told[0].finally = end(reason, exit_code);
        evidence
    }

    #[test]
    fn what_went_right_is_clean() {
        let verdict = evidence().judge();
        assert!(verdict.is_clean(), "{verdict:?}");
        assert_eq!((verdict.launches, verdict.answered, verdict.ends["exit_code"]), (1, 1, 1));
    }

    #[test]
    fn each_planted_fault_is_counted_where_it_belongs() {
        let counts = |change: &dyn Fn(&mut Evidence)| {
            let mut evidence = evidence();
            change(&mut evidence);
            let verdict = evidence.judge();
            (verdict.missing.len(), verdict.doubled.len(), verdict.wrong.len())
        };
        assert_eq!(counts(&|e| e.told[0].end = None), (1, 0, 0), "no end");
        assert_eq!(counts(&|e| e.told.push(Told::default())), (1, 0, 0), "no answer");
        assert_eq!(counts(&|e| e.told.push(Told { refusal: Some("409".into()), ..Told::default() })), (0, 0, 1), "a refusal");
        assert_eq!(counts(&|e| e.creates.extend([("d".to_owned(), 2)])), (0, 1, 1), "two creates");
        assert_eq!(counts(&|e| e.lines.extend([("d".to_owned(), 2)])), (0, 1, 1), "two lines");
        assert_eq!(counts(&|e| e.creates.extend([("other".to_owned(), 1)])), (0, 0, 1), "a create that nobody asked for");
        assert_eq!(counts(&|e| e.told[0].scripted = 4), (0, 0, 1), "another's exit code");
        assert_eq!(counts(&|e| e.finished.clear()), (0, 0, 1), "an exit code that nobody wrote");
        assert_eq!(counts(&|e| e.lines.clear()), (0, 0, 1), "an end of what never ran");
        assert_eq!(counts(&|e| e.told[0].finally = None), (0, 0, 1), "an end that was taken back");
    }

    #[test]
    fn lost_is_right_only_after_a_kill_before_the_post_or_a_delete_before_it_was_seen() {
        let mut never_made = ended(evidence(), "lost", None);
        never_made.creates.clear();
        assert_eq!(never_made.judge().wrong.len(), 1, "nobody was killed");
        never_made.daemon_kills = vec![at(0)..at(0), at(60)..at(61)];
        assert_eq!(never_made.judge().wrong.len(), 1, "nobody was killed in between");
        for kill in [at(2)..at(3), at(0)..at(1)] {
            never_made.daemon_kills.push(kill);
            assert!(never_made.judge().is_clean());
            never_made.daemon_kills.pop();
        }

        let mut made = ended(evidence(), "lost", None);
        made.daemon_kills = vec![at(2)..at(3)];
        assert_eq!(made.judge().wrong.len(), 1, "it exists");
        made.deleted.insert("i".into(), at(3));
        assert_eq!(made.judge().wrong.len(), 1, "it had been seen");
        made.seen.clear();
        assert!(made.judge().is_clean());
    }

    #[test]
    fn deleted_by_other_needs_another() {
        let mut deleted = ended(evidence(), "deleted_by_other", None);
        assert_eq!(deleted.judge().wrong.len(), 1);
        deleted.deleted.insert("i".into(), at(3));
        assert!(deleted.judge().is_clean());
        assert_eq!(ended(deleted, "deleted_by_other", Some(9)).judge().wrong.len(), 1, "an exit code that nobody wrote");
    }
}
