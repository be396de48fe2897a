//! What people set up: clusters, tokens, namespaces, providers and modes.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::{json, parsed, to_json, to_time};
use super::identity;
use crate::control_plane::store::{CallerToken, Cluster, Missing, Mode, NewEnrolment, Provider, Put, Removal, TokenRow, Write};
use crate::control_plane::tokens::TokenHash;
use crate::types::slug;

fn exists(connection: &Connection, sql: &str, values: &[&str]) -> rusqlite::Result<bool> {
    connection.prepare_cached(sql)?.exists(rusqlite::params_from_iter(values))
}

fn has_namespace(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    exists(connection, "SELECT 1 FROM namespaces WHERE name = ?1", &[name])
}

pub(super) fn create_cluster(connection: &Connection, cluster: &Cluster, enrolment: &NewEnrolment) -> rusqlite::Result<Put> {
    if exists(connection, "SELECT 1 FROM clusters WHERE name = ?1", &[&cluster.name])? {
        return Ok(Put::Exists);
    }
    let created_at = to_time(cluster.created_at);
    connection.execute("INSERT INTO clusters (name, install, created_at) VALUES (?1, ?2, ?3)", params![cluster.name, cluster.install, created_at])?;
    identity::insert(connection, &cluster.name, enrolment)?;
    Ok(Put::Done)
}

pub(super) fn cluster(row: &Row<'_>) -> rusqlite::Result<Cluster> {
    Ok(Cluster { name: row.get("name")?, install: row.get("install")?, created_at: parsed(row, "created_at")? })
}

pub(super) fn create_token(connection: &Connection, token: &TokenRow) -> rusqlite::Result<Put> {
    if exists(connection, "SELECT 1 FROM tokens WHERE name = ?1 AND revoked_at IS NULL", &[&token.name])? {
        return Ok(Put::Exists);
    }
    for namespace in &token.namespaces {
        if !has_namespace(connection, namespace)? {
            return Ok(Put::Missing(Missing::Namespace(namespace.clone())));
        }
    }
    connection.execute(
        "INSERT INTO tokens (id, name, token_hash, admin, bootstrap, created_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![token.id, token.name, token.hash.0, token.admin, token.bootstrap, to_time(token.created_at)],
    )?;
    for namespace in &token.namespaces {
        connection.execute("INSERT OR IGNORE INTO token_namespaces (token, namespace) VALUES (?1, ?2)", [&token.id, namespace])?;
    }
    Ok(Put::Done)
}

pub(super) fn put_bootstrap_token(connection: &Connection, token: &TokenRow) -> rusqlite::Result<Put> {
    let known = "SELECT 1 FROM tokens WHERE token_hash = ?1 AND revoked_at IS NULL AND admin = 1";
    if connection.prepare_cached(known)?.exists([token.hash.0])? {
        return Ok(Put::Done);
    }
    let sql = "UPDATE tokens SET revoked_at = ?1 WHERE bootstrap = 1 AND revoked_at IS NULL";
    connection.execute(sql, [to_time(token.created_at)])?;
    // A secret that was replaced and put back: its hash is still here, revoked.
    connection.execute("DELETE FROM tokens WHERE token_hash = ?1 AND revoked_at IS NOT NULL AND bootstrap = 1", [token.hash.0])?;
    create_token(connection, token)
}

