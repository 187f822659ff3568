//! Whether this host has memory for sandboxes that nobody has asked for yet.

use crate::backends::Room;
use crate::limits::{POOL_MEMORY_SCARCE_BYTES, POOL_MEMORY_SHORT_BYTES};

/// What the kernel says of its memory.
const MEMORY: &str = "/proc/meminfo";

/// As it is now. A host that does not say has enough.
pub(super) fn look() -> Room {
    let text = std::fs::read_to_string(MEMORY);
    text.ok()
        .and_then(|text| available(&text))
        .map_or(Room::Enough, of)
}

/// Bytes that programs could still have without the host having to swap, as the kernel reckons.
fn available(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

const fn of(available: u64) -> Room {
    if available < POOL_MEMORY_SHORT_BYTES {
        Room::Short
    } else if available < POOL_MEMORY_SCARCE_BYTES {
        Room::Scarce
    } else {
        Room::Enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_read() {
        let text = "MemTotal:        8024708 kB\nMemFree:          200 kB\nMemAvailable:     300000 kB\nBuffers: 1 kB\n";
        assert_eq!(available(text), Some(300_000 * 1024));
        for odd in [
            "",
            "MemAvailable: x kB\n",
            "MemAvailable: 5\n",
            "MemAvailable: 99999999999999999999 kB\n",
        ] {
            assert_eq!(available(odd), None, "{odd:?}");
        }
        // Of this host, too.
        let here = std::fs::read_to_string(MEMORY).unwrap();
        assert!(available(&here).is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn little_is_scarce_and_less_is_short() {
        assert_eq!(of(POOL_MEMORY_SCARCE_BYTES), Room::Enough);
        assert_eq!(of(POOL_MEMORY_SCARCE_BYTES - 1), Room::Scarce);
        assert_eq!(of(POOL_MEMORY_SHORT_BYTES), Room::Scarce);
        assert_eq!(of(POOL_MEMORY_SHORT_BYTES - 1), Room::Short);
        assert_eq!(of(0), Room::Short);
    }
}
