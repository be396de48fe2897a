//! Instances that a daemon holds and a restored store does not know: launched after its copy was taken. They get rows, and nothing
//! else happens to them: their daemon reports how they are.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::to_time;
use super::restore;
use crate::control_plane::store::{Adopted, Adoption, Place};
use crate::types::{Attempt, DispatchId, slug};
use crate::wire::{HeldItem, MAX_UID};

/// Longest text of a daemon that a row takes, in bytes: labels have 63, who asked has two names.
const MAX_TEXT: usize = 512;

/// Rows of a place that may come from its daemons' words alone since the last restore: three times what one `hello` has room for.
const MAX_TAKEN: u32 = 10_000;
/// Namespaces that may be made for them, since nothing ever removes one.
const MAX_NAMESPACES: u32 = 100;

/// Adopts what a daemon's `hello` lists. A store that never stood in for a lost one, or not since the daemon's cluster was enrolled, knows every
/// instance there is: a daemon that lists others makes them up.
pub(super) fn adopt(connection: &Connection, place: &Place, held: &[HeldItem], now: Timestamp) -> rusqlite::Result<Vec<Adoption>> {
    let Some(restored) = restore::last(connection)?.filter(|_| !held.is_empty()) else { return Ok(Vec::new()) };
    let sql = "SELECT install, julianday(created_at) > julianday(?2) FROM clusters WHERE name = ?1";
    let (install, since): (String, bool) = connection.query_row(sql, [&place.cluster, &restored], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if since {
        return Ok(Vec::new());
    }
    let sql = "SELECT count(*) FROM dispatches WHERE cluster = ?1 AND node = ?2 AND restored = 1 AND julianday(accepted_at) > julianday(?3)";
    let mut taken: u32 = connection.query_row(sql, params![place.cluster, place.key(), restored], |row| row.get(0))?;
    let mut unknown = Vec::new();
    for item in held {
        let claim = Claim { place, install: &install, restored: &restored, room: taken < MAX_TAKEN };
        let outcome = one(connection, &claim, item, now)?;
        taken += u32::from(matches!(outcome, Some(Adopted::Taken { .. })));
        if let Some(outcome) = outcome {
            unknown.push(Adoption { instance: item.instance.clone(), outcome });
        }
    }
    Ok(unknown)
}

/// Whose word it is, and what it is worth.
struct Claim<'a> {
    place: &'a Place,
    install: &'a str,
    /// When the store was last restored.
    restored: &'a str,
    /// Not too many were taken over already.
    room: bool,
}

/// `None` when the store knows the instance.
fn one(connection: &Connection, claim: &Claim<'_>, item: &HeldItem, now: Timestamp) -> rusqlite::Result<Option<Adopted>> {
    let place = claim.place;
    let left = |why| Ok(Some(Adopted::Left(why)));
    let known = "SELECT 1 FROM dispatches WHERE instance = ?1";
    if connection.prepare_cached(known)?.exists([item.instance.as_str()])? {
        return Ok(None);
    }
    if !claim.room {
        return left("more were taken over from its place already than one restore can have missed");
    }
    if item.dispatch_id.instance_name(item.attempt) != item.instance {
        return left("its name is not the one derived from its dispatch");
    }
    if item.install.as_deref() != Some(claim.install) {
        return left("it was made under another enrolment, or its daemon is of a release that does not say");
    }
    let (Some(caller_namespace), Some(provider)) = (&item.caller_namespace, &item.provider) else {
        return left("it has lost the labels that name its provider");
    };
    if [caller_namespace, provider].into_iter().any(|text| text.is_empty() || slug(text) != *text)
        || item.requested_by.as_ref().is_some_and(|text| text.len() > MAX_TEXT)
        || item.uid.as_ref().is_some_and(|uid| uid.len() > MAX_UID)
    {
        return left("its labels or annotations are not ones that this release writes");
    }
    if let Some(earlier) = attempt_of(connection, &item.dispatch_id)? {
        if !earlier.restored || earlier.attempt >= item.attempt {
            return left("the store knows its dispatch by another attempt");
        }
        return next_attempt(connection, place, &earlier, item, now).map(Some);
    }
    let Some(namespace) = namespace(connection, caller_namespace, claim.restored, now)? else {
        return left("its namespace is not known, and too many were made for others already; create the namespace to see it");
    };
    let sql = "SELECT name, cluster FROM providers WHERE namespace = ?1 AND slug = ?2";
    let found = connection.prepare_cached(sql)?.query_row([&namespace, provider], |row| Ok((row.get(0)?, row.get::<_, String>(1)?))).optional()?;
    let (provider, provider_known) = match found {
        Some((name, cluster)) if cluster == place.cluster => (name, true),
        Some(_) => return left("its provider is one of another cluster"),
        None => (provider.clone(), false),
    };
    insert(connection, place, &namespace, &provider, item, now)?;
    Ok(Some(Adopted::Taken { namespace, provider, provider_known }))
}

