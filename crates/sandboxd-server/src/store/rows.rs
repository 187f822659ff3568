//! Records and events as rows, and back. Rows are this program's own, and yet are checked when they are read: a file can
//! be damaged.

use crate::auth::session_tokens::Nonce;
use crate::id::{SandboxId, SessionId, Tenant};
use crate::limits::EVENTS_PER_SESSION;
use crate::sessions::{Activity, Event, Record, Recorded, Standing};
use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension as _, Row, Transaction, params};
use std::collections::BTreeMap;
use std::time::Duration;

/// The words of the column `standing`.
const RESIDENT: &str = "resident";
/// As [`RESIDENT`], with a write layer that can be kept.
const RESIDENT_KEEPS: &str = "resident, keeps";
/// Asleep; the layer of `sandbox`, if there is one, was kept.
const ASLEEP: &str = "asleep";
/// Gone, and its files with it.
const LOST: &str = "lost";
/// Being closed, with its stored files and without.
const PURGING: &str = "purging";
/// As [`PURGING`]; the files stay.
const CLOSING: &str = "closing";

/// Writes a record over an older one, and strikes out an earlier session of the same id.
pub(super) fn put(transaction: &Transaction<'_>, record: &Record) -> Result<(), Error> {
    let earlier = "DELETE FROM sessions WHERE id = ?1 AND nonce <> ?2";
    transaction
        .prepare_cached(earlier)?
        .execute(params![record.id.as_str(), record.nonce.as_bytes()])?;
    let (standing, sandbox, since) = match &record.standing {
        Standing::Resident { sandbox, keeps } => {
            let word = if *keeps { RESIDENT_KEEPS } else { RESIDENT };
            (word, Some(sandbox), None)
        }
        Standing::Hibernated { layer, since } => (ASLEEP, layer.as_ref(), Some(*since)),
        Standing::Lost => (LOST, None, None),
        Standing::Closing { purge: true } => (PURGING, None, None),
        Standing::Closing { purge: false } => (CLOSING, None, None),
    };
    let put = "INSERT INTO sessions (id, nonce, runtime, tenant, created, expires, last_used, stored, standing,
                                     sandbox, asleep_since)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
               ON CONFLICT (id) DO UPDATE SET
                   runtime = excluded.runtime, tenant = excluded.tenant, created = excluded.created,
                   expires = excluded.expires, last_used = excluded.last_used,
                   stored = excluded.stored, standing = excluded.standing, sandbox = excluded.sandbox,
                   asleep_since = excluded.asleep_since";
    transaction.prepare_cached(put)?.execute(params![
        record.id.as_str(),
        record.nonce.as_bytes(),
        record.runtime,
        record.tenant.as_ref().map(Tenant::as_str),
        nanos(record.created),
        record.expires.map(nanos),
        nanos(record.last_used),
        record.files_outside,
        standing,
        sandbox.map(SandboxId::as_str),
        since.map(nanos),
    ])?;
    let forget = "DELETE FROM labels WHERE session = ?1";
    transaction
        .prepare_cached(forget)?
        .execute([record.id.as_str()])?;
    if !record.labels.is_empty() {
        let label = "INSERT INTO labels VALUES (?1, ?2, ?3)";
        let mut label = transaction.prepare_cached(label)?;
        for (name, value) in &record.labels {
            label.execute(params![record.id.as_str(), name, value])?;
        }
    }
    Ok(())
}

/// Strikes a session out, its log too.
pub(super) fn remove(transaction: &Transaction<'_>, id: &SessionId) -> Result<(), Error> {
    let remove = "DELETE FROM sessions WHERE id = ?1";
    transaction
        .prepare_cached(remove)?
        .execute([id.as_str()])
        .map(|_| ())
}

/// Writes when a session ends; one that is gone is passed over.
pub(super) fn renew(
    transaction: &Transaction<'_>,
    id: &SessionId,
    nonce: &Nonce,
    expires: Option<Duration>,
) -> Result<(), Error> {
    let renew = "UPDATE sessions SET expires = ?3 WHERE id = ?1 AND nonce = ?2";
    let row = params![id.as_str(), nonce.as_bytes(), expires.map(nanos)];
    transaction.prepare_cached(renew)?.execute(row).map(|_| ())
}

/// Writes something, to see whether that can be done.
pub(super) fn check(transaction: &Transaction<'_>) -> Result<(), Error> {
    let check = "INSERT INTO facts VALUES ('checked', 1)
                 ON CONFLICT (name) DO UPDATE SET value = (value + 1) % 1000000";
    transaction.prepare_cached(check)?.execute([]).map(|_| ())
}

