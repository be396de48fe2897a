//! People: they launch, try again with the same key when a connection breaks, delete, and look. What they were told is what counts.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plane::now;
use super::world::{CLUSTER, Step, World};
use crate::control_plane::placement;
use crate::control_plane::store::{Deletion, Idempotency, Instance, Launched, NewLaunch, Phase, StoreError};
use crate::types::{DispatchId, InstanceName, State};
use crate::wire::{Caller as Asserted, Dispatch, LaunchDispatch, Work, Workdir};

/// How long a launch waits for the daemon's word.
const LAUNCH_WAIT: Duration = Duration::from_secs(10);

/// What a person does next.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallerStep {
    Launch(usize),
    /// Looks whether its launch is settled; since when it waits.
    Await(usize, Duration),
    Delete(usize),
    Look,
}

/// One launch, as its caller knows it.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Breaks the policy.
    pub(super) forbidden: bool,
    pub(super) stored: Option<DispatchId>,
    /// 202, with this name.
    pub(super) answered: Option<InstanceName>,
    /// 4xx, with the rule.
    pub(super) rejected: Option<String>,
    /// 204.
    pub(super) deleted: bool,
    pub(super) seen: Option<State>,
    /// As it ended, when it was seen to have.
    pub(super) end: Option<(String, Option<i32>)>,
}

/// Everybody who calls.
#[derive(Default)]
pub(super) struct Caller {
    pub(super) asked: BTreeMap<usize, Asked>,
}

impl World {
    pub(super) fn caller_step(&mut self, step: CallerStep) {
        match step {
            CallerStep::Launch(number) => self.launch(number),
            CallerStep::Await(number, since) => self.await_launch(number, since),
            CallerStep::Delete(number) => self.delete(number),
            CallerStep::Look => {
                self.look();
                if !self.calm {
                    let pause = self.rng.delay(500, 8_000);
                    self.after(pause, Step::Caller(CallerStep::Look));
                }
            }
        }
    }

    fn later(&mut self, step: CallerStep) {
        let pause = self.rng.delay(300, 4_000);
        self.after(pause, Step::Caller(step));
    }

    fn launch(&mut self, number: usize) {
        if !self.caller.asked.contains_key(&number) {
            let forbidden = self.rng.chance(60);
            self.caller.asked.insert(number, Asked { forbidden, ..Asked::default() });
        }
        let forbidden = self.caller.asked[&number].forbidden;
        let id = DispatchId::from_random(self.rng.bytes());
        let wall = self.wall();
        let Some(plane) = &self.plane else { return self.later(CallerStep::Launch(number)) };
        let (candidates, _) = placement::eligible(&plane.hub.facts(CLUSTER));
        let key = format!("key-{number}");
        let idempotency = Some(Idempotency { token: "t".into(), key, body_hash: [u8::try_from(number % 251).expect("small"); 32] });
        let new = NewLaunch {
            dispatch_id: id,
            namespace: "default".into(),
            provider: "p".into(),
            cluster: CLUSTER.into(),
            candidates,
            node_named: false,
            requested_by: "ann".into(),
            payload: payload(number, forbidden),
            idempotency,
            now: wall,
        };
        match now(plane.store.launch(new)) {
            Ok(Launched::New(row)) => {
                plane.hub.offer(&row.place);
                self.tell(|| format!("caller: launch {number} is stored as {} for {}", row.name, row.place.placement));
                self.stored(number, &row);
            }
            Ok(Launched::Replayed(row)) => self.stored(number, &row),
            Ok(Launched::Nowhere) | Err(_) => self.later(CallerStep::Launch(number)),
            Ok(other) => self.breaks(format!("launch {number}: {other:?}")),
        }
    }

    fn stored(&mut self, number: usize, row: &Instance) {
        let asked = self.caller.asked.entry(number).or_default();
        if let Some(before) = asked.stored.replace(row.dispatch_id.clone())
            && before != row.dispatch_id
        {
            self.breaks(format!("launch {number} was stored twice under one key: {before} and {}", row.dispatch_id));
        }
        let since = self.now;
        self.after(Duration::from_millis(100), Step::Caller(CallerStep::Await(number, since)));
    }

    fn row(&self, number: usize) -> Result<Option<Instance>, StoreError> {
        let Some(plane) = &self.plane else { return Err(StoreError::Closed { doing: "read" }) };
        let Some(id) = self.caller.asked.get(&number).and_then(|asked| asked.stored.clone()) else { return Ok(None) };
        now(plane.store.instance_of(id))
    }

