//! What the kernel says of this process. The parser takes text, so that it is tested with the files of other machines.

use std::fs;

/// Figures of this process now.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Process {
    /// In all its threads, in the kernel and outside.
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
    pub(super) threads: u64,
    /// Since the Unix epoch.
    pub(super) start_seconds: f64,
}

/// Looks; nothing where `/proc` is not there.
pub(super) fn look() -> Option<Process> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let open = fs::read_dir("/proc/self/fd").ok()?.count();
    let ticks = rustix::param::clock_ticks_per_second();
    let page = rustix::param::page_size();
    parse(&stat, &machine, &limits, ticks, page).map(|process| Process {
        // The descriptor that reads the directory is not one of ours.
        open_fds: u64::try_from(open.saturating_sub(1)).unwrap_or(u64::MAX),
        ..process
    })
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since 1970 and ticks since the start are far below 2^53"
)]
fn parse(stat: &str, machine: &str, limits: &str, ticks: u64, page: usize) -> Option<Process> {
    // The name is in parentheses and may hold anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Field 3 of proc(5) is the first here.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let seconds = |count: u64| count as f64 / ticks as f64;
    let boot: u64 = line_after(machine, "btime ")?.trim().parse().ok()?;
    let soft = line_after(limits, "Max open files")?;
    let soft = soft.split_whitespace().next()?;
    Some(Process {
        cpu_seconds: seconds(field(14)? + field(15)?),
        threads: field(20)?,
        start_seconds: boot as f64 + seconds(field(22)?),
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.saturating_mul(u64::try_from(page).ok()?),
        open_fds: 0,
        max_fds: soft.parse().unwrap_or(u64::MAX),
    })
}

fn line_after<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_whatever_the_process_is_called() {
        let stat = "4711 (a) b (c) S 1 4711 4711 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 7 0 1000 104857600 2560 184467";
        let machine = "cpu  1 2 3\nbtime 1790000000\nprocesses 5\n";
        let limits = "Limit    Soft Limit  Hard Limit  Units\nMax open files            1024                 524288               files\n";
        let found = parse(stat, machine, limits, 100, 4096).unwrap();
        let expected = Process {
            cpu_seconds: 4.0,
            resident_bytes: 10_485_760,
            virtual_bytes: 104_857_600,
            open_fds: 0,
            max_fds: 1024,
            threads: 7,
            start_seconds: 1_790_000_010.0,
        };
        assert_eq!(found, expected);
        assert_eq!(parse("4711 (a) S 1", machine, limits, 100, 4096), None);
        let unlimited = limits.replace("1024 ", "unlimited ");
        let found = parse(stat, machine, &unlimited, 100, 4096).unwrap();
        assert_eq!(found.max_fds, u64::MAX);
    }

    #[test]
    fn this_process_has_figures() {
        let now = look().unwrap();
        assert!(now.resident_bytes > 0 && now.open_fds > 2 && now.threads > 0);
        assert!(now.start_seconds > 1_000_000_000.0);
    }
}
