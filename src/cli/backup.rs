//! `lakeshore backup`: a copy of all that the control plane keeps.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::failure::Failure;
use super::output::{self, Format};
use super::partial::{Leftovers, Partial};
use super::terminal::note;
use crate::control_plane::{BackedUp, Step, back_up};

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore backup --data /var/lib/lakeshore lakeshore.tar
  kubectl --namespace lakeshore exec statefulset/lakeshore -- \\
      /lakeshore backup --data /var/lib/lakeshore/data - > lakeshore.tar

FILE is a tar archive with the database and the logs of instances, of one moment. It holds what the
data folder holds, hashes of tokens and the output of scripts among it: keep it as you keep those.

To go back to it, unpack it into a new folder and serve that:
  mkdir -m 700 restored && tar -xpf lakeshore.tar -C restored
  lakeshore serve --data restored
The server knows that it runs on a copy: nothing that the copy holds as not ended is started again,
and instances that were launched after it are taken over from the daemons that hold them. What else
changed after the backup is gone: a token that was revoked since is valid again.

A copy of the data folder that a snapshot of its disk made is not known as one: make a backup of
that folder, and serve what it unpacks to. A folder that cannot be written to, such as a snapshot
that is mounted read-only, is copied first (cp -a).";

/// How often the progress is told.
const TELL_EVERY: Duration = Duration::from_secs(2);

/// A backup to make.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Data folder of the server on this machine, running or not; no token is needed
    #[arg(long, env = "LAKESHORE_DATA", default_value = "./lakeshore-data", value_name = "DIR")]
    data: PathBuf,
    /// File to write, which must not exist yet; - for stdout
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Makes the backup.
pub(super) async fn run(args: Args, format: Format) -> Result<(), Failure> {
    let to_stdout = args.file.as_os_str() == "-";
    if to_stdout && io::stdout().is_terminal() {
        return Err(Failure::usage("an archive is nothing for a terminal: name a FILE, or send stdout to one"));
    }
    let (file, leftovers) = (args.file.clone(), Leftovers::default());
    let work = {
        let leftovers = leftovers.clone();
        move || if to_stdout { write_to_stdout(&args.data, &leftovers) } else { write_to_file(&args.data, &args.file, &leftovers) }
    };
    let done = tokio::select! {
        done = tokio::task::spawn_blocking(work) => done.map_err(|e| Failure::Runtime { source: e.into() })??,
        failure = told_to_end() => {
            std::mem::forget(leftovers.remove()); // the process ends: what still works in it makes no new file
            if to_stdout || std::fs::symlink_metadata(&file).is_err() {
                note("no backup was made");
            }
            return Err(failure);
        }
    };
    done.notices.iter().for_each(|notice| note(notice));
    if !done.damaged_logs.is_empty() {
        note(&format!("the data folder itself holds less of these logs than was stored, and so does the backup: {}", done.damaged_logs.join(", ")));
    }
    let BackedUp { database_bytes, logs, log_bytes, .. } = done;
    let name = if to_stdout { "stdout".into() } else { file.display().to_string() };
    let sentence = format!("backed up to {name}: database {}, {logs} logs {}", size(database_bytes), size(log_bytes));
    if to_stdout {
        note(&sentence);
        return Ok(());
    }
    let value = json!({
        "file": name,
        "databaseBytes": database_bytes,
        "logs": logs,
        "logBytes": log_bytes,
        "damagedLogs": done.damaged_logs,
    });
    output::done(format, &sentence, &value)
}

/// Waits for a signal that asks to end.
async fn told_to_end() -> Failure {
    let signals = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()].map(signal);
    let [Ok(mut terminate), Ok(mut hangup), Ok(mut quit)] = signals else { return std::future::pending().await };
    let (name, number) = tokio::select! {
        _ = tokio::signal::ctrl_c() => return Failure::Interrupted,
        _ = terminate.recv() => ("SIGTERM", 15),
        _ = hangup.recv() => ("SIGHUP", 1),
        _ = quit.recv() => ("SIGQUIT", 3),
    };
    Failure::Ended { name, number }
}

fn write_to_stdout(data: &Path, leftovers: &Leftovers) -> Result<BackedUp, Failure> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    let done = back_up(data, &mut stdout, &mut teller(leftovers)).map_err(Failure::Backup)?;
    stdout.flush().map_err(Failure::Stdout)?;
    Ok(done)
}

/// Writes beside `file` and gives it its name when it is whole and on disk: what has the name is a backup.
fn write_to_file(data: &Path, file: &Path, leftovers: &Leftovers) -> Result<BackedUp, Failure> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Failure::File { path, source }
    };
    if std::fs::symlink_metadata(file).is_ok() {
        let message = format!("{} exists, and a backup overwrites nothing", file.display());
        return Err(Failure::Usage { message, cure: Some("name another file, or move that one away".into()) });
    }
    let partial = Partial::beside(file, leftovers)?;
    let mut out = BufWriter::new(&partial.file);
    let done = back_up(data, &mut out, &mut teller(leftovers)).map_err(Failure::Backup)?;
    let written = out.into_inner().map_err(io::IntoInnerError::into_error).and_then(File::sync_all);
    written.map_err(failed(partial.path()))?;
    std::fs::hard_link(partial.path(), file).map_err(failed(file))?; // unlike a rename, it never takes the place of another file
    drop(partial);
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
    Ok(done)
}

/// Tells how far it is, on stderr, when it takes long, and notes what a signal must remove.
fn teller(leftovers: &Leftovers) -> impl FnMut(Step<'_>) {
    let mut told = Instant::now();
    move |step| match step {
        Step::Copying { copy } => leftovers.add(copy),
        Step::Waiting { .. } | Step::Written { .. } if told.elapsed() < TELL_EVERY => {}
        Step::Waiting { silent } => {
            told = Instant::now();
            note(&format!("waiting for the server on this data folder; no word from it for {} s", silent.as_secs()));
        }
        Step::Written { bytes, of } => {
            told = Instant::now();
            note(&format!("{} of {}", size(bytes), size(of)));
        }
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}
