//! `lakeshore stop`: end an instance and delete its Pod.

use super::failure::Failure;
use super::instance::Instance;
use super::session::Session;
use super::state_pump::StatePump;
use super::terminal::note;
use crate::types::{InstanceName, ResourceName};

pub(super) const EXAMPLE: &str = "\
Examples:
  lakeshore stop lakeshore-0a1b2c3d
  lakeshore stop lakeshore-0a1b2c3d --wait

The script gets SIGTERM, and SIGKILL 30 s later; Python takes all of that unless the script
handles SIGTERM. The wish is kept until it is carried out, also while the daemon is away. Without
--wait the command returns at once. What has stopped by itself keeps its Pod.";

/// Which instance.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Instance to stop
    #[arg(value_name = "ID")]
    instance: InstanceName,
    /// Wait until it has stopped
    #[arg(short, long)]
    wait: bool,
    /// Provider to ask, for an instance that the control plane no longer knows
    #[arg(long, value_name = "NAME")]
    provider: Option<ResourceName>,
}

/// Asks for the deletion.
pub(super) async fn run(args: &Args, session: &Session) -> Result<(), Failure> {
    let id = args.instance.as_str();
    let (provider, end) = match &args.provider {
        Some(provider) => (provider.as_str().to_owned(), None),
        None => {
            let seen = Instance::read(&session.client, session.client.get(&session.path(&["instances", id]), &[]).await?)?;
            let end = seen.ended().then(|| seen.verdict());
            (seen.provider_name, end)
        }
    };
    session.client.delete(&session.path(&["providers", &provider, "instances", id])).await?;
    if !args.wait {
        note(&end.unwrap_or_else(|| format!("{id} is asked to stop; `{}` shows how it goes", session.suggest("instances"))));
        return Ok(());
    }
    let path = session.path(&["providers", &provider, "instances", id]).into_iter().map(str::to_owned).collect();
    let stopped = tokio::select! {
        stopped = wait(StatePump { client: session.client.clone(), path }) => stopped?,
        _ = tokio::signal::ctrl_c() => return Err(Failure::Interrupted),
    };
    match stopped {
        Some(instance) => note(&instance.verdict()),
        None => note(&format!("{id} does not exist")),
    }
    Ok(())
}

/// Waits for the end; `None` when the control plane knows no such instance, which is as stopped as can be.
async fn wait(pump: StatePump) -> Result<Option<Instance>, Failure> {
    match pump.now().await {
        Err(Failure::Refused(problem)) if problem.status == reqwest::StatusCode::NOT_FOUND => return Ok(None),
        Err(failure) => return Err(failure),
        Ok(instance) if instance.ended() => return Ok(Some(instance)),
        Ok(_) => {}
    }
    let (events, mut seen) = tokio::sync::mpsc::channel(4);
    let (ended, _ended) = tokio::sync::watch::channel(false);
    let mut task = tokio::task::JoinSet::new(); // stops it when this future is dropped
    task.spawn(pump.run(ended, events));
    let mut said = String::new();
    while let Some(event) = seen.recv().await {
        use super::follow::Event;
        match event {
            Event::Seen(instance) if instance.ended() => return Ok(Some(instance)),
            Event::Seen(instance) => {
                if instance.news() != said {
                    note(&instance.progress());
                    said = instance.news();
                }
            }
            Event::Broken { cause, .. } if cause != said => {
                note(&format!("{cause}; trying again"));
                said = cause;
            }
            Event::Failed(failure) => return Err(failure),
            Event::Log(_) | Event::LogDone | Event::Broken { .. } | Event::Restored(_) => {}
        }
    }
    Err(Failure::UnknownOutcome { message: "the wait ended without an answer".to_owned(), cure: "look with `lakeshore instances`".to_owned() })
}
