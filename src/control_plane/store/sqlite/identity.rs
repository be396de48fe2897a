//! Enrolment tokens, and what proofs of identity are checked against.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::convert::{count, json, parsed, parsed_option, to_json, to_time, to_word, word};
use super::directory::cluster;
use crate::control_plane::store::{Account, Added, ClusterRow, Enrolled, Enrolment, MAX_ENROLMENTS, NewEnrolment, Place, Proof, Trust};
use crate::control_plane::tokens::TokenHash;
use crate::types::Role;

pub(super) fn insert(connection: &Connection, cluster: &str, enrolment: &NewEnrolment) -> rusqlite::Result<()> {
    let NewEnrolment { id, hash, created_at, expires_at } = enrolment;
    let sql = "INSERT INTO enrolments (id, cluster, token_hash, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5)";
    connection.execute(sql, params![id, cluster, hash.0, to_time(*created_at), expires_at.map(to_time)]).map(drop)
}

fn enrolment(row: &Row<'_>) -> rusqlite::Result<Enrolment> {
    Ok(Enrolment {
        id: row.get("id")?,
        created_at: parsed(row, "created_at")?,
        last_used_at: parsed_option(row, "last_used_at")?,
        expires_at: parsed_option(row, "expires_at")?,
    })
}

fn enrolments(connection: &Connection, cluster: &str) -> rusqlite::Result<Vec<Enrolment>> {
    let sql = "SELECT * FROM enrolments WHERE cluster = ?1 AND revoked_at IS NULL ORDER BY created_at, id";
    connection.prepare_cached(sql)?.query_map([cluster], enrolment)?.collect()
}

pub(super) fn clusters(connection: &Connection) -> rusqlite::Result<Vec<ClusterRow>> {
    let sql = "SELECT *, (SELECT count(*) FROM daemons WHERE cluster = name) AS daemons FROM clusters ORDER BY name";
    let read = |row: &Row<'_>| {
        let (cluster, daemons) = (cluster(row)?, count(row, "daemons")?);
        let (enrolments, trust) = (enrolments(connection, &cluster.name)?, trust(connection, row)?);
        Ok(ClusterRow { cluster, daemons, enrolments, trust })
    };
    connection.prepare_cached(sql)?.query_map([], read)?.collect()
}

/// Reads the columns of `clusters`.
fn trust(connection: &Connection, row: &Row<'_>) -> rusqlite::Result<Option<Trust>> {
    let Some(issuer) = row.get("issuer")? else { return Ok(None) };
    let cluster: String = row.get("name")?;
    let read = |row: &Row<'_>| Ok((word::<Role>(row.get("role")?)?, Account { namespace: row.get("namespace")?, name: row.get("name")? }));
    let sql = "SELECT role, namespace, name FROM accounts WHERE cluster = ?1";
    let accounts = connection.prepare_cached(sql)?.query_map([cluster], read)?.collect::<rusqlite::Result<BTreeMap<_, _>>>()?;
    let (cluster_uid, jwks, recorded_at) = (row.get("cluster_uid")?, json(row, "jwks")?, parsed(row, "keys_recorded_at")?);
    Ok(Some(Trust { cluster_uid, issuer, jwks, recorded_at, accounts }))
}

pub(super) fn trust_of(connection: &Connection, cluster: &str) -> rusqlite::Result<Option<Trust>> {
    let sql = "SELECT * FROM clusters WHERE name = ?1";
    Ok(connection.prepare_cached(sql)?.query_row([cluster], |row| trust(connection, row)).optional()?.flatten())
}

