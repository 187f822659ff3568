//! What is written down of a session, so that the next daemon can take it up again.
//!
//! A *record* is written before anybody hears of what it says. The *activity* of a session (when it was last used, the
//! rows of its log) follows within a moment, many sessions at once; a crash may cost that moment.

use super::words::Event;
use crate::auth::session_tokens::Nonce;
use crate::id::{SandboxId, SessionId, Tenant};
use crate::limits::EVENTS_PER_SESSION;
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A session, as it can be taken up again. Times are since the Unix epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Id.
    pub id: SessionId,
    /// Alias.
    pub runtime: String,
    /// Label that is counted.
    pub tenant: Option<Tenant>,
    /// Labels that clients gave it.
    pub labels: BTreeMap<String, String>,
    /// From which its token is derived; tells it from an earlier session of the same id.
    pub nonce: Nonce,
    /// When it was opened.
    pub created: Duration,
    /// When it ends whatever happens, if ever.
    pub expires: Option<Duration>,
    /// When it was last used.
    pub last_used: Duration,
    /// Whether its files are stored outside its sandboxes (a workspace).
    pub files_outside: bool,
    /// What it has by way of a sandbox.
    pub standing: Standing,
}

/// Where a session stands when nothing of it is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// A sandbox runs.
    Resident {
        /// This one.
        sandbox: SandboxId,
        /// Whether its write layer can be kept when it ends, also when the daemon ends first.
        keeps: bool,
    },
    /// It sleeps.
    Hibernated {
        /// The sandbox whose write layer was kept.
        layer: Option<SandboxId>,
        /// Since when.
        since: Duration,
    },
    /// Its sandbox is gone, and its files with it.
    Lost,
    /// It is being closed; whoever finds this finishes it.
    Closing {
        /// Whether the stored files go too.
        purge: bool,
    },
}

/// A session as the ledger gives it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// What was written.
    pub record: Record,
    /// No row of its log has ever had a higher number than this.
    pub latest_event: u64,
}

/// What happened to one session since its activity was last written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// Which session.
    pub id: SessionId,
    /// Which of this id.
    pub nonce: Nonce,
    /// When it was last used.
    pub last_used: Duration,
    /// Since when it sleeps, if it does.
    pub asleep_since: Option<Duration>,
    /// Fresh rows of its log, in order.
    pub events: Vec<Event>,
}

/// Why something was not written down, or could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LedgerError(pub String);

/// Where records are kept. A session's owner writes, and waits for it, before it reports a transition.
#[async_trait]
pub trait Ledger: Send + Sync + fmt::Debug {
    /// Writes a session's record over an older one. It is on disk when this returns.
    async fn put(&self, record: Record) -> Result<(), LedgerError>;
    /// Strikes a session out, its log too. One that is not there is fine.
    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError>;
    /// Every session that is written down, in the order in which they were opened.
    async fn all(&self) -> Result<Vec<Recorded>, LedgerError>;
    /// Writes the activity of many sessions; what is of a session that is gone is passed over.
    async fn note(&self, activities: Vec<Activity>) -> Result<(), LedgerError>;
    /// Writes when a session ends; what is gone is passed over. It is on disk when this returns.
    async fn renew(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        expires: Option<Duration>,
    ) -> Result<(), LedgerError>;
    /// Whether something can be written now: something is.
    async fn check(&self) -> Result<(), LedgerError>;
    /// The rows of a session's log with numbers after `after` and before `before`, in order: the last
    /// [`EVENTS_PER_SESSION`] of them.
    async fn events(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        after: u64,
        before: u64,
    ) -> Result<Vec<Event>, LedgerError>;
}

/// Records in memory: they go with the daemon.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    pages: Mutex<BTreeMap<SessionId, Page>>,
}

#[derive(Debug, Clone)]
struct Page {
    record: Record,
    events: Vec<Event>,
}

impl MemoryLedger {
    /// What is written.
    pub fn records(&self) -> Vec<Record> {
        let pages = self.pages();
        pages.values().map(|page| page.record.clone()).collect()
    }

    fn pages(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, Page>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn put(&self, record: Record) -> Result<(), LedgerError> {
        let mut pages = self.pages();
        match pages.get_mut(&record.id) {
            Some(page) if page.record.nonce == record.nonce => page.record = record,
            _ => {
                let events = Vec::new();
                pages.insert(record.id.clone(), Page { record, events });
            }
        }
        Ok(())
    }

    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError> {
        self.pages().remove(id);
        Ok(())
    }

    async fn all(&self) -> Result<Vec<Recorded>, LedgerError> {
        let pages = self.pages();
        let mut all: Vec<Recorded> = pages
            .values()
            .map(|page| Recorded {
                record: page.record.clone(),
                latest_event: page.events.last().map_or(0, |event| event.seq),
            })
            .collect();
        all.sort_by_key(|recorded| recorded.record.created);
        Ok(all)
    }

    async fn note(&self, activities: Vec<Activity>) -> Result<(), LedgerError> {
        let mut pages = self.pages();
        for activity in activities {
            let page = pages.get_mut(&activity.id);
            let Some(page) = page.filter(|page| page.record.nonce == activity.nonce) else {
                continue;
            };
            page.record.last_used = activity.last_used;
            if let Standing::Hibernated { since, .. } = &mut page.record.standing
                && let Some(asleep_since) = activity.asleep_since
            {
                *since = asleep_since;
            }
            page.events.extend(activity.events);
            let too_many = page.events.len().saturating_sub(EVENTS_PER_SESSION);
            page.events.drain(..too_many);
        }
        Ok(())
    }

    async fn renew(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        expires: Option<Duration>,
    ) -> Result<(), LedgerError> {
        let mut pages = self.pages();
        let page = pages.get_mut(id);
        if let Some(page) = page.filter(|page| page.record.nonce == *nonce) {
            page.record.expires = expires;
        }
        Ok(())
    }

    async fn check(&self) -> Result<(), LedgerError> {
        Ok(())
    }

    async fn events(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        after: u64,
        before: u64,
    ) -> Result<Vec<Event>, LedgerError> {
        let pages = self.pages();
        let page = pages.get(id).filter(|page| page.record.nonce == *nonce);
        let rows = page.map(|page| page.events.iter()).into_iter().flatten();
        Ok(rows
            .filter(|event| event.seq > after && event.seq < before)
            .cloned()
            .collect())
    }
}
