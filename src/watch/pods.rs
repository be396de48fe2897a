//! One Pod watch.

use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::error::Chain;
use crate::types::{KubeNamespace, LABEL_NODE, Placement};

/// A watch is opened anew this often, in seconds: a connection that died in silence is noticed 5 s later. Each daemon then costs the API
/// server one cheap request (it starts from a resourceVersion) a minute for each watch.
const WATCH_TIMEOUT: u32 = 120;
/// After so many answers 410 to the opening of a watch in a row, it is built anew with a list. API servers say it inside the stream, which
/// kube handles; proxies in between may not, and kube would ask with the same resourceVersion for ever.
const MAX_GONE: u32 = 3;

/// Which Pods of ours a watch sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Binding {
    /// Those bound to this node, or to any when they were placed `cluster`.
    Bound,
    /// Those not yet bound to any node; leaving this watch is a hand-over, not a deletion.
    Unbound,
}

/// One watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// Namespace.
    pub namespace: KubeNamespace,
    /// Which of its Pods.
    pub binding: Binding,
}

/// What a watch saw.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A full list begins.
    Relisting,
    /// An object of the list.
    Listed(Box<Pod>),
    /// The list is complete: what it did not name is no longer in this watch.
    Relisted,
    /// An object was added or changed.
    Applied(Box<Pod>),
    /// An object left this watch.
    Left(Box<Pod>),
    /// The watch does not work now; it is tried again for ever, at most 30 s apart.
    Failing(String),
}

/// Follows the Pods that carry this placement's label, until cancelled or the receiver is gone.
///
/// Survives a missing namespace, missing rights and an API server that is down: each failure is handed on as [`Seen::Failing`], and a
/// `Relisting` … `Relisted` follows when it works again.
pub async fn follow(client: Client, placement: Placement, scope: Scope, events: mpsc::Sender<(Scope, Seen)>, cancel: CancellationToken) {
    let pods: Api<Pod> = Api::namespaced(client, scope.namespace.as_str());
    let fields = match (scope.binding, placement.node()) {
        (Binding::Bound, Some(node)) => format!("spec.nodeName={node}"),
        (Binding::Bound, None) => "spec.nodeName!=".to_owned(),
        (Binding::Unbound, _) => "spec.nodeName=".to_owned(),
    };
    let labels = format!("{LABEL_NODE}={}", placement.label());
    let config = watcher::Config::default().labels(&labels).fields(&fields).timeout(WATCH_TIMEOUT);
    // Not kube's own `default_backoff`: that takes the beginning of each list for a success, and so asks a server that refuses lists once a second.
    let mut pauses = DefaultBackoff::default();
    loop {
        let mut gone = 0;
        let mut stream = watcher(pods.clone(), config.clone()).boxed();
        while gone < MAX_GONE {
            let next = tokio::select! {
                () = cancel.cancelled() => return,
                next = stream.next() => next,
            };
            let mut pause = None;
            let seen = match next {
                None => break,
                Some(Ok(event)) => {
                    gone = 0;
                    if !matches!(event, watcher::Event::Init) {
                        pauses.reset();
                    }
                    match event {
                        watcher::Event::Init => Seen::Relisting,
                        watcher::Event::InitApply(pod) => Seen::Listed(Box::new(pod)),
                        watcher::Event::InitDone => Seen::Relisted,
                        watcher::Event::Apply(pod) => Seen::Applied(Box::new(pod)),
                        watcher::Event::Delete(pod) => Seen::Left(Box::new(pod)),
                    }
                }
                Some(Err(error)) => {
                    if matches!(&error, watcher::Error::WatchStartFailed(kube::Error::Api(status)) if status.code == 410) {
                        gone += 1;
                    }
                    pause = pauses.next();
                    Seen::Failing(Chain(&error).to_string())
                }
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                sent = events.send((scope.clone(), seen)) => if sent.is_err() { return },
            }
            if let Some(pause) = pause
                && cancel.run_until_cancelled(tokio::time::sleep(pause)).await.is_none()
            {
                return;
            }
        }
        // A stream that ends or is dropped starts over with a list; never in a tight loop.
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
