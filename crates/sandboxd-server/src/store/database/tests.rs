use super::*;
use crate::id::{SandboxId, Tenant};
use crate::sessions::Standing;
use std::collections::BTreeMap;
use std::time::Duration;

fn id(text: &str) -> SessionId {
    SessionId::parse(text).unwrap()
}

fn record(name: &str, nonce: u8) -> Record {
    Record {
        id: id(name),
        runtime: "python".to_owned(),
        tenant: Some(Tenant::parse("acme").unwrap()),
        labels: BTreeMap::from([("a = b\n".to_owned(), "c\\\0'".to_owned())]),
        nonce: Nonce::from_bytes([nonce; 16]),
        created: Duration::new(1_700_000_000, 123_456_789),
        expires: Some(Duration::from_secs(1_800_000_000)),
        last_used: Duration::new(1_700_000_001, 1),
        files_outside: true,
        standing: Standing::Resident {
            sandbox: SandboxId::generate(),
            keeps: true,
        },
    }
}

fn event(seq: u64) -> Event {
    Event {
        seq,
        at: Duration::from_millis(seq),
        op: "run".into(),
        target: format!("ls {seq} ä\u{0}"),
        ok: seq.is_multiple_of(2),
        detail: String::new(),
        took: Duration::from_micros(seq),
    }
}

fn activity(of: &Record, events: std::ops::Range<u64>) -> Activity {
    Activity {
        id: of.id.clone(),
        nonce: of.nonce,
        last_used: Duration::from_secs(1_700_000_500),
        asleep_since: Some(Duration::from_secs(1_700_000_400)),
        events: events.map(event).collect(),
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn open(&self) -> Database {
        Database::open(&self.0.path().join("db")).unwrap()
    }

    /// What a daemon that was killed leaves: the files as they are now.
    fn as_if_killed(&self) -> Self {
        let copy = Self::new();
        for entry in std::fs::read_dir(self.0.path()).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), copy.0.path().join(entry.file_name())).unwrap();
        }
        copy
    }
}

#[tokio::test]
async fn records_come_back_as_they_were_written() {
    let place = Place::new();
    let mut all = vec![
        record("a", 1),
        record("b", 2),
        record("c", 3),
        record("d", 4),
    ];
    all[1].tenant = None;
    all[1].expires = None;
    all[1].labels.clear();
    all[1].standing = Standing::Hibernated {
        layer: Some(SandboxId::generate()),
        since: Duration::new(5, 6),
    };
    all[2].files_outside = false;
    all[2].standing = Standing::Lost;
    all[3].standing = Standing::Hibernated {
        layer: None,
        since: Duration::from_secs(9),
    };
    let database = place.open();
    for record in &all {
        database.put(record.clone()).await.unwrap();
        // Again, over itself.
        database.put(record.clone()).await.unwrap();
    }
    // A daemon that was killed, and one that ended.
    let killed = place.as_if_killed();
    drop(database);
    for place in [killed, place] {
        let found = place.open().all().await.unwrap();
        let records: Vec<Record> = found.into_iter().map(|recorded| recorded.record).collect();
        assert_eq!(records, all);
    }
}

#[tokio::test]
async fn a_session_that_was_struck_out_is_gone_with_its_log() {
    let place = Place::new();
    let database = place.open();
    let first = record("a", 1);
    database.put(first.clone()).await.unwrap();
    database.note(vec![activity(&first, 1..4)]).await.unwrap();
    database.remove(&first.id).await.unwrap();
    database.remove(&first.id).await.unwrap();
    assert_eq!(database.all().await.unwrap(), vec![]);
    // What an earlier session of the same id still had to say is nobody's.
    let second = record("a", 2);
    database.put(second.clone()).await.unwrap();
    database.note(vec![activity(&first, 4..6)]).await.unwrap();
    let rows = database.events(&second.id, &second.nonce, 0, 100).await;
    assert_eq!(rows.unwrap(), vec![]);
    let rows = database.events(&first.id, &first.nonce, 0, 100).await;
    assert_eq!(rows.unwrap(), vec![]);
    assert_eq!(database.all().await.unwrap()[0].record, second);
    // So it is where the id was taken without being struck out first.
    database.note(vec![activity(&second, 1..3)]).await.unwrap();
    let third = record("a", 3);
    database.put(third.clone()).await.unwrap();
    let rows = database.events(&third.id, &third.nonce, 0, 100).await;
    assert_eq!(rows.unwrap(), vec![]);
}