fn caller(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<CallerToken> {
    let id: String = row.get("id")?;
    let sql = "SELECT namespace FROM token_namespaces WHERE token = ?1 ORDER BY namespace";
    let namespaces = connection.prepare_cached(sql)?.query_map([&id], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(CallerToken { id, name: row.get("name")?, admin: row.get("admin")?, namespaces, created_at: parsed(row, "created_at")? })
}

pub(super) fn tokens(connection: &Connection) -> rusqlite::Result<Vec<CallerToken>> {
    let sql = "SELECT * FROM tokens WHERE revoked_at IS NULL ORDER BY name";
    connection.prepare_cached(sql)?.query_map([], |row| caller(connection, row))?.collect()
}

pub(super) fn caller_by_token(connection: &Connection, hash: &TokenHash) -> rusqlite::Result<Option<CallerToken>> {
    let sql = "SELECT * FROM tokens WHERE token_hash = ?1 AND revoked_at IS NULL";
    let read = |row: &Row<'_>| Ok((caller(connection, row)?, row.get::<_, Vec<u8>>("token_hash")?));
    let found = connection.prepare_cached(sql)?.query_row([hash.0], read).optional()?;
    Ok(found.filter(|(_, stored)| hash.matches(stored)).map(|(caller, _)| caller))
}

pub(super) fn revoke_token(connection: &Connection, id: &str, now: Timestamp) -> rusqlite::Result<bool> {
    let sql = "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL";
    Ok(connection.execute(sql, params![id, to_time(now)])? == 1)
}

pub(super) fn create_namespace(connection: &Connection, name: &str, now: Timestamp) -> rusqlite::Result<Put> {
    if has_namespace(connection, name)? {
        return Ok(Put::Exists);
    }
    let slug = slug(name);
    let by = connection.prepare_cached("SELECT name FROM namespaces WHERE slug = ?1")?.query_row([&slug], |row| row.get(0)).optional()?;
    if let Some(by) = by {
        return Ok(Put::SlugTaken { by });
    }
    connection.execute("INSERT INTO namespaces (name, slug, created_at) VALUES (?1, ?2, ?3)", params![name, slug, to_time(now)])?;
    Ok(Put::Done)
}

pub(super) fn namespaces(connection: &Connection) -> rusqlite::Result<Vec<(String, Timestamp)>> {
    let sql = "SELECT name, created_at FROM namespaces ORDER BY name";
    connection.prepare_cached(sql)?.query_map([], |row| Ok((row.get("name")?, parsed(row, "created_at")?)))?.collect()
}

pub(super) fn put_provider(connection: &Connection, provider: &Provider, write: Write, now: Timestamp) -> rusqlite::Result<Put> {
    let Provider { namespace, name, launcher, dispatch, cluster, kwargs } = provider;
    if !has_namespace(connection, namespace)? {
        return Ok(Put::Missing(Missing::Namespace(namespace.clone())));
    }
    if !exists(connection, "SELECT 1 FROM clusters WHERE name = ?1", &[cluster])? {
        return Ok(Put::Missing(Missing::Cluster(cluster.clone())));
    }
    match (write, exists(connection, "SELECT 1 FROM providers WHERE namespace = ?1 AND name = ?2", &[namespace, name])?) {
        (Write::Create, true) => return Ok(Put::Exists),
        (Write::Replace, false) => return Ok(Put::Missing(Missing::Itself)),
        (Write::Create, false) | (Write::Replace, true) => {}
    }
    let slug = slug(name);
    let sql = "SELECT name FROM providers WHERE namespace = ?1 AND slug = ?2 AND name <> ?3";
    if let Some(by) = connection.prepare_cached(sql)?.query_row([namespace, &slug, name], |row| row.get(0)).optional()? {
        return Ok(Put::SlugTaken { by });
    }
    connection.execute(
        "INSERT INTO providers (namespace, name, slug, launcher, dispatch, cluster, kwargs, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) \
         ON CONFLICT (namespace, name) DO UPDATE SET launcher = ?4, dispatch = ?5, cluster = ?6, kwargs = ?7, updated_at = ?8",
        params![namespace, name, slug, launcher, dispatch, cluster, to_json(kwargs)?, to_time(now)],
    )?;
    Ok(Put::Done)
}

fn provider_row(row: &Row<'_>) -> rusqlite::Result<Provider> {
    Ok(Provider {
        namespace: row.get("namespace")?,
        name: row.get("name")?,
        launcher: row.get("launcher")?,
        dispatch: row.get("dispatch")?,
        cluster: row.get("cluster")?,
        kwargs: json(row, "kwargs")?,
    })
}

pub(super) fn provider(connection: &Connection, namespace: &str, name: &str) -> rusqlite::Result<Option<Provider>> {
    let sql = "SELECT * FROM providers WHERE namespace = ?1 AND name = ?2";
    connection.prepare_cached(sql)?.query_row([namespace, name], provider_row).optional()
}

pub(super) fn providers(connection: &Connection, namespace: &str) -> rusqlite::Result<Vec<Provider>> {
    let sql = "SELECT * FROM providers WHERE namespace = ?1 ORDER BY name";
    connection.prepare_cached(sql)?.query_map([namespace], provider_row)?.collect()
}

pub(super) fn remove_provider(connection: &Connection, namespace: &str, name: &str) -> rusqlite::Result<Removal> {
    let sql = "SELECT count(*) FROM dispatches WHERE namespace = ?1 AND provider = ?2 AND phase <> 'ended'";
    let open: i64 = connection.prepare_cached(sql)?.query_row([namespace, name], |row| row.get(0))?;
    if open > 0 {
        return Ok(Removal::InUse(open.unsigned_abs()));
    }
    let removed = connection.execute("DELETE FROM providers WHERE namespace = ?1 AND name = ?2", [namespace, name])?;
    Ok(if removed == 1 { Removal::Done } else { Removal::Unknown })
}

pub(super) fn put_mode(connection: &Connection, mode: &Mode, write: Write, now: Timestamp) -> rusqlite::Result<Put> {
    let Mode { namespace, name, provider, fields } = mode;
    if !has_namespace(connection, namespace)? {
        return Ok(Put::Missing(Missing::Namespace(namespace.clone())));
    }
    if !exists(connection, "SELECT 1 FROM providers WHERE namespace = ?1 AND name = ?2", &[namespace, provider])? {
        return Ok(Put::Missing(Missing::Provider(provider.clone())));
    }
    match (write, exists(connection, "SELECT 1 FROM modes WHERE namespace = ?1 AND name = ?2", &[namespace, name])?) {
        (Write::Create, true) => return Ok(Put::Exists),
        (Write::Replace, false) => return Ok(Put::Missing(Missing::Itself)),
        (Write::Create, false) | (Write::Replace, true) => {}
    }
    connection.execute(
        "INSERT INTO modes (namespace, name, provider, fields, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?5) \
         ON CONFLICT (namespace, name) DO UPDATE SET provider = ?3, fields = ?4, updated_at = ?5",
        params![namespace, name, provider, to_json(fields)?, to_time(now)],
    )?;
    Ok(Put::Done)
}

fn mode_row(row: &Row<'_>) -> rusqlite::Result<Mode> {
    Ok(Mode { namespace: row.get("namespace")?, name: row.get("name")?, provider: row.get("provider")?, fields: json(row, "fields")? })
}

pub(super) fn mode(connection: &Connection, namespace: &str, name: &str) -> rusqlite::Result<Option<Mode>> {
    connection.prepare_cached("SELECT * FROM modes WHERE namespace = ?1 AND name = ?2")?.query_row([namespace, name], mode_row).optional()
}

pub(super) fn modes(connection: &Connection, namespace: &str) -> rusqlite::Result<Vec<Mode>> {
    connection.prepare_cached("SELECT * FROM modes WHERE namespace = ?1 ORDER BY name")?.query_map([namespace], mode_row)?.collect()
}

pub(super) fn remove_mode(connection: &Connection, namespace: &str, name: &str) -> rusqlite::Result<bool> {
    Ok(connection.execute("DELETE FROM modes WHERE namespace = ?1 AND name = ?2", [namespace, name])? == 1)
}
