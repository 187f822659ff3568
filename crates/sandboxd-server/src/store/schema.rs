//! The tables, as numbered steps. A step that a release has carried is never changed; what comes later is another step.

use rusqlite::{Connection, TransactionBehavior};
use std::cmp::Ordering;

/// "sbxd": tells the file from any other SQLite database.
const APPLICATION_ID: i32 = 0x7362_7864;

/// Step by step from nothing. The number of steps that a database has been through is its `user_version`.
const STEPS: &[&str] = &[
    // 1. Sessions and their logs. Times are nanoseconds since the Unix epoch.
    "CREATE TABLE sessions (
        id           TEXT PRIMARY KEY NOT NULL,
        nonce        BLOB NOT NULL,
        runtime      TEXT NOT NULL,
        tenant       TEXT,
        created      INTEGER NOT NULL,
        expires      INTEGER,
        last_used    INTEGER NOT NULL,
        stored       INTEGER NOT NULL,
        standing     TEXT NOT NULL,
        sandbox      TEXT,
        asleep_since INTEGER,
        latest_event INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE labels (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        name    TEXT NOT NULL,
        value   TEXT NOT NULL,
        PRIMARY KEY (session, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events (
        session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
        seq     INTEGER NOT NULL,
        at      INTEGER NOT NULL,
        op      TEXT NOT NULL,
        target  TEXT NOT NULL,
        ok      INTEGER NOT NULL,
        detail  TEXT NOT NULL,
        took    INTEGER NOT NULL,
        PRIMARY KEY (session, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE facts (name TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
];

/// Why a database is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SchemaError {
    /// Of another program.
    #[error("is not a database of sandboxd")]
    Foreign,
    /// Of a later version.
    #[error(
        "was written by a newer sandboxd (its schema is {found}, this one knows up to {known})"
    )]
    Newer {
        /// What it says.
        found: i64,
        /// What is known here.
        known: i64,
    },
    /// Of an earlier version, where nobody may change it.
    #[error("was written by an older sandboxd; the next start of the service brings it up to date")]
    Older,
    /// SQLite's own.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Brings a database to the newest schema, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), SchemaError> {
    migrate_to(connection, STEPS)
}

fn migrate_to(connection: &mut Connection, steps: &[&str]) -> Result<(), SchemaError> {
    let known = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = pragma(&transaction, "user_version")?;
    if found > known {
        return Err(SchemaError::Newer { found, known });
    }
    let application = pragma(&transaction, "application_id")?;
    let tables: i64 =
        transaction.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != i64::from(APPLICATION_ID) && (found != 0 || tables != 0) {
        return Err(SchemaError::Foreign);
    }
    if found < known {
        let done = usize::try_from(found).unwrap_or(0);
        for step in &steps[done..] {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", known)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Whether a database, as it is, has what this version reads; false where there is nothing in it yet.
pub(super) fn suits(connection: &Connection) -> Result<bool, SchemaError> {
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let found: i64 = pragma(connection, "user_version")?;
    if pragma(connection, "application_id")? != i64::from(APPLICATION_ID) {
        let tables = "SELECT count(*) FROM sqlite_schema";
        return match connection.query_row(tables, [], |row| row.get(0))? {
            0_i64 => Ok(false),
            _ => Err(SchemaError::Foreign),
        };
    }
    match found.cmp(&known) {
        Ordering::Equal => Ok(true),
        Ordering::Less => Err(SchemaError::Older),
        Ordering::Greater => Err(SchemaError::Newer { found, known }),
    }
}

fn pragma(connection: &Connection, name: &str) -> Result<i64, rusqlite::Error> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Connection {
        Connection::open_in_memory().unwrap()
    }

    /// The tables of a database, in SQLite's own words.
    fn shape(connection: &Connection) -> Vec<String> {
        let mut all = connection
            .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
            .unwrap();
        let rows = all.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    #[test]
    fn every_earlier_schema_becomes_the_newest_and_keeps_its_rows() {
        let mut newest = fresh();
        migrate(&mut newest).unwrap();
        for from in 1..=STEPS.len() {
            let mut old = fresh();
            migrate_to(&mut old, &STEPS[..from]).unwrap();
            old.execute_batch(
                "INSERT INTO sessions (id, nonce, runtime, created, last_used, stored, standing)
                 VALUES ('a', zeroblob(16), 'python', 1, 2, 1, 'asleep');
                 INSERT INTO events VALUES ('a', 7, 1, 'run', 'ls', 1, '', 5);",
            )
            .unwrap();
            migrate(&mut old).unwrap();
            migrate(&mut old).unwrap();
            assert_eq!(shape(&old), shape(&newest));
            let kept: (String, i64) = old
                .query_row(
                    "SELECT id, seq FROM sessions JOIN events ON session = id",
                    [],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .unwrap();
            assert_eq!(kept, ("a".to_owned(), 7));
        }
    }

    #[test]
    fn a_newer_and_a_foreign_database_are_refused_and_left_as_they_are() {
        let mut newer = fresh();
        migrate(&mut newer).unwrap();
        newer.pragma_update(None, "user_version", 99).unwrap();
        let refusal = migrate(&mut newer).unwrap_err();
        assert!(matches!(refusal, SchemaError::Newer { found: 99, .. }));
        assert!(refusal.to_string().contains("newer sandboxd"));

        let mut foreign = fresh();
        foreign.execute_batch("CREATE TABLE theirs (x)").unwrap();
        let before = shape(&foreign);
        assert!(matches!(migrate(&mut foreign), Err(SchemaError::Foreign)));
        assert_eq!(shape(&foreign), before);
    }

    #[test]
    fn a_step_that_fails_leaves_the_database_as_it_was() {
        let mut connection = fresh();
        migrate(&mut connection).unwrap();
        let before = shape(&connection);
        let mut steps = STEPS.to_vec();
        steps.extend(["CREATE TABLE fine (x)", "CREATE TABLE broken ("]);
        migrate_to(&mut connection, &steps).unwrap_err();
        assert_eq!(shape(&connection), before);
        migrate(&mut connection).unwrap();
    }
}
