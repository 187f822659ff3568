//! Which numbers projects of quotas may have.

use crate::limits::{PROJECT_ID_FIRST, PROJECT_ID_LAST};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A range of project numbers that is the service's alone on its file systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProjectIds {
    first: u32,
    last: u32,
}

impl ProjectIds {
    /// As a range.
    #[must_use]
    pub const fn range(self) -> RangeInclusive<u32> {
        self.first..=self.last
    }

    /// Whether a number is one of them.
    #[must_use]
    pub const fn has(self, id: u32) -> bool {
        self.first <= id && id <= self.last
    }
}

impl Default for ProjectIds {
    fn default() -> Self {
        Self {
            first: PROJECT_ID_FIRST,
            last: PROJECT_ID_LAST,
        }
    }
}

impl fmt::Display for ProjectIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl FromStr for ProjectIds {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected two numbers, such as 1900000000-1900065535";
        let (first, last) = text.split_once('-').ok_or(EXPECTED)?;
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| EXPECTED);
        let ids = Self {
            first: number(first)?,
            last: number(last)?,
        };
        // 0 is the number of files that have none, and the last one is the kernel's for none at all.
        if ids.first == 0 || ids.last == u32::MAX {
            return Err("expected numbers from 1 to 4294967294");
        }
        if ids.first > ids.last {
            return Err("expected the lower number first");
        }
        Ok(ids)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_printed() {
        let ids: ProjectIds = " 7 - 9".parse().unwrap();
        assert_eq!(ids.to_string(), "7-9");
        assert_eq!(ids.range(), 7..=9);
        assert!(ids.has(7) && ids.has(9) && !ids.has(6) && !ids.has(10));
        let default = ProjectIds::default();
        assert_eq!(default.to_string().parse(), Ok(default));
        assert_eq!(
            "5-5".parse::<ProjectIds>().map(|ids| ids.range()),
            Ok(5..=5)
        );
    }

    #[test]
    fn what_is_no_range_is_refused() {
        for text in [
            "",
            "7",
            "7-",
            "-7",
            "a-b",
            "9-7",
            "0-7",
            "7-4294967295",
            "7-99999999999",
        ] {
            assert!(text.parse::<ProjectIds>().is_err(), "{text:?}");
        }
    }
}