/// A row of the same dispatch.
struct Earlier {
    attempt: Attempt,
    restored: bool,
    namespace: String,
    provider: String,
}

fn attempt_of(connection: &Connection, dispatch_id: &DispatchId) -> rusqlite::Result<Option<Earlier>> {
    let sql = "SELECT attempt, restored, namespace, provider FROM dispatches WHERE dispatch_id = ?1";
    let read = |row: &Row<'_>| Ok(Earlier { attempt: Attempt(row.get(0)?), restored: row.get(1)?, namespace: row.get(2)?, provider: row.get(3)? });
    connection.prepare_cached(sql)?.query_row([dispatch_id.as_str()], read).optional()
}

/// The dispatch was queued in the copy, and this attempt was made after it: the row is this attempt's now. Nobody was told the
/// earlier attempt's name, or there would be no later one.
fn next_attempt(connection: &Connection, place: &Place, earlier: &Earlier, item: &HeldItem, now: Timestamp) -> rusqlite::Result<Adopted> {
    connection.execute(
        "UPDATE dispatches SET attempt = ?2, instance = ?3, cluster = ?4, node = ?5, kube_namespace = ?6, uid = ?7, phase = ?8, accepted_at = ?9, \
            accepted_epoch = NULL, state = 'unknown', reason = 'daemon_unreachable', message = ?10, finished_at = NULL, observed_at = ?9, \
            report_seq = 0, rejection = NULL \
         WHERE dispatch_id = ?1",
        params![
            item.dispatch_id.as_str(),
            item.attempt.0,
            item.instance.as_str(),
            place.cluster,
            place.key(),
            item.namespace,
            item.uid,
            phase(item),
            to_time(now),
            MESSAGE,
        ],
    )?;
    Ok(Adopted::Taken { namespace: earlier.namespace.clone(), provider: earlier.provider.clone(), provider_known: true })
}

const MESSAGE: &str = "taken over from its daemon, after the control plane's data came back from a copy";

/// What has no UID yet may still come to nothing.
fn phase(item: &HeldItem) -> &'static str {
    if item.uid.is_some() { "created" } else { "accepted" }
}

/// The namespace of a slug; made when it is not there, since it was when the instance was launched. `None` when too many were made.
fn namespace(connection: &Connection, slug: &str, restored: &str, now: Timestamp) -> rusqlite::Result<Option<String>> {
    let found = connection.prepare_cached("SELECT name FROM namespaces WHERE slug = ?1")?.query_row([slug], |row| row.get(0)).optional()?;
    if found.is_some() {
        return Ok(found);
    }
    let sql = "SELECT count(*) FROM namespaces WHERE julianday(created_at) > julianday(?1)";
    if connection.prepare_cached(sql)?.query_row([restored], |row| row.get::<_, u32>(0))? >= MAX_NAMESPACES {
        return Ok(None);
    }
    connection.execute("INSERT INTO namespaces (name, slug, created_at) VALUES (?1, ?1, ?2)", [slug, &to_time(now)])?;
    Ok(Some(slug.to_owned()))
}

fn insert(connection: &Connection, place: &Place, namespace: &str, provider: &str, item: &HeldItem, now: Timestamp) -> rusqlite::Result<()> {
    // The annotation is `<namespace>/<user>`; a row holds the user, and its namespace beside it.
    let requested_by = item.requested_by.as_deref().unwrap_or_default();
    let user = requested_by.split_once('/').map_or(requested_by, |(_, user)| user);
    connection.execute(
        "INSERT INTO dispatches (dispatch_id, attempt, instance, namespace, provider, cluster, node, requested_by, kube_namespace, uid, phase, \
            accepted_at, launched_at, state, reason, message, observed_at, restored) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12, 'unknown', 'daemon_unreachable', ?13, ?12, 1)",
        params![
            item.dispatch_id.as_str(),
            item.attempt.0,
            item.instance.as_str(),
            namespace,
            provider,
            place.cluster,
            place.key(),
            user,
            item.namespace,
            item.uid,
            phase(item),
            to_time(now),
            MESSAGE,
        ],
    )?;
    Ok(())
}
