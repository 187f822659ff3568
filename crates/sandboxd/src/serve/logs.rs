//! The service's log: on stderr, as text on a terminal and as JSON lines elsewhere. `RUST_LOG` chooses what is said.

use std::io::{self, IsTerminal as _};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// Starts it, once per process.
pub(super) fn start() {
    let filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .from_env_lossy();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    // A log that was started already stays as it is.
    let _ = if io::stderr().is_terminal() {
        log.with_target(false).try_init()
    } else {
        log.json()
            .flatten_event(true)
            .with_span_list(false)
            .try_init()
    };
}