/// The cluster of an enrolment token that is neither revoked nor expired.
pub(super) fn by_token(connection: &Connection, hash: &TokenHash, now: Timestamp) -> rusqlite::Result<Option<Enrolled>> {
    let sql = "SELECT * FROM enrolments WHERE token_hash = ?1 AND revoked_at IS NULL";
    let read = |row: &Row<'_>| Ok((enrolment(row)?, row.get::<_, String>("cluster")?, row.get::<_, Vec<u8>>("token_hash")?));
    let found = connection.prepare_cached(sql)?.query_row([hash.0], read).optional()?;
    let Some((enrolment, name, _)) = found.filter(|(enrolment, _, stored)| hash.matches(stored) && enrolment.is_live(now)) else { return Ok(None) };
    let read = |row: &Row<'_>| Ok((cluster(row)?, trust(connection, row)?));
    let (cluster, trust) = connection.prepare_cached("SELECT * FROM clusters WHERE name = ?1")?.query_row([name], read)?;
    Ok(Some(Enrolled { cluster, enrolment, trust }))
}

pub(super) fn note_used(connection: &Connection, id: &str, now: Timestamp) -> rusqlite::Result<bool> {
    let sql = "SELECT * FROM enrolments WHERE id = ?1 AND revoked_at IS NULL";
    let live = connection.prepare_cached(sql)?.query_row([id], enrolment).optional()?.is_some_and(|enrolment| enrolment.is_live(now));
    if live {
        connection.execute("UPDATE enrolments SET last_used_at = ?2 WHERE id = ?1", params![id, to_time(now)])?;
    }
    Ok(live)
}

pub(super) fn add(connection: &Connection, cluster: &str, enrolment: &NewEnrolment) -> rusqlite::Result<Added> {
    if !connection.prepare_cached("SELECT 1 FROM clusters WHERE name = ?1")?.exists([cluster])? {
        return Ok(Added::Unknown);
    }
    let live = enrolments(connection, cluster)?.into_iter().filter(|other| other.is_live(enrolment.created_at));
    let live: Vec<String> = live.map(|other| other.id).collect();
    if live.len() >= MAX_ENROLMENTS {
        return Ok(Added::Full(live));
    }
    insert(connection, cluster, enrolment)?;
    Ok(Added::Done)
}

pub(super) fn revoke(connection: &Connection, cluster: &str, id: &str, now: Timestamp) -> rusqlite::Result<bool> {
    let sql = "UPDATE enrolments SET revoked_at = ?3 WHERE cluster = ?1 AND id = ?2 AND revoked_at IS NULL";
    Ok(connection.execute(sql, params![cluster, id, to_time(now)])? == 1)
}

/// Replaces what was recorded, unless that changed since `known` was read.
pub(super) fn record(connection: &Connection, cluster: &str, known: Option<Timestamp>, trust: &Trust) -> rusqlite::Result<bool> {
    let Trust { cluster_uid, issuer, jwks, recorded_at, accounts } = trust;
    let sql = "UPDATE clusters SET cluster_uid = ?3, issuer = ?4, jwks = ?5, keys_recorded_at = ?6 WHERE name = ?1 AND keys_recorded_at IS ?2";
    let values = params![cluster, known.map(to_time), cluster_uid, issuer, to_json(jwks)?, to_time(*recorded_at)];
    if connection.execute(sql, values)? == 0 {
        return Ok(false);
    }
    connection.execute("DELETE FROM accounts WHERE cluster = ?1", [cluster])?;
    for (role, Account { namespace, name }) in accounts {
        let sql = "INSERT INTO accounts (cluster, role, namespace, name, recorded_at) VALUES (?1, ?2, ?3, ?4, ?5)";
        connection.execute(sql, params![cluster, to_word(role)?, namespace, name, to_time(*recorded_at)])?;
    }
    Ok(true)
}

pub(super) fn note_proof(connection: &Connection, place: &Place, proof: Option<&Proof>) -> rusqlite::Result<()> {
    let sql = "UPDATE daemons SET identity = ?3, node_uid = ?4, pod_uid = ?5 WHERE cluster = ?1 AND node = ?2";
    let (account, node_uid) = (proof.map(|proof| proof.account.to_string()), proof.and_then(|proof| proof.node_uid.as_deref()));
    connection.execute(sql, params![place.cluster, place.key(), account, node_uid, proof.map(|proof| &proof.pod_uid)]).map(drop)
}
