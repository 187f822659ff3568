//! Which processors a sandbox with a CPU ceiling runs on: as many as it may use, the least used ones.
//!
//! Programs size their thread pools by the processors they see. The quota alone would let them see all of the host's
//! and then hold them back; so a sandbox is placed on as many as its ceiling rounds up to. It is no wall (a program may
//! widen it); the quota is.

use std::collections::BTreeMap;

/// How many sandboxes have been placed on each processor.
#[derive(Debug)]
pub(super) struct Placement {
    load: BTreeMap<u16, u32>,
}

impl Placement {
    /// Over the processors that this process itself may use.
    pub(super) fn of_this_process() -> Self {
        let set = rustix::thread::sched_getaffinity(None);
        let cpus = (0..u16::MAX).filter(|cpu| {
            set.as_ref().is_ok_and(|set| {
                usize::from(*cpu) < rustix::thread::CpuSet::MAX_CPU && set.is_set(usize::from(*cpu))
            })
        });
        Self::over(cpus)
    }

    /// Over these.
    pub(super) fn over(cpus: impl IntoIterator<Item = u16>) -> Self {
        Self {
            load: cpus.into_iter().map(|cpu| (cpu, 0)).collect(),
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<u16> {
        self.load.keys().copied().collect()
    }

    /// The least used `count`, in order; none where that would be all of them.
    pub(super) fn take(&mut self, count: usize) -> Vec<u16> {
        if count == 0 || count >= self.load.len() {
            return Vec::new();
        }
        let mut by_load: Vec<(u32, u16)> =
            self.load.iter().map(|(cpu, load)| (*load, *cpu)).collect();
        by_load.sort_unstable();
        let mut chosen: Vec<u16> = by_load
            .into_iter()
            .take(count)
            .map(|(_, cpu)| cpu)
            .collect();
        chosen.sort_unstable();
        for cpu in &chosen {
            if let Some(load) = self.load.get_mut(cpu) {
                *load += 1;
            }
        }
        chosen
    }

    /// Gives them back.
    pub(super) fn give_back(&mut self, cpus: &[u16]) {
        for cpu in cpus {
            if let Some(load) = self.load.get_mut(cpu) {
                *load = load.saturating_sub(1);
            }
        }
    }
}

/// Numbers in the kernel's list form: `0-2,5`.
pub(super) fn cpu_list(cpus: &[u16]) -> String {
    let mut text = String::new();
    let mut rest = cpus;
    while let Some((&first, _)) = rest.split_first() {
        let run = rest
            .windows(2)
            .take_while(|pair| pair[0].checked_add(1) == Some(pair[1]))
            .count();
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&first.to_string());
        if let Some(last) = rest.get(run).filter(|_| run > 0) {
            text.push_str(&format!("-{last}"));
        }
        rest = rest.get(run + 1..).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sandboxes_are_spread_over_the_least_used() {
        let mut placement = Placement::over([0, 1, 2, 3]);
        let one = placement.take(1);
        let other = placement.take(1);
        assert_ne!(one, other);
        assert_eq!(placement.take(2), [2, 3]);
        placement.give_back(&one);
        assert_eq!(placement.take(1), one);
        assert_eq!(placement.take(4), [] as [u16; 0]);
    }

    #[test]
    fn processors_are_listed_as_the_kernel_does() {
        assert_eq!(cpu_list(&[0]), "0");
        assert_eq!(cpu_list(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(cpu_list(&[3, 7, 8]), "3,7-8");
        assert_eq!(cpu_list(&[]), "");
    }
}
