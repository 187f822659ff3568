//! The signals that end a run: first they ask, a second one kills.

use crate::failure::SIGNAL_BASE;
use crate::limits::{END_GRACE_MILLIS, INTERRUPT_GRACE_MILLIS, KILL_GRACE_MILLIS};
use std::fs;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that was sent to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// Ctrl-C.
    Interrupt,
    /// `kill`.
    Terminate,
    /// The terminal or the connection went away.
    HangUp,
}

impl Asked {
    /// Its number, the same on every architecture of Linux.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::HangUp => 1,
            Self::Interrupt => 2,
            Self::Terminate => 15,
        }
    }

    /// What a shell reports for a program that it ended.
    pub(crate) const fn code(self) -> u8 {
        SIGNAL_BASE + self.number()
    }
}

/// Hears the signals. One that was ignored when we were started (`nohup`, a background job of a script) stays so.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Starts to hear. Needs a running runtime.
    pub(crate) fn hear() -> io::Result<Self> {
        let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
        let hear = |asked: Asked, kind: SignalKind| {
            (ignored & (1 << (asked.number() - 1)) == 0)
                .then(|| signal(kind))
                .transpose()
        };
        Ok(Self {
            interrupt: hear(Asked::Interrupt, SignalKind::interrupt())?,
            terminate: hear(Asked::Terminate, SignalKind::terminate())?,
            hang_up: hear(Asked::HangUp, SignalKind::hangup())?,
        })
    }

    /// The next signal; may be dropped and called again without losing one.
    pub(crate) async fn next(&mut self) -> Asked {
        async fn heard(signal: Option<&mut Signal>) {
            if let Some(signal) = signal
                && signal.recv().await.is_some()
            {
                return;
            }
            std::future::pending().await
        }
        tokio::select! {
            () = heard(self.interrupt.as_mut()) => Asked::Interrupt,
            () = heard(self.terminate.as_mut()) => Asked::Terminate,
            () = heard(self.hang_up.as_mut()) => Asked::HangUp,
        }
    }
}

/// The mask of ignored signals, from the text of `/proc/self/status`; none where it is not there.
fn ignored(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

/// What to tell the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    /// INT to the program.
    Interrupt,
    /// TERM, a grace, then the whole tree is killed.
    Stop,
    /// The whole tree is killed.
    Kill,
}

/// How a run is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Ending {
    /// It is not.
    #[default]
    No,
    /// INT was passed on.
    Interrupted,
    /// It was told to stop.
    Stopping,
    /// It was told to die.
    Killed,
    /// The guest did not answer: its sandbox has to be ended.
    GivenUp,
}

impl Ending {
    /// A signal came: what to say, and how long to wait for the end before [`Ending::waited`].
    pub(super) fn asked(&mut self, asked: Asked) -> (Control, Duration) {
        let (next, control, millis) = match (*self, asked) {
            (Self::No, Asked::Interrupt) => (
                Self::Interrupted,
                Control::Interrupt,
                INTERRUPT_GRACE_MILLIS,
            ),
            (Self::No, Asked::Terminate | Asked::HangUp) => {
                (Self::Stopping, Control::Stop, END_GRACE_MILLIS)
            }
            (Self::Interrupted | Self::Stopping | Self::Killed | Self::GivenUp, _) => {
                (Self::Killed, Control::Kill, KILL_GRACE_MILLIS)
            }
        };
        *self = next;
        (control, Duration::from_millis(millis))
    }

    /// The wait is over and the run is not: what to say now, or nothing more.
    pub(super) fn waited(&mut self) -> Option<(Control, Duration)> {
        let (next, step) = match *self {
            Self::Interrupted => (
                Self::Stopping,
                Some((Control::Stop, Duration::from_millis(END_GRACE_MILLIS))),
            ),
            Self::No | Self::Stopping | Self::Killed | Self::GivenUp => (Self::GivenUp, None),
        };
        *self = next;
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_kills_whatever_came_first() {
        for first in [Asked::Interrupt, Asked::Terminate, Asked::HangUp] {
            let mut ending = Ending::default();
            assert_ne!(ending.asked(first).0, Control::Kill);
            assert_eq!(ending.asked(Asked::Interrupt).0, Control::Kill);
        }
    }

    #[test]
    fn an_unheeded_interrupt_becomes_a_stop_and_then_the_end_of_the_sandbox() {
        let mut ending = Ending::default();
        assert_eq!(ending.asked(Asked::Interrupt).0, Control::Interrupt);
        assert_eq!(ending.waited().map(|step| step.0), Some(Control::Stop));
        assert_eq!(ending.waited(), None);
        assert_eq!(ending, Ending::GivenUp);
    }

    #[test]
    fn what_was_ignored_is_read_from_the_kernels_mask() {
        assert_eq!(ignored("Name:\tx\nSigIgn:\t0000000000000001\n"), 1);
        assert_eq!(ignored("Name:\tx\n"), 0);
        assert_eq!(Asked::Interrupt.code(), 130);
        assert_eq!(Asked::Terminate.code(), 143);
    }
}
