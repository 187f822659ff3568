//! Memory that only the start needed is given back: most of what the service takes when it is idle is its own program,
//! mapped from its file, and a good part of that is walked through once (the command line, the configuration, the
//! programs that are embedded, what the linker had to move). The pages are in the file; what is needed again is there again.

use crate::sys;

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

/// Gives back what is mapped of this program's file and was never changed. To be done once, when the service is ready.
pub(super) fn let_go_of_the_start() {
    let Ok(listed) = std::fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    let inside = let_go_of_the_start as *const () as usize;
    for mapping in of_the_program(&mappings(&listed), inside) {
        if let Err(error) = sys::let_go_of_pages(mapping.start, mapping.end - mapping.start) {
            tracing::debug!(%error, "pages of the start stay in memory");
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
        let code = let_go_of_the_start as *const () as usize;
        let chosen = of_the_program(&all, code);
        assert!(chosen.iter().any(|m| (m.start..m.end).contains(&code)));
        let_go_of_the_start();
        assert_eq!(mappings(&listed), all);
    }
}
