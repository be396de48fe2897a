//! Tables and their migrations. Migrations only add, so that the release before can still open the file.

use std::path::Path;

use rusqlite::Connection;

/// Each entry raises `user_version` by one.
const MIGRATIONS: [&str; 1] = [include_str!("schema_1.sql")];

/// Brings the database up to date, each step in a transaction of its own. A file that a newer release wrote is left as it is.
pub(super) fn migrate(connection: &mut Connection, file: &Path) -> rusqlite::Result<()> {
    let version: u32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let version = version as usize;
    if (1..MIGRATIONS.len()).contains(&version) {
        let copy = file.with_extension(format!("db.before-{}", MIGRATIONS.len()));
        let _ = std::fs::remove_file(&copy); // left by a start that was interrupted
        connection.execute("VACUUM INTO ?1", [copy.to_string_lossy()])?;
    }
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(version) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", u32::try_from(index + 1).unwrap_or(u32::MAX))?;
        transaction.commit()?;
    }
    Ok(())
}
