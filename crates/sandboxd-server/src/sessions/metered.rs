//! The ledger with a stopwatch: how long each of its operations took, and whether it went well.

use super::ledger::{Activity, Ledger, LedgerError, Record, Recorded};
use super::words::Event;
use crate::auth::session_tokens::Nonce;
use crate::id::SessionId;
use crate::telemetry::metrics::Metrics;
use async_trait::async_trait;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A ledger whose operations are timed.
#[derive(Debug)]
pub(super) struct Metered {
    ledger: Arc<dyn Ledger>,
    metrics: Arc<Metrics>,
}

impl Metered {
    pub(super) fn new(ledger: Arc<dyn Ledger>, metrics: Arc<Metrics>) -> Self {
        Self { ledger, metrics }
    }

    async fn timed<T>(
        &self,
        op: &'static str,
        work: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let began = Instant::now();
        let done = work.await;
        self.metrics.stored(op, done.is_ok(), began.elapsed());
        done
    }
}

#[async_trait]
impl Ledger for Metered {
    async fn put(&self, record: Record) -> Result<(), LedgerError> {
        self.timed("put", self.ledger.put(record)).await
    }

    async fn remove(&self, id: &SessionId) -> Result<(), LedgerError> {
        self.timed("remove", self.ledger.remove(id)).await
    }

    async fn all(&self) -> Result<Vec<Recorded>, LedgerError> {
        self.timed("all", self.ledger.all()).await
    }

    async fn note(&self, activities: Vec<Activity>) -> Result<(), LedgerError> {
        self.timed("note", self.ledger.note(activities)).await
    }

    async fn renew(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        expires: Option<Duration>,
    ) -> Result<(), LedgerError> {
        let renewed = self.ledger.renew(id, nonce, expires);
        self.timed("renew", renewed).await
    }

    async fn check(&self) -> Result<(), LedgerError> {
        self.timed("check", self.ledger.check()).await
    }

    async fn events(
        &self,
        id: &SessionId,
        nonce: &Nonce,
        after: u64,
        before: u64,
    ) -> Result<Vec<Event>, LedgerError> {
        let read = self.ledger.events(id, nonce, after, before);
        self.timed("events", read).await
    }
}
