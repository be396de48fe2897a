//! Wires the daemon together and runs its one loop.

use std::time::Duration;

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use super::effects::{Hands, Performer};
use super::event::{Event, Now};
use super::lease::{Candidate, Turn};
use super::link::{Link, Slot};
use super::reload::{Reload, read_policy};
use super::state::{DaemonState, Settings};
use super::{facts, health, identity, kubernetes};
use crate::apply::ApiServer;
use crate::audit::{Audit, Fact};
use crate::config::Config;
use crate::host::Workdirs;
use crate::telemetry::{Condition, Health};
use crate::types::{Placement, hex};

/// Events under way to the loop. Its senders are the link, 32 calls, 256 follows and a few others, each of which waits with one; the rest is room for
/// bursts, so that a thousand dispatches can queue without holding up the link's heartbeat.
const EVENTS: usize = 1024;
/// Watch events under way; a list of thousands flows through as fast as the loop takes it.
const SEEN: usize = 256;
/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(500);
/// How long tasks may take to end after their work was cancelled.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// The daemon cannot start: a configuration error.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(super) struct StartError {
    what: String,
    #[source]
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

fn start_error<E: std::error::Error + Send + Sync + 'static>(what: &str) -> impl FnOnce(E) -> StartError {
    let what = what.to_owned();
    move |source| StartError { what, source: Some(Box::new(source)) }
}

/// Runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// [`StartError`] when it cannot start; once it runs, nothing but a signal ends it.
pub(super) async fn run(config: Config) -> Result<(), StartError> {
    let boot = config.boot;
    let boot_id = boot_id().map_err(start_error("no randomness for the boot id"))?;
    let own_namespace = boot.namespace.clone().or_else(kubernetes::own_namespace);
    let policy = read_policy(&boot.policy_file, own_namespace.as_ref()).map_err(start_error("no policy"))?;
    let url = boot.control_plane.url.parse().map_err(start_error("control_plane.url"))?;
    let workdirs = match boot.placement {
        Placement::Node(_) => Some(Workdirs::open(&boot.workdir_root).map_err(start_error("workdir.root"))?),
        Placement::Cluster => None,
    };
    let audit = Audit::open(boot_id.clone(), boot.placement.clone(), boot.audit_file.as_deref()).map_err(start_error("audit.file"))?;
    let clients = kubernetes::clients(boot.kubeconfig.as_deref()).await.map_err(start_error("no way to the API server"))?;
    let listener = health::bind(boot.health_listen).await.map_err(start_error(&format!("health.listen {}", boot.health_listen)))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(start_error("SIGTERM cannot be handled"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(start_error("SIGINT cannot be handled"))?;

    let (events, mut event_queue) = mpsc::channel(EVENTS);
    let (seen, mut seen_queue) = mpsc::channel(SEEN);
    let (health, slot) = (Health::starting(), Slot::default());
    let (tracker, cancel, link_cancel) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
    let (token_changed, token_seen) = watch::channel(0);
    let api = ApiServer::new(clients.calls);
    let hands = Hands::new(api.clone(), audit, workdirs, health.clone(), events.clone());

    info!(version = env!("CARGO_PKG_VERSION"), boot_id, node = %boot.placement, policy = policy.digest(), "The daemon starts");
    for warning in &config.warnings {
        warn!(warning, "The configuration is not wise");
    }
    hands.record(Fact::DaemonStarted { version: env!("CARGO_PKG_VERSION") }).await;
    hands.record(Fact::PolicyLoaded { digest: policy.digest().to_owned() }).await;
    health.hold(Condition::Policy);

    let turn = match &boot.placement {
        Placement::Node(_) => Turn::always(),
        Placement::Cluster => {
            let namespace = own_namespace.clone().ok_or_else(|| StartError {
                what: "a daemon of role cluster holds a Lease in its own namespace, which is not known: set `namespace`, or run it in a Pod".into(),
                source: None,
            })?;
            let me = format!("{}_{boot_id}", kubernetes::host_name());
            let candidate =
                Candidate { api: api.clone(), namespace, name: boot.lease.name, duration: boot.lease.duration, me, health: health.clone() };
            let (turn, standing) = candidate.stand(cancel.clone());
            tracker.spawn(standing);
            turn
        }
    };
    let link = Link {
        url,
        placement: boot.placement.clone(),
        token_file: boot.control_plane.token_file.clone(),
        identity_file: boot.control_plane.identity_token_file.clone(),
        ca_file: boot.control_plane.ca_file,
        server_name: boot.control_plane.server_name,
        proxy: boot.control_plane.proxy,
        slot: slot.clone(),
        events: events.clone(),
        health: health.clone(),
        turn,
        token_changed: token_seen,
    };
    let token_files = [Some(boot.control_plane.token_file), boot.control_plane.identity_token_file.clone()].into_iter().flatten().collect();
    let reload = Reload { policy_file: boot.policy_file, token_files, own_namespace, hands: hands.clone(), token_changed };
    tracker.spawn(health::serve(listener, health.clone(), cancel.clone()));
    tracker.spawn(reload.run(cancel.clone()));
    tracker.spawn(facts::keep_reading(api.clone(), boot.placement.node().cloned(), events.clone(), cancel.clone()));
    let (keys_read, first_keys) = oneshot::channel();
    identity::warn_without(boot.control_plane.identity_token_file.as_ref());
    tracker.spawn(identity::keep_reading_keys(api, events, keys_read, cancel.clone()));
    let dialling = link_cancel.clone();
    let link = tracker.spawn(async move {
        identity::first_reading(first_keys).await;
        link.run(dialling).await;
    });
    let mut performer = Performer::new(hands, slot, clients.watches, clients.follows, boot.placement.clone(), seen, tracker.clone());

    let settings = Settings { placement: boot.placement, boot_id, workdir_root: boot.workdir_root };
    let (mut state, first) = DaemonState::new(settings, policy);
    for effect in first {
        performer.perform(effect, None).await;
    }

    // The one loop: take an event, let the state decide, perform the effects.
    let start = Instant::now();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut drain_until: Option<Instant> = None;
    loop {
        let deadline = drain_until.unwrap_or_else(|| start + Duration::from_secs(u32::MAX.into()));
        let event = tokio::select! {
            Some(event) = event_queue.recv() => event,
            Some((scope, seen)) = seen_queue.recv() => Event::Seen { scope, seen },
            _ = ticks.tick() => Event::Tick,
            _ = terminate.recv() => Event::Draining,
            _ = interrupt.recv() => Event::Draining,
            () = sleep_until(deadline) => {
                warn!("The drain took too long; ending with work under way, which the control plane settles with the next daemon");
                break;
            }
        };
        if matches!(event, Event::Draining) && drain_until.is_none() {
            info!(drain_ms = u64::try_from(boot.drain.as_millis()).unwrap_or(u64::MAX), "Draining; instances run on");
            drain_until = Some(Instant::now() + boot.drain);
        }
        let now = Now { wall: Timestamp::now(), mono: start.elapsed() };
        for effect in state.handle(event, now) {
            performer.perform(effect, state.link()).await;
        }
        if drain_until.is_some() && state.is_idle() {
            break;
        }
    }

    performer.stop();
    link_cancel.cancel();
    // The link's goodbye has its own deadline; its events have no reader any more.
    drop((event_queue, seen_queue));
    let _ = timeout(STRAGGLERS * 4, link).await;
    cancel.cancel();
    tracker.close();
    let _ = timeout(STRAGGLERS, tracker.wait()).await;
    info!("The daemon ends");
    Ok(())
}

fn boot_id() -> Result<String, std::io::Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    Ok(hex(&bytes))
}
