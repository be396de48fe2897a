//! Tables and their migrations. Migrations only add, so that the release before can still open the file.

use std::path::Path;

use rusqlite::Connection;

use super::restore;

/// Each entry raises `user_version` by one.
const MIGRATIONS: [&str; 4] =
    [include_str!("schema_1.sql"), include_str!("schema_2.sql"), include_str!("schema_3.sql"), include_str!("schema_4.sql")];

/// Brings the database up to date, each step in a transaction of its own. A file that has rows is copied first; one that a newer
/// release wrote is left as it is.
pub(super) fn migrate(connection: &mut Connection, file: &Path) -> rusqlite::Result<()> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let version = version as usize;
    if (1..MIGRATIONS.len()).contains(&version) {
        let copy = file.with_extension(format!("db.before-{}", MIGRATIONS.len()));
        restore::copy(connection, &copy)?; // in place of one that a start left that was interrupted
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
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
}
