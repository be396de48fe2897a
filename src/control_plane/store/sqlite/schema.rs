//! Tables and their migrations. Migrations only add, so that the release before can still open the file.

use std::path::Path;

use rusqlite::Connection;

use super::restore;

/// Each entry raises `user_version` by one.
const MIGRATIONS: [&str; 5] = [
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
];

/// Brings the database up to date, each step in a transaction of its own. A file that has rows is copied first; one that a newer
/// release wrote is left as it is.
pub(super) fn migrate(connection: &mut Connection, file: &Path) -> rusqlite::Result<()> {
    migrate_by(&MIGRATIONS, connection, file)
}

fn migrate_by(migrations: &[&str], connection: &mut Connection, file: &Path) -> rusqlite::Result<()> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let version = version as usize;
    if (1..migrations.len()).contains(&version) {
        let copy = file.with_extension(format!("db.before-{}", migrations.len()));
        restore::copy(connection, &copy)?; // in place of one that a start left that was interrupted
    }
    for (index, migration) in migrations.iter().enumerate().skip(version) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", u32::try_from(index + 1).unwrap_or(u32::MAX))?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(connection: &Connection) -> u32 {
        connection.pragma_query_value(None, "user_version", |row| row.get(0)).expect("it is read")
    }

    #[test]
    fn a_file_of_an_older_release_is_copied_and_brought_up_to_date_with_its_rows() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lakeshore.db");
        let mut connection = Connection::open(&file).expect("it opens");
        connection.execute_batch(MIGRATIONS[0]).expect("the first release's tables");
        connection.pragma_update(None, "user_version", 1).expect("it is written");
        connection
            .execute_batch(
                "INSERT INTO clusters VALUES ('c1', 'c1-0', 't'); \
                 INSERT INTO dispatches (dispatch_id, attempt, instance, namespace, provider, cluster, node, requested_by, phase, launched_at, state, reason, \
                    observed_at, payload) VALUES ('d', 1, 'i', 'default', 'p', 'c1', 'n', 'u', 'queued', 't', 'starting', 'queued', 't', x'00')",
            )
            .expect("rows");
        migrate(&mut connection, &file).expect("it is brought up to date");
        assert_eq!(version(&connection) as usize, MIGRATIONS.len());
        let kept: (String, bool, String) = connection
            .query_row("SELECT dispatch_id, node_named, tried FROM dispatches", [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .expect("the row is kept");
        assert_eq!(kept, ("d".to_owned(), false, "[]".to_owned()));
        let copy = Connection::open(folder.path().join(format!("lakeshore.db.before-{}", MIGRATIONS.len()))).expect("the copy opens");
        assert_eq!(version(&copy), 1);
        let rows: i64 = copy.query_row("SELECT count(*) FROM dispatches", [], |row| row.get(0)).expect("it is read");
        assert_eq!(rows, 1);
    }

    #[test]
    fn a_file_of_a_newer_release_is_left_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lakeshore.db");
        let mut connection = Connection::open(&file).expect("it opens");
        migrate(&mut connection, &file).expect("a new file");
        connection.pragma_update(None, "user_version", 99).expect("it is written");
        migrate(&mut connection, &file).expect("nothing to do");
        assert_eq!(version(&connection), 99);
    }

    /// Every table, index and row, as text.
    fn dump(connection: &Connection) -> String {
        let read = |sql: &str| -> Vec<String> {
            let mut statement = connection.prepare(sql).expect("it is sound");
            let columns = statement.column_count();
            let rows = statement
                .query_map([], |row| Ok((0..columns).map(|i| format!("{:?}", row.get_ref(i).expect("a value"))).collect::<Vec<_>>().join("|")));
            rows.expect("it runs").collect::<rusqlite::Result<_>>().expect("it is read")
        };
        let tables = read("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
        let names: Vec<String> = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
            .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
            .expect("it is read");
        let rows = names.iter().flat_map(|table| read(&format!("SELECT * FROM {table}")));
        read("SELECT type, name, sql FROM sqlite_schema ORDER BY name")
            .into_iter()
            .chain(tables.iter().cloned())
            .chain(rows)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn a_migration_that_fails_leaves_the_file_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lakeshore.db");
        let mut connection = Connection::open(&file).expect("it opens");
        migrate(&mut connection, &file).expect("a new file");
        connection.execute("INSERT INTO clusters (name, install, created_at) VALUES ('c1', 'c1-0', 't')", []).expect("a row");
        let (before, newest) = (dump(&connection), version(&connection));
        let planted = "CREATE TABLE more (a TEXT); UPDATE clusters SET name = 'changed'; INSERT INTO nowhere VALUES (1);";
        let migrations: Vec<&str> = MIGRATIONS.into_iter().chain([planted]).collect();
        migrate_by(&migrations, &mut connection, &file).expect_err("the planted one fails");
        assert_eq!((dump(&connection), version(&connection)), (before.clone(), newest));
        let copy = Connection::open(folder.path().join(format!("lakeshore.db.before-{}", migrations.len()))).expect("it was copied first");
        assert_eq!(dump(&copy), before);
        let mended: Vec<&str> = MIGRATIONS.into_iter().chain(["CREATE TABLE more (a TEXT)"]).collect();
        migrate_by(&mended, &mut connection, &file).expect("the next release's is sound");
        assert_eq!(version(&connection), newest + 1);
    }

    /// Columns of a table: name, type, NOT NULL, default.
    fn columns(connection: &Connection, table: &str) -> Vec<(String, String, bool, Option<String>)> {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get("name")?, row.get("type")?, row.get("notnull")?, row.get("dflt_value")?));
        let sql = format!("PRAGMA table_info({table})");
        connection.prepare(&sql).and_then(|mut statement| statement.query_map([], read)?.collect()).expect("it is read")
    }

    #[test]
    fn each_release_finds_all_that_it_knows_in_the_next_ones_file_and_may_leave_out_the_rest() {
        for release in 1..MIGRATIONS.len() {
            let folder = tempfile::tempdir().expect("a folder");
            let at = |name: &str, migrations: &[&str]| {
                let file = folder.path().join(name);
                let mut connection = Connection::open(&file).expect("it opens");
                migrate_by(migrations, &mut connection, &file).expect("a new file");
                connection
            };
            let (old, new) = (at("old", &MIGRATIONS[..release]), at("new", &MIGRATIONS[..=release]));
            let tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
            let tables: Vec<String> =
                old.prepare(tables).and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect()).expect("it is read");
            for table in tables {
                let (known, found) = (columns(&old, &table), columns(&new, &table));
                assert_eq!(found.get(..known.len()), Some(&known[..]), "{table}: what was there stays, in its order");
                for (name, _, not_null, default) in &found[known.len()..] {
                    assert!(!not_null || default.is_some(), "{table}.{name}: a row of the older release would be refused");
                }
            }
        }
    }

    /// Statements as release N-1 (schema 2) has them, on a file of this release.
    #[test]
    fn the_statements_of_the_release_before_work_on_this_ones_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lakeshore.db");
        let mut connection = Connection::open(&file).expect("it opens");
        connection.pragma_update(None, "foreign_keys", true).expect("it is set");
        migrate(&mut connection, &file).expect("a new file");
        let statements = [
            "INSERT INTO clusters (name, install, created_at) VALUES ('c1', 'c1-0', 't')",
            "INSERT INTO enrolments (id, cluster, token_hash, created_at) VALUES ('e', 'c1', x'01', 't')",
            "INSERT INTO tokens (id, name, token_hash, admin, bootstrap, created_at) VALUES ('t', 't', x'02', 1, 0, 't')",
            "INSERT INTO providers (namespace, name, slug, launcher, dispatch, cluster, kwargs, created_at, updated_at) \
                VALUES ('default', 'p', 'p', 'Kube', 'daemon', 'c1', '{}', 't', 't')",
            "INSERT INTO modes (namespace, name, provider, fields, created_at, updated_at) VALUES ('default', 'm', 'p', '{}', 't', 't')",
            "INSERT INTO daemons (cluster, node, epoch, role, version, policy_digest, facts, last_seen) VALUES ('c1', 'n', 1, 'node', 'v', 'd', '{}', 't') \
                ON CONFLICT (cluster, node) DO UPDATE SET epoch = epoch + 1",
            "INSERT INTO dispatches (dispatch_id, attempt, instance, namespace, provider, cluster, node, node_named, requested_by, payload, phase, \
                launched_at, state, reason, observed_at) VALUES ('d', 1, 'i', 'default', 'p', 'c1', 'n', 0, 'u', x'00', 'queued', 't', 'starting', 'queued', 't')",
            "UPDATE dispatches SET phase = 'accepted', reason = 'accepted', payload = NULL, accepted_at = 't', accepted_epoch = 1 WHERE dispatch_id = 'd'",
            "UPDATE dispatches SET phase = 'ended', state = 'stopped', reason = 'completed', report_seq = 1, log_started = 1 WHERE dispatch_id = 'd'",
            "UPDATE dispatches SET log_position = 9, log_stored = 9, log_end = 'complete' WHERE dispatch_id = 'd'",
        ];
        for statement in statements {
            assert_eq!(connection.execute(statement, []).expect(statement), 1, "{statement}");
        }
    }
}
