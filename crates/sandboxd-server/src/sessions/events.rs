//! The activity log of one session: the last few operations, numbered, without contents or output.

use super::words::{Event, Happened};
use crate::limits::{EVENT_TARGET_CHARS_MAX, EVENTS_PER_SESSION};
use std::collections::VecDeque;
use std::time::Duration;

/// A ring of events.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    latest: u64,
    ring: VecDeque<Event>,
}

impl EventLog {
    /// Writes one; the oldest gives way.
    pub(super) fn push(&mut self, happened: Happened, at: Duration) {
        self.latest += 1;
        if self.ring.len() >= EVENTS_PER_SESSION {
            self.ring.pop_front();
        }
        self.ring.push_back(Event {
            seq: self.latest,
            at,
            op: happened.op,
            target: cut(happened.target),
            ok: happened.ok,
            detail: cut(happened.detail),
            took: happened.took,
        });
    }

    /// Those after `after`, and the highest number ever given.
    pub(super) fn after(&self, after: u64) -> (Vec<Event>, u64) {
        let rows = self.ring.iter().filter(|event| event.seq > after);
        (rows.cloned().collect(), self.latest)
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
