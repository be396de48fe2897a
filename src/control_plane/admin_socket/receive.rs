//! Takes a backup that the running server sends: patiently while the server says that it works, and not for ever.

use std::cell::RefCell;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;

use super::super::backup::{BackedUp, BackupError, Counting, Progress, Step};
use super::{Answer, Request, SOCKET, connect, is_deserted, read_answer, send};

/// How patient a backup is.
const PATIENCE: Patience = Patience { look_up: Duration::from_secs(1), silence: Duration::from_secs(30) };

/// Has the running server write a backup to `out`.
pub(in crate::control_plane) fn back_up(data: &Path, out: &mut dyn Write, progress: &mut Progress<'_>) -> Result<BackedUp, BackupError> {
    let at = |source| BackupError::Socket { path: data.join(SOCKET), source };
    let stream = connect(data).map_err(|error| if is_deserted(&error) { BackupError::Held { path: data.to_owned() } } else { at(error) })?;
    send(&stream, &Request::BackUp {}).map_err(at)?;
    receive(stream, PATIENCE, out, progress).map_err(|error| match error {
        ReceiveError::Socket(source) => at(source),
        ReceiveError::Other(error) => error,
    })
}

enum ReceiveError {
    Socket(io::Error),
    Other(BackupError),
}

impl From<io::Error> for ReceiveError {
    fn from(error: io::Error) -> Self {
        Self::Socket(error)
    }
}

/// Takes an archive that a server sends.
fn receive(stream: StdStream, patience: Patience, out: &mut dyn Write, progress: &mut Progress<'_>) -> Result<BackedUp, ReceiveError> {
    let progress = RefCell::new(progress);
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not one to a backup; use the server's release");
    stream.set_read_timeout(Some(patience.look_up))?;
    let mut stream = BufReader::new(Patient { stream, patience, silent: Duration::ZERO, progress: &progress });
    let total = loop {
        match read_answer(&mut stream)? {
            Answer::Working {} => {}
            Answer::Archive { bytes } => break bytes,
            Answer::Refused(why) => return Err(ReceiveError::Other(BackupError::Refused(why))),
            Answer::Created { .. } | Answer::BackedUp(_) => return Err(odd().into()),
        }
    };
    let mut out = Counting { out, written: 0, total, progress: &mut |step| progress.borrow_mut()(step) };
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut left = u64::from(u32::from_be_bytes(length));
        if left == 0 {
            break;
        }
        while left > 0 {
            let piece = stream.fill_buf()?;
            let piece = piece.get(..usize::try_from(left).unwrap_or(usize::MAX)).unwrap_or(piece);
            if piece.is_empty() {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            out.write_all(piece).map_err(|error| ReceiveError::Other(BackupError::Archive(error)))?;
            let taken = piece.len();
            stream.consume(taken);
            left -= taken as u64;
        }
    }
    match read_answer(&mut stream)? {
        Answer::BackedUp(done) => Ok(done),
        Answer::Refused(why) => Err(ReceiveError::Other(BackupError::Refused(why))),
        Answer::Created { .. } | Answer::Archive { .. } | Answer::Working {} => Err(odd().into()),
    }
}

/// How long a server may be silent, and how often whoever waits is told.
#[derive(Clone, Copy)]
struct Patience {
    look_up: Duration,
    silence: Duration,
}

/// Reads from a server that may take its time, but says so: one that is stopped or stuck is not waited for without end.
struct Patient<'a, 'b> {
    stream: StdStream,
    patience: Patience,
    silent: Duration,
    progress: &'a RefCell<&'a mut Progress<'b>>,
}

impl Read for Patient<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(buffer) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    self.silent += self.patience.look_up;
                    if self.silent >= self.patience.silence {
                        let why = format!("no word from it for {} s: it is stopped or stuck; its log may say why", self.silent.as_secs());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                    self.progress.borrow_mut()(Step::Waiting { silent: self.silent });
                }
                read => {
                    self.silent = Duration::ZERO;
                    return read;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(silence: u64) -> Patience {
        Patience { look_up: Duration::from_millis(10), silence: Duration::from_millis(silence) }
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for_without_end() {
        let (stream, _server) = StdStream::pair().expect("a pair");
        let mut waits = 0;
        let received = receive(stream, patience(100), &mut io::sink(), &mut |step| waits += usize::from(matches!(step, Step::Waiting { .. })));
        let Err(ReceiveError::Socket(error)) = received else { panic!("it has sent nothing") };
        assert_eq!((error.kind(), waits), (io::ErrorKind::TimedOut, 9), "{error}");
    }

    #[test]
    fn a_server_that_says_that_it_works_is_waited_for() {
        let (stream, server) = StdStream::pair().expect("a pair");
        let (told, telling) = std::sync::mpsc::channel();
        let working = std::thread::spawn(move || {
            for _ in 0..200 {
                telling.recv().expect("the client waits"); // each time after some silence, in sum more than it bears at once
                send(&server, &Answer::Working {}).expect("it is sent");
            }
            send(&server, &Answer::Archive { bytes: 3 }).expect("it is sent");
            (&server).write_all(b"\0\0\0\x03abc\0\0\0\0").expect("it is sent");
            send(&server, &Answer::BackedUp(BackedUp::default())).expect("it is sent");
        });
        let mut archive = Vec::new();
        let mut silent = Duration::ZERO;
        let done = receive(stream, patience(1_500), &mut archive, &mut |step| {
            if matches!(step, Step::Waiting { .. }) {
                silent += Duration::from_millis(10);
                let _ = told.send(()); // it may have heard enough
            }
        });
        assert!(done.is_ok_and(|done| done == BackedUp::default()));
        assert_eq!(archive, b"abc");
        assert!(silent >= Duration::from_millis(2_000));
        working.join().expect("it ends");
    }
}
