//! Against a real HTTP server that plays the kubelet by a script.

use std::sync::Mutex;

use kube::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::wire::ResumePoint;

/// One answer to a request for the log.
#[derive(Clone)]
enum Say {
    /// These lines, then the end.
    Lines(&'static [&'static str]),
    /// These bytes, then the connection breaks.
    Broken(&'static str),
    /// These lines, and then silence.
    Open(&'static [&'static str]),
    /// An error.
    Status(u16),
}

/// A line of the container's, as the kubelet sends it at second `at`.
macro_rules! line {
    ($at:literal, $text:literal) => {
        concat!("2027-01-15T08:00:0", $at, ".000000001Z ", $text)
    };
}

struct Bench {
    follows: Follows,
    sender: Sender,
    frames: mpsc::Receiver<LogMessage>,
    events: mpsc::Receiver<Event>,
    requests: Arc<Mutex<Vec<String>>>,
    answered: watch::Receiver<usize>,
}

impl Bench {
    /// The script's last line answers every further request.
    async fn new(script: &'static [Say]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default(); // another test of this process may have
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (answer, answered) = watch::channel(0);
        let seen = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer) = (Arc::clone(&seen), answer.clone());
                tokio::spawn(async move { serve(stream, script, &seen, &answer).await });
            }
        });
        let mut config = Config::new(url.parse().expect("a URL"));
        config.default_retry = false;
        let (events, event_queue) = mpsc::channel(8);
        let follows = Follows::new(Client::try_from(config).expect("a client"), events, TaskTracker::new());
        let (sender, frames) = Sender::with_logs();
        Self { follows, sender, frames, events: event_queue, requests, answered }
    }

    fn start(&mut self, state: ContainerState, credit: u64) {
        self.start_at(state, credit, 0, ResumePoint::default());
    }

    fn start_at(&mut self, state: ContainerState, credit: u64, offset: u64, resume: ResumePoint) {
        let order = FollowOrder {
            stream: 1,
            namespace: "runs".parse().expect("a name"),
            instance: "lakeshore-01234567".parse().expect("a name"),
            container: "containerd://abc".into(),
            offset,
            resume,
            credit,
            state,
        };
        self.follows.start(order, self.sender.clone());
    }

    /// What arrives until the end of the stream: the bytes, and the end's reason.
    async fn read_until_end(&mut self) -> (String, LogEndReason) {
        let mut text = String::new();
        let mut next = None;
        loop {
            match self.frames.recv().await.expect("the follow runs") {
                LogMessage::Chunk(chunk, bytes) => {
                    assert!(bytes.len() <= MAX_LOG_CHUNK);
                    assert_eq!(chunk.offset, *next.get_or_insert(chunk.offset), "no gap and no overlap");
                    next = Some(chunk.offset + bytes.len() as u64);
                    text.push_str(std::str::from_utf8(&bytes).expect("the script is text"));
                }
                LogMessage::End(ToControlPlane::LogEnd { stream: 1, reason, offset }) => {
                    assert!(next.is_none_or(|next| next == offset), "the end stands where the bytes end");
                    assert!(matches!(self.events.recv().await, Some(Event::FollowEnded { stream: 1 })));
                    return (text, reason);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    async fn chunk(&mut self) -> String {
        match self.frames.recv().await.expect("the follow runs") {
            LogMessage::Chunk(_, bytes) => String::from_utf8(bytes.to_vec()).expect("the script is text"),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the server has answered so many requests.
    async fn answered(&mut self, count: usize) {
        self.answered.wait_for(|answered| *answered >= count).await.expect("the server runs");
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no test panics here").clone()
    }
}

async fn serve(mut stream: TcpStream, script: &[Say], seen: &Mutex<Vec<String>>, answer: &watch::Sender<usize>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).expect("HTTP is text");
        let number = {
            let mut seen = seen.lock().expect("no test panics here");
            seen.push(head.lines().next().unwrap_or_default().to_owned());
            seen.len() - 1
        };
        let say = script.get(number).or(script.last()).expect("a script has a line").clone();
        let body = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
        let chunked = |text: &str| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n", text.len());
        let text = match &say {
            Say::Lines(lines) => {
                let body = body(lines);
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
            Say::Broken(text) => chunked(text),
            Say::Open(lines) => chunked(&body(lines)),
            Say::Status(code) => {
                let body = format!(r#"{{"kind":"Status","status":"Failure","code":{code},"message":"container is waiting to start","reason":"X"}}"#);
                format!("HTTP/1.1 {code} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            }
        };
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
        answer.send_modify(|answered| *answered += 1);
        match say {
            Say::Broken(_) => return,
            Say::Open(_) => {
                let _ = stream.read_u8().await; // until the client hangs up
                return;
            }
            Say::Lines(_) | Say::Status(_) => {}
        }
    }
}

#[tokio::test]
async fn a_finished_log_is_complete_when_a_reading_brings_nothing_more() {
    let mut bench = Bench::new(&[Say::Lines(&[line!(1, "one"), line!(1, "two"), line!(2, "naïve")])]).await;
    bench.start(ContainerState::Ended, 1 << 20);
    assert_eq!(bench.read_until_end().await, ("one\ntwo\nnaïve\n".into(), LogEndReason::Complete));
    let requests = bench.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(
        requests.iter().all(|request| !request.contains("follow=true") && request.contains("timestamps=true") && request.contains("container=user"))
    );
    assert!(requests[1].contains("sinceTime=2027-01-15T08%3A00%3A01Z"), "a whole second, and not after the last line: {requests:?}");
}

#[tokio::test]
async fn a_follow_that_ends_while_the_container_runs_is_opened_again_without_loss_or_repetition() {
    let mut bench = Bench::new(&[
        Say::Lines(&[line!(1, "one"), line!(1, "two")]),
        Say::Broken(line!(1, "two\n")),
        Say::Lines(&[line!(1, "one"), line!(1, "two"), line!(1, "three"), line!(4, "four")]),
    ])
    .await;
    bench.start(ContainerState::Running, 1 << 20);
    let mut text = String::new();
    while !text.ends_with("four\n") {
        text.push_str(&bench.chunk().await);
    }
    assert_eq!(text, "one\ntwo\nthree\nfour\n");
    bench.follows.container(1, ContainerState::Ended);
    assert_eq!(bench.read_until_end().await, (String::new(), LogEndReason::Complete));
}

#[tokio::test]
async fn a_line_that_broke_off_in_its_middle_is_taken_up_there() {
    let mut bench = Bench::new(&[Say::Broken(line!(1, "half")), Say::Lines(&[line!(1, "half and half")])]).await;
    bench.start(ContainerState::Ended, 1 << 20);
    assert_eq!(bench.read_until_end().await, ("half and half\n".into(), LogEndReason::Complete));
}

#[tokio::test]
async fn a_new_stream_goes_on_where_the_control_plane_stands() {
    let mut bench = Bench::new(&[Say::Lines(&[line!(1, "one"), line!(1, "two"), line!(2, "three")])]).await;
    let resume = ResumePoint { container: "containerd://abc".into(), timestamp: "2027-01-15T08:00:01.000000001Z".into(), lines: 1, partial: 0 };
    bench.start_at(ContainerState::Ended, 1 << 20, 4, resume);
    assert_eq!(bench.read_until_end().await, ("two\nthree\n".into(), LogEndReason::Complete));
}

#[tokio::test]
async fn nothing_is_sent_beyond_the_credit() {
    let mut bench = Bench::new(&[Say::Lines(&[line!(1, "12345")])]).await;
    bench.start(ContainerState::Ended, 3);
    bench.answered(1).await;
    tokio::task::yield_now().await;
    assert!(bench.frames.try_recv().is_err(), "six bytes do not fit into a credit of three");
    bench.follows.credit(1, 3);
    assert_eq!(bench.chunk().await, "12345\n");
}

#[tokio::test]
async fn a_container_that_waits_is_asked_again() {
    let mut bench = Bench::new(&[Say::Status(400), Say::Status(500), Say::Lines(&[line!(1, "one")])]).await;
    bench.start(ContainerState::Running, 1 << 20);
    assert_eq!(bench.chunk().await, "one\n");
}

#[tokio::test]
async fn the_containers_end_breaks_the_silence_of_a_follow() {
    let mut bench = Bench::new(&[Say::Open(&[line!(1, "one")]), Say::Lines(&[line!(1, "one"), line!(3, "last")])]).await;
    bench.start(ContainerState::Running, 1 << 20);
    assert_eq!(bench.chunk().await, "one\n");
    bench.follows.container(1, ContainerState::Ended);
    tokio::time::pause(); // the server stays silent: only the deadline after the end can end the follow
    let next = bench.chunk().await;
    tokio::time::resume();
    assert_eq!(next, "last\n");
    assert_eq!(bench.read_until_end().await, (String::new(), LogEndReason::Complete));
}

#[tokio::test]
async fn a_log_whose_pod_is_gone_ends_as_gone() {
    let mut bench = Bench::new(&[Say::Status(404)]).await;
    bench.start(ContainerState::Running, 1 << 20);
    bench.answered(1).await;
    bench.follows.container(1, ContainerState::Gone);
    assert_eq!(bench.read_until_end().await, (String::new(), LogEndReason::Gone));
}

#[tokio::test]
async fn a_stop_is_answered_and_a_lost_link_is_not() {
    let mut bench = Bench::new(&[Say::Open(&[line!(1, "one")])]).await;
    bench.start(ContainerState::Running, 1 << 20);
    assert_eq!(bench.chunk().await, "one\n");
    bench.follows.stop(1);
    assert_eq!(bench.read_until_end().await, (String::new(), LogEndReason::Stopped));

    let mut bench = Bench::new(&[Say::Open(&[line!(1, "one")])]).await;
    bench.start(ContainerState::Running, 1 << 20);
    assert_eq!(bench.chunk().await, "one\n");
    bench.frames.close();
    assert!(matches!(bench.events.recv().await, Some(Event::FollowEnded { stream: 1 })), "the follow ends with its link");
}