#[tokio::test]
async fn logs_are_kept_to_their_length_and_read_in_parts() {
    let place = Place::new();
    let database = place.open();
    let one = record("a", 1);
    database.put(one.clone()).await.unwrap();
    for start in (1..500).step_by(100) {
        let rows = activity(&one, start..start + 100);
        database.note(vec![rows]).await.unwrap();
    }
    let kept = u64::try_from(crate::limits::EVENTS_PER_SESSION).unwrap();
    let read = |after, before| database.events(&one.id, &one.nonce, after, before);
    let all = read(0, u64::MAX).await.unwrap();
    let numbers: Vec<u64> = all.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (501 - kept..501).collect::<Vec<_>>());
    assert_eq!(all[0], event(501 - kept));
    assert_eq!(read(490, 495).await.unwrap().len(), 4);
    assert_eq!(read(u64::MAX, u64::MAX).await.unwrap(), vec![]);
    let found = database.all().await.unwrap().remove(0);
    assert_eq!(found.latest_event, 500);
    assert_eq!(found.record.last_used, Duration::from_secs(1_700_000_500));
}

#[tokio::test]
async fn no_number_comes_twice_also_after_a_crash() {
    let place = Place::new();
    let database = place.open();
    let one = record("a", 1);
    database.put(one.clone()).await.unwrap();
    database.note(vec![activity(&one, 1..6)]).await.unwrap();
    let latest = |database: Database| async move { database.all().await.unwrap()[0].latest_event };
    let killed = place.as_if_killed();
    drop(database);
    assert_eq!(latest(place.open()).await, 5, "it ended well");
    let after_crash = latest(killed.open()).await;
    assert_eq!(after_crash, 5 + EVENT_NUMBERS_AHEAD);
    // Rows from before the jump stay readable beside those after it.
    let database = killed.open();
    let rows = after_crash + 1..after_crash + 3;
    database.note(vec![activity(&one, rows)]).await.unwrap();
    let all = database.events(&one.id, &one.nonce, 0, u64::MAX).await;
    assert_eq!(all.unwrap().len(), 7);
}

#[tokio::test]
async fn many_at_once_share_commits_and_one_that_fails_spoils_no_other() {
    let place = Place::new();
    let database = place.open();
    let names: Vec<String> = (0..100).map(|n| format!("s{n}")).collect();
    let writes = names.iter().map(|name| database.put(record(name, 1)));
    for written in futures::future::join_all(writes).await {
        written.unwrap();
    }
    assert_eq!(database.all().await.unwrap().len(), 100);
    // A row that the table refuses, among others that it takes.
    let mut connection = Connection::open(place.0.path().join("db")).unwrap();
    connection
        .execute_batch("CREATE TRIGGER no BEFORE UPDATE ON sessions WHEN new.runtime = 'bad' BEGIN SELECT raise(ABORT, 'no'); END")
        .unwrap();
    let mut bad = record("s1", 1);
    bad.runtime = "bad".to_owned();
    let mut good = record("s2", 1);
    good.runtime = "good".to_owned();
    let (answers, got): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
    let writes = [record("s0", 1), bad, good].map(|record| Write::Put(Box::new(record)));
    commit(&mut connection, writes.into_iter().zip(answers).collect());
    let mut done = Vec::new();
    for answer in got {
        done.push(answer.await.unwrap().is_ok());
    }
    assert_eq!(done, [true, false, true]);
    let all = database.all().await.unwrap();
    let of = |name: &str| all.iter().find(|r| r.record.id == id(name)).unwrap();
    assert_eq!(of("s2").record.runtime, "good");
    assert_eq!(of("s1").record.runtime, "python");
}

#[tokio::test]
async fn a_damaged_row_or_file_is_an_error_and_not_fewer_sessions() {
    let place = Place::new();
    let database = place.open();
    database.put(record("a", 1)).await.unwrap();
    let other = Connection::open(place.0.path().join("db")).unwrap();
    other
        .execute("UPDATE sessions SET standing = 'flying'", [])
        .unwrap();
    let error = database.all().await.unwrap_err().to_string();
    assert!(error.contains("flying"), "{error}");
    drop((database, other));

    std::fs::write(
        place.0.path().join("db"),
        b"no database at all, but long enough",
    )
    .unwrap();
    Database::open(&place.0.path().join("db")).unwrap_err();
}
