//! Row 29: a control plane that means harm. The real one opens the session; the test then speaks in its name.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use nymph::types::{Attempt, DispatchId};
use nymph::wire::{Binary, Dispatch, DispatchEnvelope, MAX_BINARY, ToControlPlane, ToDaemon, encode_text};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{Frame, FrameHeader};

use crate::kubelet::exited;
use crate::proxy::ws::{Said, Verdict, Way};
use crate::rig::{Rig, peak_rss};
use crate::rows::{remark, shown};
use crate::world::{audit, kubectl};

/// What the daemon may grow by while it is sent nonsense, in MiB: twice the longest message, and what the allocator keeps.
const GROWTH: u64 = 16;

/// What the daemon answered, and a true dispatch to start from.
struct Stage {
    rig: Rig,
    said: Arc<Mutex<Vec<ToControlPlane>>>,
    envelope: DispatchEnvelope,
    body: Bytes,
    made: String,
}

fn stage() -> Stage {
    let rig = Rig::new();
    let (said, sent) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(None)));
    let (hear, keep) = (Arc::clone(&said), Arc::clone(&sent));
    rig.ws.hook(move |seen| {
        match &seen.said {
            // What the daemon says to a forged dispatch is not for the real control plane.
            Said::ToControlPlane(message @ (ToControlPlane::Accepted { .. } | ToControlPlane::Rejected { .. })) => {
                let mut said = hear.lock().expect("no hook panics");
                said.push(message.clone());
                if said.len() > 1 {
                    return Verdict::Drop;
                }
            }
            Said::Binary(Binary::Dispatch(envelope, body)) => *keep.lock().expect("no hook panics") = Some((envelope.clone(), body.clone())),
            _ => {}
        }
        Verdict::Pass
    });
    let made = rig.launched_with("true");
    rig.assert_made_once(&made);
    let (envelope, body) = sent.lock().expect("no hook panics").clone().expect("it was dispatched");
    Stage { rig, said, envelope, body, made }
}

impl Stage {
    /// The same under a name of its own.
    fn forged(&self, n: u8) -> DispatchEnvelope {
        let dispatch_id = DispatchId::from_random([n; 16]);
        let instance = dispatch_id.instance_name(Attempt(1));
        DispatchEnvelope { dispatch_id, attempt: Attempt(1), instance, ..self.envelope.clone() }
    }

    fn send(&self, envelope: &DispatchEnvelope, body: &Bytes) {
        let frame = Binary::Dispatch(envelope.clone(), body.clone()).encode().expect("it fits");
        self.rig.ws.inject(Way::Down, Message::Binary(frame));
    }

    /// What it answers to the next thing.
    fn answer(&self, to: impl FnOnce()) -> ToControlPlane {
        let before = self.said.lock().expect("no hook panics").len();
        to();
        self.rig.until("an answer", || self.said.lock().expect("no hook panics").get(before).cloned()).0
    }

    #[track_caller]
    fn assert_refused(&self, envelope: &DispatchEnvelope, body: &Bytes, code: &str, words: &str) {
        let answer = serde_json::to_value(self.answer(|| self.send(envelope, body))).expect("JSON");
        let refusal = &answer["rejection"];
        assert_eq!((&answer["type"], &refusal["code"]), (&json!("rejected"), &json!(code)), "{answer}");
        assert!(refusal.to_string().contains(words), "{words:?} is not in {refusal}");
    }

    /// Whoever asked, only the one true Pod was ever made.
    fn assert_nothing_made(&self) {
        let created = |e: &Value| {
            let object = &e["objectRef"];
            e["verb"] == "create" && object["resource"] == "pods" && object["subresource"].is_null() && object["namespace"] == self.rig.runs.as_str()
        };
        assert_eq!(audit(&self.rig.runs).iter().filter(|e| created(e)).count(), 1, "something was made");
        assert!(self.rig.pods().iter().all(|pod| *pod == self.made));
    }
}

