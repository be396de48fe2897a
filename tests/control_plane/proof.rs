//! Daemons that prove who they are, and those that try to without being it.

use jiff::Timestamp;
use nymph::types::Role;
use nymph::wire::{ClusterKeys, Hello, IDENTITY_HEADER, NODE_HEADER, ROLE_HEADER, ToControlPlane};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::http::Request;

use crate::daemon::{Away, Daemon, facts, handshake, hello};
use crate::issuer::Issuer;
use crate::plane::{Plane, STUCK};

pub(crate) const URL: &str = "https://kubernetes.default.svc.cluster.local";

/// What a daemon shows when it dials.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) enrolment: String,
    /// `None`: it is the cluster's daemon.
    pub(crate) node: Option<String>,
    pub(crate) identity: Option<String>,
    pub(crate) keys: Option<ClusterKeys>,
    pub(crate) cluster_uid: Option<String>,
}

pub(crate) fn now() -> i64 {
    Timestamp::now().as_second()
}

pub(crate) fn keys(issuer: &Issuer) -> ClusterKeys {
    ClusterKeys { issuer: issuer.url.clone(), jwks: issuer.jwks() }
}

impl Shown {
    /// A rightful daemon of the node.
    pub(crate) fn on(issuer: &Issuer, enrolment: &str, node: &str) -> Self {
        Self {
            enrolment: enrolment.into(),
            node: Some(node.into()),
            identity: Some(issuer.token(&issuer.claims(node, now()))),
            keys: Some(keys(issuer)),
            cluster_uid: Some("cluster-uid".into()),
        }
    }

    /// A rightful daemon of role `cluster`, of an account of its own.
    pub(crate) fn of_cluster(issuer: &Issuer, enrolment: &str) -> Self {
        let mut claims = issuer.claims("node9", now());
        claims["sub"] = json!("system:serviceaccount:nymph-system:nymph-cluster");
        claims["kubernetes.io"]["serviceaccount"]["name"] = json!("nymph-cluster");
        Self { node: None, identity: Some(issuer.token(&claims)), ..Self::on(issuer, enrolment, "node9") }
    }

    /// With another identity token.
    pub(crate) fn identity(self, token: String) -> Self {
        Self { identity: Some(token), ..self }
    }

    fn request(&self, plane: &Plane) -> Request<()> {
        let mut request = handshake(plane, &self.enrolment, self.node.as_deref().unwrap_or("x"));
        if self.node.is_none() {
            request.headers_mut().remove(NODE_HEADER);
            request.headers_mut().insert(ROLE_HEADER, "cluster".parse().expect("a header"));
        }
        if let Some(identity) = &self.identity {
            request.headers_mut().insert(IDENTITY_HEADER, identity.parse().expect("a header"));
        }
        request
    }

    fn hello(&self) -> ToControlPlane {
        let ToControlPlane::Hello(said) = hello(facts(self.node.as_deref().unwrap_or("x"))) else { panic!("it is a hello") };
        let (role, node) = if self.node.is_some() { (Role::Node, said.node.clone()) } else { (Role::Cluster, None) };
        ToControlPlane::Hello(Box::new(Hello { role, node, keys: self.keys.clone(), cluster_uid: self.cluster_uid.clone(), ..*said }))
    }

    pub(crate) async fn dial(&self, plane: &Plane) -> Result<Daemon, Away> {
        Daemon::dial(plane, self.request(plane), self.hello()).await
    }

    #[track_caller]
    pub(crate) fn connect(&self, plane: &Plane) -> impl Future<Output = Daemon> {
        let caller = std::panic::Location::caller();
        async move { self.dial(plane).await.unwrap_or_else(|away| panic!("{caller}: turned away: {away:?}")) }
    }

    /// Is refused before its upgrade, in the words that a stranger hears.
    pub(crate) async fn refused(&self, plane: &Plane, what: &str) {
        match self.dial(plane).await {
            Err(Away::Http(401, body)) => {
                let stranger = Shown { enrolment: "nobody".into(), ..self.clone() };
                let Err(Away::Http(401, same)) = stranger.dial(plane).await else { panic!("a stranger is refused") };
                assert_eq!((&body, body["code"].as_str()), (&same, Some("unauthorized")), "{what}");
            }
            Err(other) => panic!("{what}: refused in another way: {other:?}"),
            Ok(_) => panic!("{what}: it got in"),
        }
    }
}

/// Waits for an audit line of this event that holds all these words, and gives it.
pub(crate) async fn audited(plane: &Plane, event: &str, words: &[&str]) -> Value {
    let find = || {
        let log = plane.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["target"] == "audit" && line["event"] == event).find(|line| words.iter().all(|word| line.to_string().contains(word)))
    };
    let wait = async {
        loop {
            if let Some(line) = find() {
                return line;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(STUCK, wait).await.unwrap_or_else(|_| panic!("no audit line {event} with {words:?}"))
}

/// The row of a daemon in the list.
pub(crate) async fn listed(plane: &Plane, node: &str) -> Value {
    let rows = plane.get("/v1/daemons").await.expect(200).body;
    rows.as_array().expect("a list").iter().find(|row| row["node"] == node).unwrap_or_else(|| panic!("{node} is not in {rows}")).clone()
}
