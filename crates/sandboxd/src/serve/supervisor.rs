//! What a supervisor that started the service (systemd, by `Type=notify`) is told: that it is ready, that it lives, that it
//! ends. Where nobody listens, nothing is said.

use sandboxd_server::limits::END_SECONDS_MAX;
use sandboxd_server::sessions::Sessions;
use sd_notify::NotifyState;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// It answers.
pub(super) fn ready(address: SocketAddr) {
    let status = format!("listening on {address}");
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// It ends, which may take as long as what is under way: the supervisor's own patience is made so long.
pub(super) fn ending(drain: Duration) {
    let patience = drain + Duration::from_secs(END_SECONDS_MAX);
    let micros = u32::try_from(patience.as_micros()).unwrap_or(u32::MAX);
    tell(&[
        NotifyState::Stopping,
        NotifyState::ExtendTimeoutUsec(micros),
        NotifyState::Status("letting operations finish"),
    ]);
}

/// Says that the service lives for as long as it does, if the supervisor wants to hear that. Ends with the service only.
pub(super) async fn beat(sessions: Arc<Sessions>) {
    let Some(patience) = sd_notify::watchdog_enabled() else {
        return std::future::pending().await;
    };
    let mut beats = interval(pause(patience));
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        // Not said by a timer alone: the table of sessions answers, and this task gets its turn.
        let counts = sessions.counts();
        let status = format!("{} sessions, {} sandboxes", counts.open, counts.resident);
        tell(&[NotifyState::Watchdog, NotifyState::Status(&status)]);
    }
}

/// Twice as often as has to be, as sd_watchdog_enabled(3) advises.
fn pause(patience: Duration) -> Duration {
    (patience / 2).max(Duration::from_millis(1))
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the supervisor could not be told");
    }
}
