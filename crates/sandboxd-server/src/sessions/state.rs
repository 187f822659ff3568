//! What a session can be, and what may happen to it: pure, without clock, lock or I/O.
//!
//! ```text
//!  (none) ──open──▶ Opening ──▶ Resident ──▶ Hibernating ──▶ Hibernated ──▶ Waking ──▶ Resident
//!                     │            │                             ▲             │
//!                     │ failure    │ its sandbox died            └── failure ──┤
//!                     ▼            ├──▶ Falling ──▶ Fallen ── next operation ──┘   (its files live outside)
//!                   (none)         ├──▶ Lost      (they went with it: 410 for every run, until a delete)
//!                                  └──▶ Closing ──▶ (none): workspace kept, or purged
//! ```
//!
//! Files live outside a sandbox where they are stored (a workspace) or where its write layer is one that can be kept.
//!
//! `Closing` is reached from every state but `Opening` (a session that is still opening is not there yet for anybody,
//! save for a shutdown). A session in `Opening`, `Resident`, `Falling`, `Fallen`, `Hibernating` or `Waking` holds one
//! *slot*, the right to a sandbox; so does one in `Closing` until its sandbox is gone. One in `Opening` or `Waking` that still
//! `waits` holds none: it is the *heir* of a session on its way to sleep or out, and takes over that one's slot in the
//! same step in which it becomes free. So a ceiling is never exceeded, not even for a moment.
//!
//! [`Rental::step`] answers with the next rental and what has to be done about it, or with a refusal, in which case
//! nothing has changed. Whoever carries an [`Action`] out reports how it went with the next [`Event`].
//!
//! - [`steps`]: what each event makes of each state.

mod steps;

use crate::id::{SandboxId, SessionId, Tenant};
use std::time::Duration;

/// Where a session stands. Each variant holds exactly what exists then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Its first sandbox is being made.
    Opening {
        /// The one that is being made.
        sandbox: SandboxId,
        /// Whether the slot is still somebody else's.
        waits: bool,
    },
    /// Its sandbox runs.
    Resident {
        /// The one that runs.
        sandbox: SandboxId,
        /// Whether its write layer can be kept when it ends.
        keeps: bool,
    },
    /// Its sandbox died, its files did not; what is left of it is being put in order.
    Falling {
        /// The one that died.
        sandbox: SandboxId,
    },
    /// Its sandbox died, its files did not: the next operation makes another one. It keeps its slot for that.
    Fallen {
        /// The sandbox whose write layer was kept.
        layer: Option<SandboxId>,
    },
    /// Its sandbox is being stopped; the session stays.
    Hibernating {
        /// The one that is being stopped.
        sandbox: SandboxId,
        /// Who takes the slot.
        heir: Option<SessionId>,
    },
    /// It sleeps.
    Hibernated {
        /// The sandbox whose write layer was kept.
        layer: Option<SandboxId>,
        /// Since when (a native file operation moves this).
        since: Duration,
    },
    /// Another sandbox is being made for it.
    Waking {
        /// The one that is being made.
        sandbox: SandboxId,
        /// Whether it starts from the layer that was kept under its id.
        layer: bool,
        /// Whether the slot is still somebody else's.
        waits: bool,
    },
    /// Its sandbox died, and its files with it.
    Lost,
    /// It ends.
    Closing {
        /// What is left to be removed.
        sandbox: Option<SandboxId>,
        /// Who takes the slot.
        heir: Option<SessionId>,
    },
}

/// One session, as far as its life is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rental {
    /// Tells it from an earlier session of the same id.
    pub(super) serial: u64,
    /// Label that is counted.
    pub(super) tenant: Option<Tenant>,
    /// Whether its files are stored outside its sandboxes, so that another one finds them, layer or not.
    pub(super) files_outside: bool,
    /// Operations in flight.
    pub(super) uses: u32,
    /// When the last one began or ended.
    pub(super) last_used: Duration,
    /// When it ends whatever happens, if ever.
    pub(super) expires: Option<Duration>,
    /// Where it stands.
    pub(super) state: State,
}

/// Something that happens to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// An operation begins.
    Enter,
    /// An operation ends.
    Leave,
    /// The slot that it waited for is its own now.
    SlotFree,
    /// The sandbox that was being made runs.
    Started {
        /// Whether its write layer can be kept when it ends.
        keeps: bool,
    },
    /// The sandbox that was being made does not run, and nothing is left of it.
    StartFailed,
    /// This sandbox has ended by itself.
    Died(SandboxId),
    /// Its files are safe outside and it is not busy: let it sleep.
    Hibernate {
        /// Who takes the slot.
        heir: Option<SessionId>,
    },
    /// The sandbox that was being stopped is gone, save for the layer, if one was kept.
    Stopped {
        /// Whether one was kept.
        layer: bool,
    },
    /// An operation needs its sandbox.
    Wake {
        /// What the new one is called, unless a layer was kept under another id.
        sandbox: SandboxId,
        /// Whether the slot is still somebody else's.
        waits: bool,
    },
    /// Somebody says anew when it ends.
    Renew {
        /// Then, if ever.
        expires: Option<Duration>,
    },
    /// It has slept longer than this, so the layer that was kept for it goes.
    Expire {
        /// So long.
        than: Duration,
    },
    /// The daemon ends: its sandbox goes, and the session stays on record for the next one.
    Suspend,
    /// It has to end.
    Close(Why),
    /// Nothing is left of it.
    Closed,
}

