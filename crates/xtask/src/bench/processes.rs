//! What the kernel says of the daemon's process and of those below it.

use anyhow::Context as _;
use std::fs;

/// What one process holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    /// Resident.
    pub(crate) rss_kib: f64,
    /// Resident, what is shared divided by those who share it.
    pub(crate) pss_kib: f64,
    /// Nobody else's.
    pub(crate) private_kib: f64,
}

impl Memory {
    /// As the kernel says it.
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let field = |name: &str| -> anyhow::Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let value = line.and_then(|line| line.split_whitespace().next());
            Ok(value
                .with_context(|| format!("{path} has no {name}"))?
                .parse()?)
        };
        let private_kib = field("Private_Clean:")? + field("Private_Dirty:")?;
        Ok(Self {
            rss_kib: field("Rss:")?,
            pss_kib: field("Pss:")?,
            private_kib,
        })
    }
}

/// The processes below `pid` that are number 1 in a pid namespace of their own.
pub(crate) fn guests(pid: u32) -> anyhow::Result<Vec<u32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(found) = entry?.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let status = fs::read_to_string(format!("/proc/{found}/status")).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let parent = field("PPid:").and_then(|text| text.trim().parse::<u32>().ok());
        let numbers: Vec<&str> = field("NSpid:")
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let first = numbers.len() > 1 && numbers.last() == Some(&"1");
        parents.extend(parent.map(|parent| (found, parent, first)));
    }
    let (mut below, mut guests) = (vec![pid], Vec::new());
    while let Some(above) = below.pop() {
        for &(found, _, first) in parents.iter().filter(|(_, parent, _)| *parent == above) {
            below.push(found);
            if first {
                guests.push(found);
            }
        }
    }
    Ok(guests)
}
