//! The store in one SQLite file: WAL, every commit synced, one thread that writes.
//!
//! Writes go through a bounded channel to the writer's thread, one immediate transaction each; reads run on connections of their
//! own, so that a slow listing holds up no launch. The data folder is locked by the operating system for the life of the writer.

mod adopt;
mod convert;
mod directory;
mod dispatches;
mod engine;
mod exclusive;
mod gone;
mod identity;
mod log_rows;
mod place;
mod restore;
mod schema;
mod sessions;
mod wal;

use std::path::PathBuf;

use jiff::Timestamp;
use rusqlite::Connection;

use super::{
    Acceptance, Accepted, Added, CallerToken, Cluster, ClusterRow, DaemonRow, Declared, Deletion, Enrolled, Fence, GoneNode, Idempotency, Instance,
    InstanceFilter, Launched, LogProgress, Mode, NewEnrolment, NewLaunch, Offer, OpenSession, OpenedSession, Place, Provider, Put, Refusal, Refused,
    Removal, Reply, Reported, Store, StoredLog, TokenRow, Trust, Write,
};
use crate::control_plane::tokens::TokenHash;
use crate::types::{DispatchId, InstanceName, NodeName};
use crate::wire::{LogEndReason, NodeFacts, NodeItem, Report};

#[cfg(test)]
pub(crate) use engine::Fate;
pub(crate) use engine::SqliteStore;
pub(crate) use exclusive::{DATABASE, ExclusiveStore, LOGS};

