//! Rows of the activity log about the session itself: that it woke, fell asleep, made room, was refused. They stand among
//! the operations, under the same numbers, and never come up while a session simply runs.

use super::table::Shared;
use super::words::Happened;
use crate::id::SessionId;
use crate::limits::REFUSAL_ROW_SECONDS;
use std::time::Duration;
use tokio::time::Instant;

/// Why a session is on its way to sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sleep {
    /// Somebody asked.
    Asked,
    /// It was idle for `hibernate_after`.
    Idle,
    /// Another session needed the room.
    Room,
    /// The daemon ends.
    Shutdown,
}

/// A session on its way to sleep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Going {
    why: Sleep,
    began: Instant,
}

impl Going {
    pub(super) fn now(why: Sleep) -> Self {
        let began = Instant::now();
        Self { why, began }
    }
}

/// It fell asleep; `layer` and `files` say what it has left.
pub(super) fn slept(going: Going, layer: bool, files: bool) -> Happened {
    let (op, target) = match going.why {
        Sleep::Asked => ("hibernate", "asked to"),
        Sleep::Idle => ("hibernate", "idle"),
        Sleep::Shutdown => ("hibernate", "the service ends"),
        Sleep::Room => ("evict", "room for another session"),
    };
    let detail = match (layer, files) {
        (true, _) => "layer kept",
        (false, true) => "",
        (false, false) => "nothing of it could be kept",
    };
    Happened {
        op,
        target: target.to_owned(),
        ok: layer || files,
        detail: detail.to_owned(),
        took: going.began.elapsed(),
    }
}

/// It woke, or did not.
pub(super) fn woke(runtime: &str, layer: bool, failed: Option<&str>, took: Duration) -> Happened {
    let detail = match failed {
        Some(cause) => cause,
        None if layer => "with its kept layer",
        None => "",
    };
    Happened {
        op: "wake",
        target: runtime.to_owned(),
        ok: failed.is_none(),
        detail: detail.to_owned(),
        took,
    }
}

/// It was refused something for want of room. Whoever goes on asking does not push everything else out of the log.
pub(super) fn refuse(shared: &Shared, id: &SessionId, serial: u64, what: &str, why: String) {
    {
        let mut table = shared.table();
        let Some(detail) = table.details.get_mut(id) else {
            return;
        };
        let now = Instant::now();
        let pause = Duration::from_secs(REFUSAL_ROW_SECONDS);
        let lately = detail
            .refused
            .is_some_and(|at| now.duration_since(at) < pause);
        if detail.serial != serial || lately {
            return;
        }
        detail.refused = Some(now);
    }
    let happened = Happened {
        op: "refuse",
        target: what.to_owned(),
        ok: false,
        detail: why,
        took: Duration::ZERO,
    };
    shared.log(id, Some(serial), happened);
}
