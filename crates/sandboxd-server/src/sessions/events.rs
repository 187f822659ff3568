//! The activity log of one session: the last few operations, numbered, without contents or output.
//!
//! A log has a *tail* in memory, which the journal writes down within a moment. Once that is done a session that sleeps
//! keeps no row in memory; what is asked for is then read from the ledger.

use super::words::{Event, Happened};
use crate::limits::{EVENT_NUMBERS_AHEAD, EVENT_TARGET_CHARS_MAX, EVENTS_PER_SESSION};
use std::collections::VecDeque;
use std::time::Duration;

/// The rows that are in memory, and the numbers that were given.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    /// The highest number ever given.
    latest: u64,
    /// The highest number that is written down.
    written: u64,
    tail: VecDeque<Event>,
}

impl EventLog {
    /// One whose rows, up to this number, are written down.
    pub(super) fn written_to(latest: u64) -> Self {
        Self {
            latest,
            written: latest,
            tail: VecDeque::new(),
        }
    }

    /// Writes one; the oldest gives way. Where the ledger is so far behind that a crash could let a number be given
    /// twice, nothing is written.
    pub(super) fn push(&mut self, happened: Happened, at: Duration) {
        if self.latest - self.written >= EVENT_NUMBERS_AHEAD {
            return;
        }
        self.latest += 1;
        if self.tail.len() >= EVENTS_PER_SESSION {
            self.tail.pop_front();
        }
        self.tail.push_back(Event {
            seq: self.latest,
            at,
            op: happened.op.into(),
            target: cut(happened.target),
            ok: happened.ok,
            detail: cut(happened.detail),
            took: happened.took,
        });
    }

    /// The rows in memory after `after`, and the highest number ever given.
    pub(super) fn after(&self, after: u64) -> (Vec<Event>, u64) {
        let rows = self.tail.iter().filter(|event| event.seq > after);
        (rows.cloned().collect(), self.latest)
    }

    /// The first number of what is in memory; what is before it, if it is anywhere, is in the ledger.
    pub(super) fn first_in_memory(&self) -> u64 {
        self.tail.front().map_or(self.latest + 1, |event| event.seq)
    }

    /// The rows that are not written down yet.
    pub(super) fn unwritten(&self) -> Vec<Event> {
        self.after(self.written).0
    }

    /// Everything up to this number is written down now.
    pub(super) fn wrote(&mut self, number: u64) {
        self.written = self.written.max(number);
    }

    /// Keeps nothing in memory that is written down.
    pub(super) fn shed(&mut self) {
        let written = self.written;
        self.tail.retain(|event| event.seq > written);
        self.tail.shrink_to_fit();
    }
}

fn cut(text: String) -> String {
    match text.char_indices().nth(EVENT_TARGET_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Program and arguments as a shell would need them quoted.
pub(super) fn shell_quoted(argv: &[String]) -> String {
    let mut line = String::new();
    for argument in argv {
        // What is past the cut is never shown.
        if line.len() > EVENT_TARGET_CHARS_MAX * 4 {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"@%+=:,./-_".contains(&b);
        if !argument.is_empty() && argument.bytes().all(plain) {
            line.push_str(argument);
        } else {
            line.push('\'');
            line.push_str(&argument.replace('\'', r#"'"'"'"#));
            line.push('\'');
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn happened(target: &str) -> Happened {
        Happened {
            op: "run",
            target: target.to_owned(),
            ok: true,
            detail: String::new(),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn the_oldest_gives_way_and_no_number_comes_twice() {
        let mut log = EventLog::default();
        assert_eq!(log.after(0).1, 0);
        for n in 0..EVENTS_PER_SESSION + 5 {
            log.push(happened(&n.to_string()), Duration::from_secs(1));
        }
        let (rows, latest) = log.after(0);
        assert_eq!(rows.len(), EVENTS_PER_SESSION);
        assert_eq!(latest, EVENTS_PER_SESSION as u64 + 5);
        assert_eq!(rows[0].seq, 6);
        assert_eq!(log.after(latest - 1).0.len(), 1);
        assert!(log.after(latest).0.is_empty());
    }

    #[test]
    fn what_is_written_down_is_shed_and_numbers_go_on() {
        let mut log = EventLog::written_to(40);
        assert_eq!((log.after(0).0.len(), log.after(0).1), (0, 40));
        assert_eq!(log.first_in_memory(), 41);
        log.push(happened("a"), Duration::ZERO);
        log.push(happened("b"), Duration::ZERO);
        assert_eq!(log.unwritten().len(), 2);
        log.wrote(41);
        log.shed();
        assert_eq!(log.first_in_memory(), 42);
        assert_eq!(log.unwritten()[0].seq, 42);
        log.wrote(42);
        log.shed();
        assert_eq!((log.first_in_memory(), log.after(0).1), (43, 42));
    }

    #[test]
    fn no_number_is_given_that_a_crash_could_give_again() {
        let mut log = EventLog::default();
        for _ in 0..EVENT_NUMBERS_AHEAD + 10 {
            log.push(happened("x"), Duration::ZERO);
        }
        assert_eq!(log.after(0).1, EVENT_NUMBERS_AHEAD);
        log.wrote(1);
        log.push(happened("x"), Duration::ZERO);
        assert_eq!(log.after(0).1, EVENT_NUMBERS_AHEAD + 1);
    }

    #[test]
    fn a_long_target_is_cut_between_characters() {
        let mut log = EventLog::default();
        log.push(
            happened(&"ä".repeat(EVENT_TARGET_CHARS_MAX)),
            Duration::ZERO,
        );
        log.push(
            happened(&"ä".repeat(EVENT_TARGET_CHARS_MAX + 1)),
            Duration::ZERO,
        );
        let (rows, _) = log.after(0);
        assert_eq!(rows[0].target.chars().count(), EVENT_TARGET_CHARS_MAX);
        assert_eq!(rows[1].target.chars().count(), EVENT_TARGET_CHARS_MAX + 1);
        assert!(rows[1].target.ends_with('…'));
    }

    #[test]
    fn arguments_are_quoted_as_a_shell_needs_them() {
        let quoted =
            |argv: &[&str]| shell_quoted(&argv.iter().map(|a| (*a).to_owned()).collect::<Vec<_>>());
        assert_eq!(quoted(&["ls", "-la", "a b", ""]), "ls -la 'a b' ''");
        assert_eq!(quoted(&["echo", "don't"]), r#"echo 'don'"'"'t'"#);
        assert!(quoted(&["x".repeat(1_000_000).as_str(), "y"]).len() < 1_000_010);
    }
}