impl Store for SqliteStore {
    fn create_cluster(&self, cluster: Cluster, enrolment: NewEnrolment) -> Reply<'_, Put> {
        self.write("enrol a cluster", move |tx| directory::create_cluster(tx, &cluster, &enrolment))
    }

    fn clusters(&self) -> Reply<'_, Vec<ClusterRow>> {
        self.read("list clusters", identity::clusters)
    }

    fn cluster_by_token(&self, hash: TokenHash, now: Timestamp) -> Reply<'_, Option<Enrolled>> {
        self.read("look up an enrolment token", move |connection| identity::by_token(connection, &hash, now))
    }

    fn add_enrolment(&self, cluster: String, enrolment: NewEnrolment) -> Reply<'_, Added> {
        self.write("add an enrolment token", move |tx| identity::add(tx, &cluster, &enrolment))
    }

    fn use_enrolment(&self, id: String, now: Timestamp) -> Reply<'_, bool> {
        self.write("note the use of an enrolment token", move |tx| identity::note_used(tx, &id, now))
    }

    fn revoke_enrolment(&self, cluster: String, id: String, now: Timestamp) -> Reply<'_, bool> {
        self.write("revoke an enrolment token", move |tx| identity::revoke(tx, &cluster, &id, now))
    }

    fn trust(&self, cluster: String) -> Reply<'_, Option<Trust>> {
        self.read("read a cluster's signing keys", move |connection| identity::trust_of(connection, &cluster))
    }

    fn record_trust(&self, cluster: String, known: Option<Timestamp>, trust: Trust) -> Reply<'_, bool> {
        self.write("record a cluster's signing keys", move |tx| identity::record(tx, &cluster, known, &trust))
    }

    fn create_token(&self, token: TokenRow) -> Reply<'_, Put> {
        self.write("create a token", move |tx| directory::create_token(tx, &token))
    }

    fn put_bootstrap_token(&self, token: TokenRow) -> Reply<'_, Put> {
        self.write("store the bootstrap token", move |tx| directory::put_bootstrap_token(tx, &token))
    }

    fn tokens(&self) -> Reply<'_, Vec<CallerToken>> {
        self.read("list tokens", directory::tokens)
    }

    fn caller_by_token(&self, hash: TokenHash) -> Reply<'_, Option<CallerToken>> {
        self.read("look up a token", move |connection| directory::caller_by_token(connection, &hash))
    }

    fn revoke_token(&self, id: String, now: Timestamp) -> Reply<'_, bool> {
        self.write("revoke a token", move |tx| directory::revoke_token(tx, &id, now))
    }

    fn create_namespace(&self, name: String, now: Timestamp) -> Reply<'_, Put> {
        self.write("create a namespace", move |tx| directory::create_namespace(tx, &name, now))
    }

    fn namespaces(&self) -> Reply<'_, Vec<(String, Timestamp)>> {
        self.read("list namespaces", directory::namespaces)
    }

    fn put_provider(&self, provider: Provider, write: Write, now: Timestamp) -> Reply<'_, Put> {
        self.write("store a provider", move |tx| directory::put_provider(tx, &provider, write, now))
    }

    fn provider(&self, namespace: String, name: String) -> Reply<'_, Option<Provider>> {
        self.read("read a provider", move |connection| directory::provider(connection, &namespace, &name))
    }

    fn providers(&self, namespace: String) -> Reply<'_, Vec<Provider>> {
        self.read("list providers", move |connection| directory::providers(connection, &namespace))
    }

    fn remove_provider(&self, namespace: String, name: String) -> Reply<'_, Removal> {
        self.write("remove a provider", move |tx| directory::remove_provider(tx, &namespace, &name))
    }

    fn put_mode(&self, mode: Mode, write: Write, now: Timestamp) -> Reply<'_, Put> {
        self.write("store a mode", move |tx| directory::put_mode(tx, &mode, write, now))
    }

    fn mode(&self, namespace: String, name: String) -> Reply<'_, Option<Mode>> {
        self.read("read a mode", move |connection| directory::mode(connection, &namespace, &name))
    }

    fn modes(&self, namespace: String) -> Reply<'_, Vec<Mode>> {
        self.read("list modes", move |connection| directory::modes(connection, &namespace))
    }

    fn remove_mode(&self, namespace: String, name: String) -> Reply<'_, bool> {
        self.write("remove a mode", move |tx| directory::remove_mode(tx, &namespace, &name))
    }

    fn open_session(&self, session: OpenSession) -> Reply<'_, OpenedSession> {
        self.write("open a session", move |tx| sessions::open(tx, &session))
    }

    fn unconfirmed_deletions(&self, place: Place) -> Reply<'_, Vec<InstanceName>> {
        self.read("list deletions", move |connection| sessions::unconfirmed_deletions(connection, &place))
    }

    fn close_session(&self, fence: Fence, last_seen: Timestamp) -> Reply<'_, ()> {
        self.write("close a session", move |tx| sessions::close(tx, &fence, last_seen))
    }

    fn note_facts(&self, fence: Fence, facts: NodeFacts) -> Reply<'_, bool> {
        self.write("note a node's facts", move |tx| gone::note_facts(tx, &fence, &facts))
    }

    fn nodes(&self, cluster: String, now: Timestamp) -> Reply<'_, Vec<NodeItem>> {
        self.read("list nodes", move |connection| gone::nodes(connection, &cluster, now))
    }

    fn declare_gone(&self, gone: GoneNode) -> Reply<'_, Declared> {
        self.write("declare a node gone", move |tx| gone::declare(tx, &gone))
    }

    fn node_back(&self, fence: Fence, node: NodeName, uid: Option<String>) -> Reply<'_, bool> {
        self.write("take a node back", move |tx| gone::back(tx, &fence, node.as_str(), uid.as_deref()))
    }

    fn daemons(&self) -> Reply<'_, Vec<DaemonRow>> {
        self.read("list daemons", sessions::daemons)
    }

    fn daemon(&self, cluster: String, node: String) -> Reply<'_, Option<DaemonRow>> {
        self.read("read a daemon", move |connection| sessions::one(connection, &cluster, &node))
    }

    fn launched_before(&self, namespace: String, provider: String, used: Idempotency) -> Reply<'_, Option<Launched>> {
        self.read("look up an idempotency key", move |connection| dispatches::launched_before(connection, &namespace, &provider, &used))
    }

    fn launch(&self, launch: NewLaunch) -> Reply<'_, Launched> {
        self.write("store a launch", move |tx| dispatches::launch(tx, &launch))
    }

    fn mark_answered(&self, dispatch_id: DispatchId) -> Reply<'_, Option<Instance>> {
        self.write("mark a launch as answered", move |tx| dispatches::mark_answered(tx, &dispatch_id))
    }

    fn queued(&self, place: Place, after: i64, limit: u32, max_open: u32) -> Reply<'_, Vec<Offer>> {
        self.read("list queued dispatches", move |connection| dispatches::queued(connection, &place, after, limit, max_open))
    }

    fn offer(&self, place: Place, dispatch_id: DispatchId) -> Reply<'_, Option<Offer>> {
        self.read("read a queued dispatch", move |connection| dispatches::offer(connection, &place, &dispatch_id))
    }

    fn accept(&self, fence: Fence, acceptance: Acceptance) -> Reply<'_, Accepted> {
        self.write("accept a dispatch", move |tx| dispatches::accept(tx, &fence, &acceptance))
    }

    fn refuse(&self, fence: Fence, refusal: Refusal) -> Reply<'_, Refused> {
        self.write("refuse a dispatch", move |tx| dispatches::refuse(tx, &fence, &refusal))
    }

    fn report(&self, fence: Fence, report: Box<Report>) -> Reply<'_, Reported> {
        self.write("store a report", move |tx| dispatches::report(tx, &fence, &report))
    }

    fn request_delete(&self, namespace: String, provider: String, instance: InstanceName, now: Timestamp) -> Reply<'_, Deletion> {
        self.write("store a wish to delete", move |tx| dispatches::request_delete(tx, &namespace, &provider, &instance, now))
    }

    fn instance(&self, namespace: String, instance: InstanceName) -> Reply<'_, Option<Instance>> {
        let read = move |connection: &Connection| Ok(dispatches::named(connection, &instance)?.filter(|row| row.namespace == namespace));
        self.read("read an instance", read)
    }

    fn instance_of(&self, dispatch_id: DispatchId) -> Reply<'_, Option<Instance>> {
        self.read("read an instance", move |connection| dispatches::of_dispatch(connection, &dispatch_id))
    }

    fn instances(&self, filter: InstanceFilter) -> Reply<'_, Vec<Instance>> {
        self.read("list instances", move |connection| dispatches::list(connection, &filter))
    }

    fn commit_logs(&self, fence: Fence, progress: Vec<LogProgress>) -> Reply<'_, bool> {
        self.write("commit logs", move |tx| log_rows::commit(tx, &fence, &progress))
    }

    fn end_log(&self, fence: Fence, dispatch_id: DispatchId, reason: LogEndReason) -> Reply<'_, bool> {
        self.write("end a log", move |tx| log_rows::end(tx, &fence, &dispatch_id, reason))
    }

    fn copy(&self, file: PathBuf) -> Reply<'_, Vec<StoredLog>> {
        self.read("copy everything", move |connection| restore::copy(connection, &file))
    }

    fn ping(&self) -> Reply<'_, ()> {
        self.probe()
    }
}

#[cfg(test)]
#[path = "conformance_tests.rs"]
mod tests;
