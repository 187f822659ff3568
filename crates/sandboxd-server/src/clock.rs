//! Time, so that tests can move it.

use std::time::Duration;

/// Where time comes from.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Time since the Unix epoch. Somebody may set it, forward or back, at any moment.
    fn now(&self) -> Duration;
    /// Time since some moment before this process began. Nobody can set it.
    fn steady(&self) -> Duration {
        self.now()
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the Clock that everything else asks"
    )]
    fn now(&self) -> Duration {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default()
    }

    /// The time in which the machine slept counts: it passed for everybody else, too.
    fn steady(&self) -> Duration {
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::try_from(since_boot).unwrap_or_default()
    }
}