    /// As `POST …/launch` waits: for the daemon's word, or its own deadline.
    fn await_launch(&mut self, number: usize, since: Duration) {
        // A connection that broke is tried again with the same key.
        let Ok(row) = self.row(number) else { return self.later(CallerStep::Launch(number)) };
        let Some(row) = row else { return self.breaks(format!("launch {number} was stored, and its row is gone")) };
        let settled = matches!(row.phase, Phase::Created | Phase::Ended);
        if !settled && self.now < since + LAUNCH_WAIT {
            return self.after(Duration::from_millis(700), Step::Caller(CallerStep::Await(number, since)));
        }
        let row = if settled {
            row
        } else {
            let Some(plane) = &self.plane else { return };
            match now(plane.store.mark_answered(row.dispatch_id.clone())) {
                Ok(Some(row)) => row,
                _ => return self.later(CallerStep::Launch(number)),
            }
        };
        let deletes = self.rng.chance(200);
        let asked = self.caller.asked.entry(number).or_default();
        match &row.rejection {
            Some(rejection) => asked.rejected = Some(rejection.rule.clone()),
            None => asked.answered = Some(row.name.clone()),
        }
        let told = format!("caller: launch {number} is answered with {} {:?}", row.name, row.rejection.as_ref().map(|r| &r.rule));
        self.tell(|| told);
        self.count("launches answered");
        if deletes {
            let pause = self.rng.delay(10, 40_000);
            self.after(pause, Step::Caller(CallerStep::Delete(number)));
        }
    }

    fn delete(&mut self, number: usize) {
        let Some(name) = self.caller.asked.get(&number).and_then(|asked| asked.answered.clone()) else { return };
        let wall = self.wall();
        let Some(plane) = &self.plane else { return self.later(CallerStep::Delete(number)) };
        match now(plane.store.request_delete("default".into(), "p".into(), name.clone(), wall)) {
            Ok(Deletion::Requested(row)) => {
                plane.hub.cancel(&row);
                self.caller.asked.entry(number).or_default().deleted = true;
            }
            Ok(Deletion::EndedUnstarted(_) | Deletion::AlreadyEnded) => self.caller.asked.entry(number).or_default().deleted = true,
            Ok(other) => self.breaks(format!("deleting {name}, which was answered with 202: {other:?}")),
            Err(_) => self.later(CallerStep::Delete(number)),
        }
        self.tell(|| format!("caller: deletes {name}"));
    }

    /// Looks at all that was answered: names stay, states never go back, ends are final.
    pub(super) fn look(&mut self) {
        for number in self.caller.asked.keys().copied().collect::<Vec<_>>() {
            let asked = self.caller.asked[&number].clone();
            let Some(name) = asked.answered else { continue };
            let Ok(row) = self.row(number) else { return };
            let Some(row) = row else { return self.breaks(format!("I2: {name} was answered with 202 and is gone")) };
            if row.name != name {
                self.breaks(format!("I2: {name} was answered with 202 and is now called {}", row.name));
            }
            let state = row.seen.state;
            if asked.seen.is_some_and(|before| crate::types::advance(before, state) != state) {
                self.breaks(format!("I3: {name} went back from {:?} to {state}", asked.seen));
            }
            let end = (row.phase == Phase::Ended).then(|| (row.seen.reason.to_string(), row.seen.exit_code));
            if asked.end.is_some() && asked.end != end {
                self.breaks(format!("I2: {name} had ended as {:?} and now shows {end:?}", asked.end));
            }
            let known = self.caller.asked.entry(number).or_default();
            (known.seen, known.end) = (Some(state), end);
        }
    }
}

fn payload(number: usize, forbidden: bool) -> Vec<u8> {
    let launch = LaunchDispatch {
        namespace: None,
        image: if forbidden { "evil.example/x:1".into() } else { "localhost/python:1".into() },
        script_base64: LaunchDispatch::encode_script(&format!("print({number})")),
        args: vec![],
        env: vec![],
        resources: None,
        labels: BTreeMap::new(),
        workdir: Workdir::HostPath,
    };
    let caller = Asserted { namespace: "default".into(), provider: "p".into(), user: "ann".into() };
    Dispatch { version: 1, caller, work: Work::Launch(launch) }.encode()
}
