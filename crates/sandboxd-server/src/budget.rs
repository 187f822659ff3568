//! Memory that requests share: so much for all of them together, taken as it is needed and given back with its holder.

use crate::limits::BUDGET_UNIT_BYTES;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many bytes for all together. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Semaphore>);

/// A part of a budget; dropping it gives it back.
#[derive(Debug, Default)]
pub struct Share(Option<OwnedSemaphorePermit>);

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BUDGET_UNIT_BYTES)).unwrap_or(u32::MAX)
}

impl Budget {
    /// Of so many bytes.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let units = usize::try_from(units(bytes)).unwrap_or(usize::MAX);
        Self(Arc::new(Semaphore::new(units.min(Semaphore::MAX_PERMITS))))
    }

    /// So many bytes, when they are free; whoever asked first has them first.
    pub async fn wait_for(self, bytes: u64) -> Share {
        // The budget is never closed.
        Share(self.0.acquire_many_owned(units(bytes)).await.ok())
    }

    /// Adds so many bytes to a share, if they are free now.
    #[must_use]
    pub fn add(&self, share: &mut Share, bytes: u64) -> bool {
        let Ok(more) = self.0.clone().try_acquire_many_owned(units(bytes)) else {
            return false;
        };
        match &mut share.0 {
            Some(held) => held.merge(more),
            none => *none = Some(more),
        }
        true
    }
}

impl Share {
    /// How many bytes it is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let units = self.0.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        u64::try_from(units).unwrap_or(u64::MAX) * BUDGET_UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_grows_while_there_is_room_and_comes_back() {
        let budget = Budget::new(10 * 1024);
        let mut one = Share::default();
        assert!(budget.add(&mut one, 1));
        assert!(budget.add(&mut one, 6 * 1024));
        assert_eq!(one.bytes(), 7 * 1024);
        let mut other = Share::default();
        assert!(!budget.add(&mut other, 4 * 1024));
        assert_eq!(other.bytes(), 0);
        drop(one);
        assert!(budget.add(&mut other, 10 * 1024));
    }

    #[tokio::test]
    async fn a_share_is_waited_for() {
        let budget = Budget::new(4096);
        let first = budget.clone().wait_for(4096).await;
        let mut second = Box::pin(budget.clone().wait_for(1024));
        assert!(futures::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(second.await.bytes(), 1024);
    }
}
