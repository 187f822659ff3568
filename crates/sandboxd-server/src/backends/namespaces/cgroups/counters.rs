//! What the kernel counts about one sandbox's ceilings, read through files that are held open.

use crate::backends::Hits;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Bytes of one such file: some short lines.
const FILE_BYTES_MAX: usize = 1024;

/// The files. One that this host does not have is not there.
#[derive(Debug)]
pub(in super::super) struct Counters {
    /// Kills for memory.
    pub(super) memory: Option<File>,
    /// Refused processes.
    pub(super) pids: Option<File>,
    /// CPU time, which the core of the second generation counts.
    pub(super) cpu: Option<File>,
}

impl Counters {
    /// How often the ceilings have bitten.
    pub(in super::super) fn hits(&self) -> Hits {
        Hits {
            memory_kills: read(self.memory.as_ref(), "oom_kill"),
            process_refusals: read(self.pids.as_ref(), "max"),
        }
    }

    /// CPU time that the sandbox has used.
    pub(in super::super) fn cpu_time(&self) -> Option<Duration> {
        read(self.cpu.as_ref(), "usage_usec").map(Duration::from_micros)
    }
}

fn read(file: Option<&File>, name: &str) -> Option<u64> {
    let mut bytes = [0; FILE_BYTES_MAX];
    // The files of a sandbox that is gone answer with an error.
    let length = file?.read_at(&mut bytes, 0).ok()?;
    field(std::str::from_utf8(bytes.get(..length)?).ok()?, name)
}

/// The value of the line with this name.
pub(super) fn field(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_both_generations_are_read_by_their_whole_names() {
        let first = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
        assert_eq!(field(first, "oom_kill"), Some(3));
        let second = "low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n";
        assert_eq!(field(second, "oom_kill"), Some(1));
        assert_eq!(field("max 4\n", "max"), Some(4));
        assert_eq!(field("", "max"), None);
    }

    #[test]
    fn a_file_is_read_anew_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pids.events");
        std::fs::write(&path, "max 1\n").unwrap();
        let counters = Counters {
            memory: None,
            pids: Some(File::open(&path).unwrap()),
            cpu: None,
        };
        assert_eq!(counters.hits().process_refusals, Some(1));
        std::fs::write(&path, "max 2\n").unwrap();
        assert_eq!(counters.hits().process_refusals, Some(2));
        assert_eq!(counters.hits().memory_kills, None);
    }
}
