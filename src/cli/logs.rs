//! `lakeshore logs`: an instance's output, as far as it is there or until it is complete.

use std::time::Duration;

use super::failure::Failure;
use super::follow::{Patience, Screen, follow};
use super::instance::Instance;
use super::log_pump::LogPump;
use super::session::Session;
use super::state_pump::StatePump;
use crate::types::InstanceName;

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore logs lakeshore-0a1b2c3d
  lakeshore logs -f lakeshore-0a1b2c3d > output.txt
  lakeshore logs -f lakeshore-0a1b2c3d --offset 4096

Written byte for byte as the container wrote it. Only on a terminal are control characters made
visible, unless --raw is given.";

/// A control plane that restarts is waited for; the log as such has all the time it needs.
const PATIENCE: Patience = Patience { outage: Duration::from_secs(600), rest_of_log: None };

/// Which log, and from where.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Instance whose output is shown
    #[arg(value_name = "ID")]
    instance: InstanceName,
    /// Stay until the output is complete
    #[arg(short, long)]
    follow: bool,
    /// Begin at this byte of the output
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    offset: u64,
    /// Write control characters of the output to a terminal as they are
    #[arg(long)]
    raw: bool,
}

/// Shows the log.
pub(super) async fn run(args: &Args, session: &Session) -> Result<(), Failure> {
    let id = args.instance.as_str();
    let instance = Instance::read(&session.client, session.client.get(&session.path(&["instances", id]), &[]).await?)?;
    let path: Vec<String> = session.path(&["providers", &instance.provider_name, "instances", id]).into_iter().map(str::to_owned).collect();
    let state = args.follow.then(|| StatePump { client: session.client.clone(), path: path.clone() });
    let log = LogPump { client: session.client.clone(), path: [path, vec!["logs".to_owned()]].concat(), offset: args.offset, follow: args.follow };
    let mut screen = Screen::new(args.raw, false);
    let ending = tokio::select! {
        ending = follow(state, log, PATIENCE, &mut screen) => ending?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted),
    };
    let last = ending.instance.as_ref().unwrap_or(&instance);
    if let Some(gap) = last.log_gap() {
        screen.note(&gap);
    } else if ending.bytes == 0 && args.offset == 0 {
        // Nothing on stdout may mean no output, or output that is lost or yet to come: say which.
        screen.note(&match last.ended() {
            true => format!("no output is kept; {}", last.verdict()),
            false => format!("no output yet; {id} is {}", last.progress()),
        });
    }
    Ok(())
}