#[test]
fn a_dispatch_for_another_or_with_what_this_daemon_does_not_know_is_refused() {
    let stage = stage();
    let body: Value = serde_json::from_slice(&stage.body).expect("JSON");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut body = body.clone();
        change(&mut body);
        Bytes::from(body.to_string())
    };
    assert!(Dispatch::decode(&with(&|_| {})).is_ok(), "the body itself is fine");
    let mut other = serde_json::to_value(stage.forged(1)).expect("JSON");
    other["placement"] = json!({ "node": "another-node" });
    let other = serde_json::from_value(other).expect("an envelope");
    stage.assert_refused(&other, &stage.body, "misdirected", "another-node");
    stage.assert_refused(&stage.forged(2), &with(&|body| body["limit"] = json!(1)), "invalid", "limit");
    stage.assert_refused(&stage.forged(3), &with(&|body| body["work"]["launch"]["privileged"] = json!(true)), "invalid", "privileged");
    stage.assert_refused(&stage.forged(4), &with(&|body| body["work"] = json!({ "exec": {} })), "invalid", "exec");
    stage.assert_refused(&stage.forged(5), &with(&|body| body["version"] = json!(2)), "invalid", "version");
    stage.assert_refused(&stage.forged(6), &Bytes::from_static(b"\xff\x00"), "invalid", "");
    stage.assert_refused(&stage.forged(7), &with(&|body| body["work"]["launch"]["image"] = json!("evil.example/x")), "policy_denied", "images");
    let misnamed = DispatchEnvelope { instance: stage.forged(9).instance, ..stage.forged(8) };
    stage.assert_refused(&misnamed, &stage.body, "invalid", "instance");
    // An unknown verb is ignored, as a newer release's would be: the session goes on.
    stage.rig.ws.inject(Way::Down, Message::text(r#"{"type":"exec","instance":"lakeshore-01234567","command":["sh"]}"#));
    stage.assert_refused(&other, &stage.body, "misdirected", "another-node");
    stage.assert_nothing_made();
    assert_eq!(stage.rig.ws.connections(), 1);
    shown(29, "P", 9);
}

#[test]
fn a_replayed_dispatch_makes_nothing_even_when_it_is_permitted_again() {
    let stage = stage();
    let DispatchEnvelope { dispatch_id, attempt, .. } = stage.envelope.clone();
    let permission = encode_text(&ToDaemon::AcceptedAck { dispatch_id, attempt }).expect("it fits");
    let replay = || {
        stage.send(&stage.envelope, &stage.body);
        stage.rig.ws.inject(Way::Down, Message::text(permission.clone()));
    };
    stage.answer(replay); // while the Pod is there
    stage.rig.bind(&stage.made);
    stage.rig.status(&stage.made, &exited(0));
    stage.rig.until_state(&stage.made, "stopped", "completed");
    stage.answer(replay); // when it has ended
    kubectl(&["delete", "pod", &stage.made, "-n", &stage.rig.runs, "--force", "--grace-period=0"]).ok();
    stage.rig.until("the daemon has seen that it is gone", || {
        let answer = serde_json::to_value(stage.answer(replay)).ok()?; // when it is gone
        (answer["type"] == "rejected" && answer["rejection"]["rule"] == "replay").then_some(())
    });
    stage.assert_nothing_made();
    shown(29, "P", 3);
}

/// Frames that no control plane sends end the connection, and nothing of them is kept.
#[test]
fn frames_beyond_the_limits_end_the_connection_and_leave_no_trace_in_memory() {
    let stage = stage();
    let rig = &stage.rig;
    let pid = rig.daemon_pid();
    let rss = peak_rss(pid);
    let frame = |opcode, rsv1, last, length: usize| {
        Message::Frame(Frame::from_payload(
            FrameHeader { is_final: last, rsv1, opcode: OpCode::Data(opcode), ..FrameHeader::default() },
            vec![b'x'; length].into(),
        ))
    };
    let oversize = vec![frame(Data::Binary, false, true, MAX_BINARY + 1)];
    let compressed = vec![frame(Data::Text, true, true, 100)];
    let mut endless = vec![frame(Data::Binary, false, false, 64 << 10)];
    endless.extend((0..4096).map(|_| frame(Data::Continue, false, false, 64 << 10))); // 256 MiB
    let mut tiny = vec![frame(Data::Text, false, false, 1)];
    tiny.extend((0..4096).map(|_| frame(Data::Continue, false, false, 0)));
    tiny.push(frame(Data::Text, false, true, 1)); // a message within a message
    let long_text = vec![Message::text("x".repeat(MAX_BINARY - 1))];
    let cases = [
        ("oversize", oversize, true),
        ("compressed", compressed, true),
        ("endless", endless, true),
        ("tiny fragments", tiny, true),
        ("long text", long_text, false),
    ];
    for (name, frames, closes) in cases {
        let before = rig.ws.connections();
        for frame in frames {
            if rig.ws.connections() == before {
                rig.ws.inject(Way::Down, frame);
            }
        }
        if closes {
            rig.until(&format!("{name}: another connection"), || (rig.ws.connections() > before).then_some(()));
        }
        rig.until_connected();
        rig.until(&format!("{name}: the session works"), || (rig.ws.open() == 1).then_some(()));
    }
    assert_eq!(rig.daemon_pid(), pid);
    let grown = peak_rss(pid) - rss;
    assert!(grown <= GROWTH, "it grew by {grown} MiB");
    let log = rig.log("daemon.log");
    assert!(!log.contains("xxxxxxxx"), "what it was sent is in its log");
    stage.assert_nothing_made();
    remark(29, &format!("peak RSS +{grown} MiB"));
    shown(29, "P", 5);
}
