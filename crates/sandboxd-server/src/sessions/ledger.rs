//! What is written down of a session before anybody hears of it. Today it is written into memory; a database that
//! outlives the daemon takes the same place.

use crate::auth::session_tokens::Nonce;
use crate::id::{SandboxId, SessionId, Tenant};
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
    /// Label.
    pub tenant: Option<Tenant>,
    /// From which its token is derived.
    pub nonce: Nonce,
    /// When it was opened.
    pub created: Duration,
    /// When it was last used.
    pub last_used: Duration,
    /// Whether its files live outside its sandbox.
    pub files_outside: bool,
    /// What it has by way of a sandbox.
    pub standing: Standing,
}

/// Where a session stands when nothing of it is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// This sandbox runs.
    Resident(SandboxId),
    /// It sleeps; this one's write layer was kept.
    Hibernated(Option<SandboxId>),
}

/// Why something was not written down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not written down: {0}")]
pub struct LedgerError(pub String);

/// Where records are kept. A session's owner writes, and waits for it, before it reports a transition.
#[async_trait]
pub trait Ledger: Send + Sync + fmt::Debug {
    /// Writes a session's record over an older one.
    async fn put(&self, record: Record) -> Result<(), LedgerError>;
    /// Strikes a session out. One that is not there is fine.
    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError>;
    /// Every session that is written down.
    async fn all(&self) -> Result<Vec<Record>, LedgerError>;
}

/// Records in memory: they go with the daemon.
#[derive(Debug, Default)]
pub struct MemoryLedger {
    records: Mutex<BTreeMap<SessionId, Record>>,
}

impl MemoryLedger {
    /// What is written.
    pub fn records(&self) -> Vec<Record> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.values().cloned().collect()
    }
}

#[async_trait]
impl Ledger for MemoryLedger {
    async fn put(&self, record: Record) -> Result<(), LedgerError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.insert(record.id.clone(), record);
        Ok(())
    }

    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError> {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        records.remove(id);
        Ok(())
    }

    async fn all(&self) -> Result<Vec<Record>, LedgerError> {
        Ok(self.records())
    }
}
