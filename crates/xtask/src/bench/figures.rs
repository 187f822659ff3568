//! Samples, their medians and spread, and the table.

use std::time::Duration;

/// What a line is compared with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Limit {
    /// At most this many times the floor.
    TimesFloor(f64),
    /// At most this much, in the line's unit.
    AtMost(f64),
    /// Said, and not judged.
    None,
}

/// One figure, and what it stands beside.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// What was measured.
    pub(crate) what: &'static str,
    /// `ms`, `KiB` or `MiB`.
    pub(crate) unit: &'static str,
    /// Ours.
    pub(crate) ours: Samples,
    /// What the kernel alone takes, and what that was.
    pub(crate) floor: Option<(&'static str, Samples)>,
    /// What is asked of it.
    pub(crate) limit: Limit,
}

/// Numbers measured one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// One number that needs no repetition.
    pub(crate) fn one(value: f64) -> Self {
        Self(vec![value])
    }

    /// Adds a time, in milliseconds.
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e3);
    }

    /// Adds a number in the line's own unit.
    pub(crate) fn push_value(&mut self, value: f64) {
        self.0.push(value);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The smallest number that `share` hundredths of them do not exceed.
    pub(crate) fn percentile(&self, share: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len().saturating_sub(1) * share).div_ceil(100);
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    fn shown(&self) -> String {
        if self.count() == 1 {
            return format!("{:.2}", self.median());
        }
        let (low, high) = (self.percentile(0), self.percentile(90));
        format!("{:.3} [{low:.3}, {high:.3}]", self.median())
    }
}

impl Line {
    /// Ours over the floor.
    fn ratio(&self) -> Option<f64> {
        self.floor
            .as_ref()
            .map(|(_, floor)| self.ours.median() / floor.median())
    }

    /// Whether the limit is met; none where there is none.
    fn met(&self) -> Option<bool> {
        match self.limit {
            Limit::TimesFloor(times) => self.ratio().map(|ratio| ratio <= times),
            Limit::AtMost(most) => Some(self.ours.median() <= most),
            Limit::None => None,
        }
    }

    fn limit_shown(&self) -> String {
        let limit = match self.limit {
            Limit::TimesFloor(times) => format!("{times}x floor"),
            Limit::AtMost(most) => format!("{most} {}", self.unit),
            Limit::None => return String::new(),
        };
        let met = if self.met() == Some(true) {
            "met"
        } else {
            "NOT MET"
        };
        format!("{limit}: {met}")
    }

    /// The line for a machine.
    pub(crate) fn json(&self) -> serde_json::Value {
        let samples = |s: &Samples| {
            serde_json::json!({
                "median": s.median(), "min": s.percentile(0), "p90": s.percentile(90), "count": s.count(),
            })
        };
        serde_json::json!({
            "what": self.what,
            "unit": self.unit,
            "ours": samples(&self.ours),
            "floor": self.floor.as_ref().map(|(what, floor)| serde_json::json!({
                "what": what, "samples": samples(floor),
            })),
            "ratio": self.ratio(),
            "limit": self.limit_shown(),
            "met": self.met(),
        })
    }
}

/// All lines, in columns.
pub(crate) fn table(lines: &[Line]) -> String {
    let mut rows = vec![["", "ours", "floor", "ratio", "limit"].map(str::to_owned)];
    for line in lines {
        let floor = line.floor.as_ref();
        rows.push([
            format!("{} ({}, n={})", line.what, line.unit, line.ours.count()),
            line.ours.shown(),
            floor.map_or_else(String::new, |(what, floor)| {
                format!("{} {what}", floor.shown())
            }),
            line.ratio()
                .map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            line.limit_shown(),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            text.push_str(&format!("{cell:width$}  "));
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
    }

    fn line(ours: &[f64], floor: &[f64], limit: Limit) -> Line {
        let floor = Some(("bare", samples(floor)));
        Line {
            what: "a",
            unit: "ms",
            ours: samples(ours),
            floor,
            limit,
        }
    }

    #[test]
    fn medians_and_tenths() {
        let ten = samples(&[10.0, 1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0, 5.0, 11.0]);
        assert_eq!(
            (ten.percentile(0), ten.median(), ten.percentile(90)),
            (1.0, 6.0, 10.0)
        );
    }

    #[test]
    fn a_limit_is_met_or_not() {
        assert_eq!(
            line(&[6.0], &[2.0], Limit::TimesFloor(3.0)).met(),
            Some(true)
        );
        assert_eq!(
            line(&[6.1], &[2.0], Limit::TimesFloor(3.0)).met(),
            Some(false)
        );
        assert_eq!(line(&[0.4], &[2.0], Limit::AtMost(0.5)).met(), Some(true));
        assert_eq!(line(&[0.6], &[2.0], Limit::AtMost(0.5)).met(), Some(false));
        let text = table(&[line(&[6.1], &[2.0], Limit::TimesFloor(3.0))]);
        assert!(text.contains("NOT MET") && text.contains("3.05"), "{text}");
    }
}