/// Writes what sessions did; those that are gone are passed over.
pub(super) fn note(transaction: &Transaction<'_>, activities: &[Activity]) -> Result<(), Error> {
    let mut used = transaction.prepare_cached(
        "UPDATE sessions SET last_used = ?3,
                             asleep_since = CASE standing WHEN 'asleep' THEN coalesce(?4, asleep_since) END,
                             latest_event = max(latest_event, ?5)
         WHERE id = ?1 AND nonce = ?2",
    )?;
    let mut row = transaction
        .prepare_cached("INSERT OR REPLACE INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
    let mut old = transaction.prepare_cached(
        "DELETE FROM events WHERE session = ?1 AND seq <=
             (SELECT seq FROM events WHERE session = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)",
    )?;
    for activity in activities {
        let latest = activity.events.last().map_or(0, |event| event.seq);
        let found = used.execute(params![
            activity.id.as_str(),
            activity.nonce.as_bytes(),
            nanos(activity.last_used),
            activity.asleep_since.map(nanos),
            within(latest),
        ])?;
        if found == 0 {
            continue;
        }
        for event in &activity.events {
            row.execute(params![
                activity.id.as_str(),
                within(event.seq),
                nanos(event.at),
                event.op,
                event.target,
                event.ok,
                event.detail,
                nanos(event.took),
            ])?;
        }
        if latest > 0 {
            let kept = i64::try_from(EVENTS_PER_SESSION).unwrap_or(i64::MAX);
            old.execute(params![activity.id.as_str(), kept])?;
        }
    }
    Ok(())
}

/// Every session, in the order in which they were opened.
pub(super) fn all(connection: &Connection) -> Result<Vec<Recorded>, Error> {
    let all = "SELECT id, nonce, runtime, tenant, created, expires, last_used, stored, standing, sandbox, asleep_since,
                      latest_event
               FROM sessions ORDER BY created, id";
    let mut all = connection.prepare(all)?;
    let rows = all.query_map([], |row| {
        Ok(Recorded {
            record: record(row)?,
            latest_event: number(row, 11)?,
        })
    })?;
    let mut found: Vec<Recorded> = rows.collect::<Result<_, _>>()?;
    let mut labels = labels(connection)?;
    for recorded in &mut found {
        if let Some(labels) = labels.remove(recorded.record.id.as_str()) {
            recorded.record.labels = labels;
        }
    }
    Ok(found)
}

/// Every session's labels.
fn labels(connection: &Connection) -> Result<BTreeMap<String, BTreeMap<String, String>>, Error> {
    let mut all = connection.prepare("SELECT session, name, value FROM labels")?;
    let mut rows = all.query([])?;
    let mut labels = BTreeMap::<String, BTreeMap<String, String>>::new();
    while let Some(row) = rows.next()? {
        let of_session = labels.entry(row.get(0)?).or_default();
        of_session.insert(row.get(1)?, row.get(2)?);
    }
    Ok(labels)
}

/// The rows of a session's log between two numbers, in order; the last so many.
pub(super) fn events(
    connection: &Connection,
    id: &SessionId,
    nonce: &Nonce,
    after: u64,
    before: u64,
) -> Result<Vec<Event>, Error> {
    let is_this = "SELECT 1 FROM sessions WHERE id = ?1 AND nonce = ?2";
    let is_this = connection
        .prepare_cached(is_this)?
        .query_row(params![id.as_str(), nonce.as_bytes()], |_| Ok(()))
        .optional()?;
    if is_this.is_none() {
        return Ok(Vec::new());
    }
    let rows = "SELECT seq, at, op, target, ok, detail, took FROM events
                WHERE session = ?1 AND seq > ?2 AND seq < ?3 ORDER BY seq DESC LIMIT ?4";
    let limit = i64::try_from(EVENTS_PER_SESSION).unwrap_or(i64::MAX);
    let mut rows = connection.prepare_cached(rows)?;
    let rows = rows.query_map(
        params![id.as_str(), within(after), within(before), limit],
        |row| {
            Ok(Event {
                seq: number(row, 0)?,
                at: duration(row, 1)?.unwrap_or_default(),
                op: row.get::<_, String>(2)?.into(),
                target: row.get(3)?,
                ok: row.get(4)?,
                detail: row.get(5)?,
                took: duration(row, 6)?.unwrap_or_default(),
            })
        },
    )?;
    let mut rows: Vec<Event> = rows.collect::<Result<_, _>>()?;
    rows.reverse();
    Ok(rows)
}

fn record(row: &Row<'_>) -> Result<Record, Error> {
    let id: String = row.get(0)?;
    let tenant: Option<String> = row.get(3)?;
    let standing: String = row.get(8)?;
    let sandbox: Option<String> = row.get(9)?;
    let sandbox = match sandbox {
        Some(text) => Some(SandboxId::parse(&text).map_err(|_| damaged(9, "a sandbox", &text))?),
        None => None,
    };
    let last_used = duration(row, 6)?.ok_or_else(|| damaged(6, "a time", "nothing"))?;
    let standing = match (standing.as_str(), sandbox) {
        (RESIDENT, Some(sandbox)) => Standing::Resident {
            sandbox,
            keeps: false,
        },
        (RESIDENT_KEEPS, Some(sandbox)) => Standing::Resident {
            sandbox,
            keeps: true,
        },
        (ASLEEP, layer) => Standing::Hibernated {
            layer,
            since: duration(row, 10)?.unwrap_or(last_used),
        },
        (LOST, _) => Standing::Lost,
        (PURGING, _) => Standing::Closing { purge: true },
        (CLOSING, _) => Standing::Closing { purge: false },
        (other, _) => return Err(damaged(8, "a standing", other)),
    };
    Ok(Record {
        id: SessionId::parse(&id).map_err(|_| damaged(0, "a session id", &id))?,
        nonce: Nonce::from_bytes(row.get(1)?),
        runtime: row.get(2)?,
        tenant: match tenant {
            Some(text) => Some(Tenant::parse(&text).map_err(|_| damaged(3, "a tenant", &text))?),
            None => None,
        },
        labels: BTreeMap::new(),
        created: duration(row, 4)?.unwrap_or_default(),
        expires: duration(row, 5)?,
        last_used,
        files_outside: row.get(7)?,
        standing,
    })
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

fn duration(row: &Row<'_>, column: usize) -> Result<Option<Duration>, Error> {
    let nanos: Option<i64> = row.get(column)?;
    // None is negative but in a damaged file.
    Ok(nanos.map(|nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))))
}

/// A number as the column can hold it: beyond that there is nothing.
fn within(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn number(row: &Row<'_>, column: usize) -> Result<u64, Error> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

fn damaged(column: usize, what: &str, found: &str) -> Error {
    let cause = format!("{found:?} is not {what}");
    Error::FromSqlConversionFailure(column, Type::Text, cause.into())
}