/// By how much a clock was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    /// It is later all at once.
    Forward(Duration),
    /// It is earlier all at once.
    Back(Duration),
}

impl Shift {
    /// A time by the old clock, by the new one.
    pub(super) fn of(self, time: Duration) -> Duration {
        match self {
            Self::Forward(by) => time.saturating_add(by),
            Self::Back(by) => time.saturating_sub(by),
        }
    }
}

/// Why a session ends, and so what goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody asked.
    Delete {
        /// The stored workspace goes too.
        purge: bool,
    },
    /// It was not used for so long, and is not used now.
    Idle {
        /// So long.
        than: Duration,
    },
    /// Its own time is over, whatever it does.
    Expired,
    /// Room for another open session; only one that sleeps unused.
    OpenCeiling,
    /// The daemon ends, and nobody has heard of it yet.
    Shutdown,
}

/// What has to be done about a transition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Make this sandbox; then [`Event::Started`] or [`Event::StartFailed`].
    Create {
        /// Its id.
        sandbox: SandboxId,
        /// Whether it starts from the layer that was kept under this id.
        layer: bool,
    },
    /// Stop this sandbox (it may have ended already) and keep what lives on; then [`Event::Stopped`].
    Stop(SandboxId),
    /// As `Stop`, for the daemon's end; then [`Event::Closed`].
    Suspend(SandboxId),
    /// Remove what is left of this sandbox. Nothing waits for it.
    Clear(SandboxId),
    /// End the sandbox and everything else that goes; then [`Event::Closed`].
    End {
        /// What is left to be removed.
        sandbox: Option<SandboxId>,
        /// The stored workspace goes too.
        purge: bool,
    },
    /// The session's slot is free; its heir takes it.
    PassSlot(SessionId),
    /// The session is no more.
    Forget,
}

/// Why something may not happen to a session now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// It is still being opened.
    #[error("it is still being opened")]
    Opening,
    /// It ends.
    #[error("it is being closed")]
    Closing,
    /// Its sandbox is gone, and its files with it.
    #[error("its sandbox is gone")]
    Lost,
    /// It runs already.
    #[error("its sandbox runs")]
    Awake,
    /// It sleeps already.
    #[error("it sleeps")]
    Asleep,
    /// It is on its way to sleep or awake; wait for the end of that.
    #[error("it is between two states")]
    Changing,
    /// Operations are in flight.
    #[error("it is in use")]
    Busy,
    /// It was used too recently.
    #[error("it was used recently")]
    Recent,
    /// Its files would go with its sandbox.
    #[error("its files live in its sandbox")]
    FilesInside,
    /// It is not waiting for anything of the kind.
    #[error("it does not wait for that")]
    Unexpected,
}

/// The next rental (`None`: the session is no more) and what has to be done.
pub(super) type Step = Result<(Option<Rental>, Vec<Action>), Refusal>;

impl State {
    /// Whether the session holds a slot.
    pub(super) fn holds_slot(&self) -> bool {
        match self {
            Self::Resident { .. }
            | Self::Falling { .. }
            | Self::Fallen { .. }
            | Self::Hibernating { .. } => true,
            Self::Opening { waits, .. } | Self::Waking { waits, .. } => !waits,
            Self::Closing { sandbox, .. } => sandbox.is_some(),
            Self::Hibernated { .. } | Self::Lost => false,
        }
    }

    /// Whether the session counts as open.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Self::Closing { .. })
    }

    /// The slot is on its way to be free, and nobody has been promised it.
    pub(super) fn slot_is_coming(&self) -> bool {
        match self {
            Self::Hibernating { heir, .. } => heir.is_none(),
            Self::Closing { sandbox, heir } => sandbox.is_some() && heir.is_none(),
            Self::Opening { .. }
            | Self::Resident { .. }
            | Self::Falling { .. }
            | Self::Fallen { .. }
            | Self::Hibernated { .. }
            | Self::Waking { .. }
            | Self::Lost => false,
        }
    }
}

impl Rental {
    /// One that begins.
    pub(super) fn open(
        serial: u64,
        tenant: Option<Tenant>,
        files_outside: bool,
        expires: Option<Duration>,
        sandbox: SandboxId,
        waits: bool,
        now: Duration,
    ) -> (Self, Vec<Action>) {
        let actions = if waits {
            Vec::new()
        } else {
            vec![Action::Create {
                sandbox: sandbox.clone(),
                layer: false,
            }]
        };
        let rental = Self {
            serial,
            tenant,
            files_outside,
            uses: 0,
            last_used: now,
            expires,
            state: State::Opening { sandbox, waits },
        };
        (rental, actions)
    }

    /// How long it has not been used.
    pub(super) fn idle(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last_used)
    }
}
