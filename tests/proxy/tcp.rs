//! Bytes: slow, dead, deaf or gone.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::proxy::tcp::{Mode, TcpProxy};

/// Sends back what it gets, on each connection.
fn echo() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut stream.try_clone().expect("a handle"), &mut &stream); // until it is cut
                let _ = stream.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    address
}

fn dial(proxy: &TcpProxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
    stream
}

fn ask(mut stream: &TcpStream, word: &str) -> std::io::Result<String> {
    stream.write_all(word.as_bytes())?;
    let mut answer = vec![0; word.len()];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8(answer).expect("text"))
}

/// Nothing comes, and the connection stands.
#[track_caller]
fn assert_silent(outcome: std::io::Result<String>) {
    let error = outcome.expect_err("nothing shall come");
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
}

#[test]
fn bytes_pass_and_are_counted_and_an_end_is_passed_on() {
    let proxy = TcpProxy::start(&echo());
    let mut stream = dial(&proxy);
    assert_eq!(ask(&stream, "hello").expect("an echo"), "hello");
    assert_eq!((proxy.accepted(), proxy.open(), proxy.bytes()), (1, 1, (5, 5)));
    stream.shutdown(std::net::Shutdown::Write).expect("it is open");
    assert_eq!(stream.read(&mut [0; 9]).expect("a clean end"), 0);
}

#[test]
fn a_cut_is_a_reset_and_the_next_connection_passes() {
    let proxy = TcpProxy::start(&echo());
    let stream = dial(&proxy);
    ask(&stream, "hello").expect("an echo");
    proxy.cut();
    let error = (&stream).read_exact(&mut [0; 1]).expect_err("it was cut");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(ask(&dial(&proxy), "again").expect("an echo"), "again");
}

#[test]
fn what_a_partition_held_goes_on_when_it_heals() {
    let proxy = TcpProxy::start(&echo());
    let stream = dial(&proxy);
    ask(&stream, "hello").expect("an echo");
    proxy.set(Mode::Stall);
    assert_silent(ask(&stream, "held"));
    proxy.set(Mode::Pass);
    stream.set_read_timeout(None).expect("a time");
    let mut answer = [0; 4];
    (&stream).read_exact(&mut answer).expect("it heals");
    assert_eq!(&answer, b"held");
}

#[test]
fn a_black_hole_swallows_for_good_and_new_connections_too() {
    let proxy = TcpProxy::start(&echo());
    let old = dial(&proxy);
    ask(&old, "hello").expect("an echo");
    proxy.set(Mode::BlackHole);
    assert_silent(ask(&old, "lost"));
    let new = dial(&proxy);
    assert_silent(ask(&new, "lost"));
    proxy.set(Mode::Pass);
    assert_silent(ask(&old, "still lost"));
    assert_eq!(ask(&dial(&proxy), "again").expect("an echo"), "again");
}

#[test]
fn a_half_open_connection_stays_while_new_ones_pass() {
    let proxy = TcpProxy::start(&echo());
    let old = dial(&proxy);
    ask(&old, "hello").expect("an echo");
    proxy.half_open();
    assert_silent(ask(&old, "anybody?"));
    assert_eq!(ask(&dial(&proxy), "again").expect("an echo"), "again");
    assert_silent(ask(&old, "anybody?"));
}

#[test]
fn a_refusal_is_a_closed_port_and_open_connections_live() {
    let proxy = TcpProxy::start(&echo());
    let old = dial(&proxy);
    ask(&old, "hello").expect("an echo");
    proxy.set(Mode::Refuse);
    let refused = || TcpStream::connect(proxy.address()).err().filter(|error| error.kind() == ErrorKind::ConnectionRefused);
    while refused().is_none() {
        std::thread::yield_now();
    }
    assert_eq!(ask(&old, "alive").expect("an echo"), "alive");
    proxy.set(Mode::Pass);
    while TcpStream::connect(proxy.address()).is_err() {
        std::thread::yield_now();
    }
    assert_eq!(ask(&dial(&proxy), "again").expect("an echo"), "again");
}

#[test]
fn a_delay_holds_each_piece_back() {
    let proxy = TcpProxy::start(&echo());
    let stream = dial(&proxy);
    proxy.set(Mode::Delay(Duration::from_millis(300)));
    assert_silent(ask(&stream, "slow"));
    stream.set_read_timeout(None).expect("a time");
    (&stream).read_exact(&mut [0; 4]).expect("it comes in the end");
}

#[test]
fn a_server_that_is_gone_resets_and_one_that_comes_back_is_found() {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").to_string();
    let proxy = TcpProxy::start(&address);
    let _ = dial(&proxy).read(&mut [0; 1]).expect_err("nobody is there");
    let back = TcpListener::bind(&address).expect("the port is free again");
    let stream = dial(&proxy);
    back.accept().expect("it is found").0.write_all(b"x").expect("it reads");
    (&stream).read_exact(&mut [0; 1]).expect("it came through");
}
