//! Sessions on disk: SQLite in the state directory, written by one thread.
//!
//! Whoever writes waits until it is on disk (write-ahead log, synchronised at every commit). Writes that arrive while one
//! is being synchronised go into the next commit together, so many at once cost little more than one. Where a commit of
//! many fails each is tried alone: nobody's write fails for another's.

use super::rows;
use super::schema::{self, SchemaError};
use crate::auth::session_tokens::Nonce;
use crate::id::SessionId;
use crate::limits::{EVENT_NUMBERS_AHEAD, STORE_COMMIT_MAX, STORE_QUEUE_MAX};
use crate::sessions::{Activity, Event, Ledger, LedgerError, Record, Recorded};
use async_trait::async_trait;
use rusqlite::Connection;
use std::fmt;
use std::path::Path;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How long SQLite waits for another program that reads the file, in milliseconds.
const BUSY_MILLIS: u64 = 5_000;

/// The sessions' book, on disk.
pub(super) struct Database {
    orders: mpsc::Sender<Order>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Database")
    }
}

type Answer<T> = oneshot::Sender<Result<T, LedgerError>>;

enum Order {
    Write(Write, Answer<()>),
    All(Answer<Vec<Recorded>>),
    Events {
        id: SessionId,
        nonce: Nonce,
        after: u64,
        before: u64,
        answer: Answer<Vec<Event>>,
    },
}

/// Something to be written.
enum Write {
    Put(Box<Record>),
    Remove(SessionId),
    Note(Vec<Activity>),
    Renew {
        id: SessionId,
        nonce: Nonce,
        expires: Option<Duration>,
    },
    Check,
}

/// Makes the file, or takes it back, for its owner alone; what SQLite puts beside it gets the same mode.
fn own_alone(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    file.set_permissions(std::fs::Permissions::from_mode(0o600))
}

impl Database {
    /// Opens or makes the file, brings it to the newest schema, and starts the thread.
    pub(super) fn open(path: &Path) -> Result<Self, SchemaError> {
        own_alone(path)
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        let mut connection = Connection::open(path)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MILLIS))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // KiB, where negative.
        connection.pragma_update(None, "cache_size", -1024)?;
        connection.set_prepared_statement_cache_capacity(16);
        schema::migrate(&mut connection)?;
        begin(&mut connection)?;
        let (orders, inbox) = mpsc::channel(STORE_QUEUE_MAX);
        let writer = std::thread::Builder::new()
            .name("store".to_owned())
            .spawn(move || write_all(connection, inbox))
            .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
        Ok(Self {
            orders,
            writer: Mutex::new(Some(writer)),
        })
    }

    async fn ask<T>(&self, order: impl FnOnce(Answer<T>) -> Order) -> Result<T, LedgerError> {
        let gone = || LedgerError("the store has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.send(order(answer)).await;
        sent.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    async fn write(&self, write: Write) -> Result<(), LedgerError> {
        self.ask(|answer| Order::Write(write, answer)).await
    }
}

impl Drop for Database {
    /// Waits until everything that was ordered is written, and the file is closed.
    fn drop(&mut self) {
        let (closed, _) = mpsc::channel(1);
        self.orders = closed;
        let writer = self.writer.lock().map(|mut writer| writer.take());
        if let Ok(Some(writer)) = writer {
            let _ = writer.join();
        }
    }
}

#[async_trait]
impl Ledger for Database {
    async fn put(&self, record: Record) -> Result<(), LedgerError> {
        self.write(Write::Put(Box::new(record))).await
    }

    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError> {
        self.write(Write::Remove(id.clone())).await
    }

    async fn all(&self) -> Result<Vec<Recorded>, LedgerError> {
        self.ask(Order::All).await
    }

    async fn note(&self, activities: Vec<Activity>) -> Result<(), LedgerError> {
        self.write(Write::Note(activities)).await
    }

    async fn renew(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        expires: Option<Duration>,
    ) -> Result<(), LedgerError> {
        let (id, nonce) = (id.clone(), *nonce);
        self.write(Write::Renew { id, nonce, expires }).await
    }

    async fn check(&self) -> Result<(), LedgerError> {
        self.write(Write::Check).await
    }

    async fn events(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        after: u64,
        before: u64,
    ) -> Result<Vec<Event>, LedgerError> {
        let (id, nonce) = (id.clone(), *nonce);
        self.ask(|answer| Order::Events {
            id,
            nonce,
            after,
            before,
            answer,
        })
        .await
    }
}

/// What the last daemon did not get to say when it ended: numbers that it gave and did not write must not come again.
fn begin(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    let transaction = connection.transaction()?;
    let ended_well: i64 = transaction
        .query_row(
            "SELECT value FROM facts WHERE name = 'ended_well'",
            [],
            |row| row.get(0),
        )
        .or_else(|error| match error {
            // No daemon was here before.
            rusqlite::Error::QueryReturnedNoRows => Ok(1),
            other => Err(other),
        })?;
    if ended_well == 0 {
        transaction.execute(
            "UPDATE sessions SET latest_event = latest_event + ?1",
            [i64::try_from(EVENT_NUMBERS_AHEAD).unwrap_or(i64::MAX)],
        )?;
    }
    set_ended_well(&transaction, false)?;
    transaction.commit()
}

fn set_ended_well(connection: &Connection, value: bool) -> Result<(), rusqlite::Error> {
    let set = "INSERT INTO facts VALUES ('ended_well', ?1)
               ON CONFLICT (name) DO UPDATE SET value = excluded.value";
    connection.execute(set, [i64::from(value)]).map(|_| ())
}

/// The thread. Ends when nobody can order anything any more.
fn write_all(mut connection: Connection, mut inbox: mpsc::Receiver<Order>) {
    while let Some(first) = inbox.blocking_recv() {
        let mut writes = Vec::new();
        let mut reads = Vec::new();
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Write(write, answer) => writes.push((write, answer)),
                read => reads.push(read),
            }
            let full = writes.len() + reads.len() >= STORE_COMMIT_MAX;
            next = if full { None } else { inbox.try_recv().ok() };
        }
        commit(&mut connection, writes);
        for read in reads {
            answer(&connection, read);
        }
    }
    if let Err(error) = set_ended_well(&connection, true) {
        tracing::warn!(%error, "the store did not end well");
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!(%error, "the store was not closed well");
    }
}

