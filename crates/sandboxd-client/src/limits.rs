//! Every number of the client, with its unit in its name.

use std::time::Duration;

/// How long an open may take: images may have to be built first.
pub(crate) const OPEN_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a session may take to fall asleep: its sandbox ends first, and what is kept is put in order.
pub(crate) const HIBERNATE_TIMEOUT: Duration = Duration::from_secs(130);
/// How long any other request may take that starts no program.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Both of them for a sandbox that degrades: the tools above it have their own, shorter patience.
pub(crate) const DEGRADING_TIMEOUT: Duration = Duration::from_secs(60);
/// What a request may take longer than the work it asks for: a wake, and the way there and back.
pub(crate) const MARGIN: Duration = Duration::from_secs(10);
/// How long the stop of a run may take whose caller went away.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to wait before asking again for a session that somebody else is opening.
pub(crate) const REOPEN_PAUSE: Duration = Duration::from_millis(200);
/// After how long an open counts as slow, and its watcher is told.
pub(crate) const SLOW_OPEN: Duration = Duration::from_secs(3);
/// How long an idle connection is kept: shorter than the services do, so that none is used while it is being closed.
pub(crate) const IDLE_CONNECTION: Duration = Duration::from_secs(4);
/// How many idle connections are kept.
pub(crate) const IDLE_CONNECTIONS_MAX: usize = 32;
/// The longest answer that is taken in, in bytes: both streams of a run at their limit, as JSON escapes them at worst.
pub(crate) const ANSWER_BYTES_MAX: usize = 128 * 1024 * 1024;
/// How much of a refusal is shown in an error's text, in characters.
pub(crate) const REFUSAL_CHARACTERS_MAX: usize = 2000;
