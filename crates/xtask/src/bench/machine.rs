//! What is measured on, and whether it was quiet enough to judge by.

use super::figures::{Samples, shown};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::fs;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How much of the machine others may use while we do nothing.
const BUSY_SHARE_MAX: f64 = 0.10;
/// How much of the time that we wanted another machine on the same hardware may take.
const STEAL_SHARE_MAX: f64 = 0.02;
/// How much longer the ruler may take in its slowest tenth than at its fastest.
const RULER_SPREAD_MAX: f64 = 1.35;
/// How long the machine is watched before a suite.
const WATCHED: Duration = Duration::from_millis(400);
/// Steps of the ruler's work: about a fifth of a millisecond.
const RULER_STEPS: u32 = 60_000;
/// Rests are not equally long, and whoever follows a long one would find a processor that has to wake first.
const WARM: Duration = Duration::from_millis(2);

/// The machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub(crate) processor: String,
    /// How many of it.
    pub(crate) processors: usize,
    /// Memory, in GiB.
    pub(crate) memory_gib: String,
    /// The kernel's release.
    pub(crate) kernel: String,
    /// The system's name.
    pub(crate) system: String,
    /// How limits are set: version 1 or 2 of cgroups.
    pub(crate) cgroups: String,
}

impl Machine {
    /// This one.
    pub(crate) fn here() -> Self {
        let value = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once([':', '=']));
            value.map_or_else(String::new, |(_, value)| {
                value.trim().trim_matches('"').to_owned()
            })
        };
        let memory = value("/proc/meminfo", "MemTotal");
        let memory_kib: f64 = memory
            .split(' ')
            .next()
            .and_then(|kib| kib.parse().ok())
            .unwrap_or(f64::NAN);
        let second = fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false);
        Self {
            processor: value("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: shown(memory_kib / 1024.0 / 1024.0),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            system: value("/etc/os-release", "PRETTY_NAME"),
            cgroups: if second { "v2" } else { "v1" }.to_owned(),
        }
    }
}

/// The machine's load, as the kernel says it.
pub(crate) fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The same small work again and again: what its times differ by is what others do to the machine.
#[derive(Debug, Default)]
pub(crate) struct Ruler(RefCell<Samples>);

impl Ruler {
    /// Does it once.
    pub(crate) fn measure(&self) {
        Self::warm();
        let began = Instant::now();
        work();
        self.0.borrow_mut().push(began.elapsed());
    }

    /// Gives the processor something to do, so that everybody's turn begins on one that is awake.
    pub(crate) fn warm() {
        let began = Instant::now();
        while began.elapsed() < WARM {
            work();
        }
    }

    /// The slowest tenth's beginning over the fastest.
    fn spread(&self) -> f64 {
        let samples = self.0.borrow();
        samples.percentile(90) / samples.percentile(0)
    }
}

/// The ruler's work.
fn work() {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for _ in 0..RULER_STEPS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        black_box(state);
    }
}

/// Processor time since the start, in ticks.
#[derive(Debug, Clone, Copy)]
struct Ticks {
    idle: f64,
    stolen: f64,
    all: f64,
}

impl Ticks {
    fn now() -> Self {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        let first = text.lines().next().unwrap_or_default();
        let numbers = first.split_whitespace().skip(1);
        let numbers: Vec<f64> = numbers.filter_map(|n| n.parse().ok()).collect();
        let at = |index: usize| numbers.get(index).copied().unwrap_or(0.0);
        Self {
            idle: at(3) + at(4),
            stolen: at(7),
            // Guests' time, which follows, is in the first two already.
            all: numbers.iter().take(8).sum(),
        }
    }

    fn share(self, since: Self, of: fn(Self) -> f64) -> f64 {
        let all = self.all - since.all;
        if all > 0.0 {
            (of(self) - of(since)) / all
        } else {
            0.0
        }
    }
}

/// Seconds that all processors together have been busy since the start.
pub(crate) fn busy_seconds() -> f64 {
    let ticks = Ticks::now();
    #[expect(clippy::cast_precision_loss, reason = "about a hundred")]
    let per_second = rustix::param::clock_ticks_per_second() as f64;
    (ticks.all - ticks.idle) / per_second
}

/// Watches the machine for as long as a suite runs.
#[derive(Debug)]
pub(crate) struct Watch {
    busy_before: f64,
    began: Ticks,
    /// The ruler for this suite's rounds.
    pub(crate) ruler: Ruler,
}

/// How quiet it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quiet {
    /// What others used before the suite began, of all processors.
    pub(crate) busy_before: f64,
    /// What another machine took, of all time.
    pub(crate) stolen: f64,
    /// The ruler's slowest tenth over its fastest; none where there were no rounds.
    pub(crate) ruler_spread: Option<f64>,
    /// Load at the end.
    pub(crate) load: String,
}

impl Watch {
    /// Looks first what the machine does without us.
    pub(crate) fn begin() -> Self {
        let before = Ticks::now();
        std::thread::sleep(WATCHED);
        let began = Ticks::now();
        Self {
            busy_before: 1.0 - began.share(before, |ticks| ticks.idle),
            began,
            ruler: Ruler::default(),
        }
    }

    /// What came out.
    pub(crate) fn end(&self) -> Quiet {
        let spread = self.ruler.spread();
        Quiet {
            busy_before: self.busy_before,
            stolen: Ticks::now().share(self.began, |ticks| ticks.stolen),
            ruler_spread: spread.is_finite().then_some(spread),
            load: load(),
        }
    }
}

impl Quiet {
    /// Why this is no ground to judge on; none where it is one.
    pub(crate) fn disturbed(&self) -> Option<String> {
        let mut why = Vec::new();
        if self.busy_before > BUSY_SHARE_MAX {
            why.push(format!(
                "others used {:.0} % of the machine before it began",
                self.busy_before * 100.0
            ));
        }
        if self.stolen > STEAL_SHARE_MAX {
            why.push(format!(
                "{:.1} % of the time was stolen",
                self.stolen * 100.0
            ));
        }
        if let Some(spread) = self.ruler_spread.filter(|s| *s > RULER_SPREAD_MAX) {
            why.push(format!(
                "the same work took {spread:.2} times as long in its slowest tenth as at its fastest"
            ));
        }
        (!why.is_empty()).then(|| why.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_others_use_is_no_ground_to_judge_on() {
        let quiet = Quiet {
            busy_before: 0.02,
            stolen: 0.0,
            ruler_spread: Some(1.1),
            load: String::new(),
        };
        assert_eq!(quiet.disturbed(), None);
        for disturbed in [
            Quiet {
                busy_before: 0.5,
                ..quiet.clone()
            },
            Quiet {
                stolen: 0.1,
                ..quiet.clone()
            },
            Quiet {
                ruler_spread: Some(2.0),
                ..quiet.clone()
            },
        ] {
            assert!(disturbed.disturbed().is_some(), "{disturbed:?}");
        }
    }
}