/// All in one commit; where that fails, each in its own.
fn commit(connection: &mut Connection, writes: Vec<(Write, Answer<()>)>) {
    if writes.is_empty() {
        return;
    }
    let together = in_one(connection, writes.iter().map(|(write, _)| write));
    let alone = together.is_err() && writes.len() > 1;
    for (write, answer) in writes {
        let done = if alone {
            in_one(connection, std::iter::once(&write))
        } else {
            together.clone()
        };
        // Nobody may be waiting any more.
        let _ = answer.send(done);
    }
}

fn in_one<'a>(
    connection: &mut Connection,
    writes: impl Iterator<Item = &'a Write>,
) -> Result<(), LedgerError> {
    let all = || -> Result<(), rusqlite::Error> {
        let transaction = connection.transaction()?;
        for write in writes {
            match write {
                Write::Put(record) => rows::put(&transaction, record)?,
                Write::Remove(id) => rows::remove(&transaction, id)?,
                Write::Note(activities) => rows::note(&transaction, activities)?,
                Write::Renew { id, nonce, expires } => {
                    rows::renew(&transaction, id, nonce, *expires)?;
                }
                Write::Check => rows::check(&transaction)?,
            }
        }
        transaction.commit()
    };
    all().map_err(in_words)
}

fn answer(connection: &Connection, read: Order) {
    match read {
        Order::All(answer) => {
            let _ = answer.send(rows::all(connection).map_err(in_words));
        }
        Order::Events {
            id,
            nonce,
            after,
            before,
            answer,
        } => {
            let found = rows::events(connection, &id, &nonce, after, before);
            let _ = answer.send(found.map_err(in_words));
        }
        Order::Write(_, answer) => {
            let _ = answer.send(Err(LedgerError("a write is no read".to_owned())));
        }
    }
}

fn in_words(error: rusqlite::Error) -> LedgerError {
    LedgerError(format!("the store: {error}"))
}

#[cfg(test)]
mod tests;
