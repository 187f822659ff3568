//! Memory that is not needed is given back: after the start, and whenever there was work and then none. Most of what the
//! service takes is its own program, mapped from its file, and much of that is walked through once (the command line, the
//! configuration, the programs that are embedded) or seldom (an open, a build). The pages are in the file; what is needed
//! again is there again. What the allocator holds without need goes with it.

use crate::limits::{QUIET_LOOK_SECONDS, QUIET_MILLIS_MAX, WORKED_MILLIS_MIN};
use crate::sys;
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// A part of this process's memory, as the kernel lists it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Mapping {
    start: usize,
    end: usize,
    permissions: String,
    /// Device and inode of the file that it is of.
    file: (String, String),
    /// How many kilobytes are in pages that are not the file's, in memory and swapped out; none where that is not said.
    anonymous: Option<u64>,
    swapped: Option<u64>,
}

/// Gives back what the start took, and then what work took each time that it is over. Ends with the service only.
pub(super) async fn keep_small() {
    let mut work = Work::default();
    let_go();
    work.let_go_at(processor_time());
    let mut looks = interval(Duration::from_secs(QUIET_LOOK_SECONDS));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        if work.is_over(processor_time()) {
            let_go();
            work.let_go_at(processor_time());
        }
    }
}

/// What this process has worked, by its processor time: that counts requests, builds and clean-ups alike.
#[derive(Debug, Default)]
struct Work {
    looked: Duration,
    let_go: Duration,
}

impl Work {
    /// Whether there was work since memory was last given back, and none since the last look.
    fn is_over(&mut self, now: Duration) -> bool {
        let lately = now.saturating_sub(self.looked);
        self.looked = now;
        let in_all = now.saturating_sub(self.let_go);
        lately <= Duration::from_millis(QUIET_MILLIS_MAX)
            && in_all >= Duration::from_millis(WORKED_MILLIS_MIN)
    }

    fn let_go_at(&mut self, now: Duration) {
        (self.looked, self.let_go) = (now, now);
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Gives back what is mapped of this program's file and was never changed, and what the allocator can do without.
fn let_go() {
    sys::trim_heap();
    let Ok(listed) = std::fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    let inside = let_go as *const () as usize;
    for mapping in of_the_program(&mappings(&listed), inside) {
        if let Err(error) = sys::let_go_of_pages(mapping.start, mapping.end - mapping.start) {
            tracing::debug!(%error, "pages of the program stay in memory");
        }
    }
}

/// The parts that are of the same file as the code at this address, may not be written to, and have not been: what the
/// linker moves is closed to writing afterwards, but has pages of its own.
fn of_the_program(all: &[Mapping], code: usize) -> Vec<&Mapping> {
    let Some(own) = all.iter().find(|m| (m.start..m.end).contains(&code)) else {
        return Vec::new();
    };
    let untouched = |m: &&Mapping| {
        m.file == own.file && matches!(&*m.permissions, "r--p" | "r-xp") && m.has_no_own_pages()
    };
    all.iter().filter(untouched).collect()
}

impl Mapping {
    fn has_no_own_pages(&self) -> bool {
        (self.anonymous, self.swapped) == (Some(0), Some(0))
    }
}

/// What `/proc/self/smaps` says.
fn mappings(listed: &str) -> Vec<Mapping> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in listed.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if let Some(name) = first.strip_suffix(':') {
            let kilobytes = words.next().and_then(|word| word.parse().ok());
            match (name, all.last_mut()) {
                ("Anonymous", Some(last)) => last.anonymous = kilobytes,
                ("Swap", Some(last)) => last.swapped = kilobytes,
                _ => {}
            }
            continue;
        }
        let bounds = first.split_once('-');
        let bound = |text| usize::from_str_radix(text, 16).ok();
        let Some((start, end)) = bounds.and_then(|(from, to)| Some((bound(from)?, bound(to)?)))
        else {
            continue;
        };
        let mut word = || words.next().unwrap_or_default().to_owned();
        let permissions = word();
        let _offset = word();
        all.push(Mapping {
            start,
            end,
            permissions,
            file: (word(), word()),
            anonymous: None,
            swapped: None,
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(parts: &[(&str, &str, &str)]) -> String {
        parts
            .iter()
            .fold(String::new(), |text, (head, anonymous, swapped)| {
                text + &format!("{head} /usr/bin/sandboxd\nSize: 8 kB\n{anonymous}\n{swapped}\n")
            })
    }

    #[test]
    fn only_what_is_as_in_the_programs_file_is_let_go_of() {
        let (clean, none) = ("Anonymous:             0 kB", "Swap:                  0 kB");
        let text = listed(&[
            ("1000-3000 r--p 00000000 08:01 7", clean, none),
            ("3000-5000 r-xp 00002000 08:01 7", clean, none),
            // Moved by the linker; the same, swapped out; and one of which less is said.
            ("5000-6000 r--p 00004000 08:01 7", "Anonymous: 4 kB", none),
            ("6000-7000 r--p 00004000 08:01 7", clean, "Swap: 4 kB"),
            ("7000-8000 r--p 00004000 08:01 7", clean, ""),
            ("8000-9000 rw-p 00005000 08:01 7", clean, none),
            ("9000-a000 r--s 00005000 08:01 7", clean, none),
            // Another file, and the same number on another device.
            ("a000-b000 r-xp 00000000 08:01 8", clean, none),
            ("b000-c000 r-xp 00000000 08:02 7", clean, none),
        ]);
        let all = mappings(&text);
        assert_eq!(all.len(), 9);
        let starts = |code| -> Vec<usize> {
            let chosen = of_the_program(&all, code);
            chosen.iter().map(|mapping| mapping.start).collect()
        };
        assert_eq!(starts(0x3500), [0x1000, 0x3000]);
        assert_eq!(starts(0xf000), [0_usize; 0]);
    }

    #[test]
    fn a_program_finds_its_own_code_and_goes_on_without_its_pages() {
        let listed = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let all = mappings(&listed);
        let code = let_go as *const () as usize;
        let chosen = of_the_program(&all, code);
        assert!(chosen.iter().any(|m| (m.start..m.end).contains(&code)));
        let_go();
        assert_eq!(mappings(&listed), all);
    }

    #[test]
    fn memory_is_given_back_once_after_work_and_not_while_there_is_any() {
        let at = Duration::from_millis;
        let mut work = Work::default();
        work.let_go_at(at(1_000));
        // Nothing was done, and then hardly anything.
        assert!(!work.is_over(at(1_000)));
        assert!(!work.is_over(at(1_000 + QUIET_MILLIS_MAX)));
        // At work, still at work, and done with it.
        let begun = 1_000 + WORKED_MILLIS_MIN;
        assert!(!work.is_over(at(begun)));
        assert!(!work.is_over(at(begun + QUIET_MILLIS_MAX + 1)));
        let done = begun + QUIET_MILLIS_MAX + 2;
        assert!(work.is_over(at(done)));
        work.let_go_at(at(done + 1));
        assert!(!work.is_over(at(done + 2)));
    }
}
