//! Samples, what is said of them, and what is asked of them.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The unit of what is a slope, and no amount.
pub(crate) const EXPONENT: &str = "exponent";

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

    /// Adds a number in the figure's own unit.
    pub(crate) fn push_value(&mut self, value: f64) {
        self.0.push(value);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Takes over the others.
    pub(crate) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The smallest number that `share` hundredths of them do not exceed.
    pub(crate) fn percentile(&self, share: usize) -> f64 {
        self.thousandth(share * 10)
    }

    fn thousandth(&self, share: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = (sorted.len().saturating_sub(1) * share).div_ceil(1_000);
        sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// The median.
    pub(crate) fn median(&self) -> f64 {
        self.percentile(50)
    }

    /// How far the median may be off, as a part of itself: half the width of its 95 % interval by order statistics, which
    /// asks nothing of how the samples are spread. None while there are too few.
    pub(crate) fn median_uncertainty(&self) -> Option<f64> {
        let count = self.0.len();
        if count < 8 {
            return None;
        }
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        // The rank of the median is binomial: its standard deviation is half the root of the count.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a small positive number"
        )]
        let reach = (0.98 * (count as f64).sqrt()).ceil() as usize;
        let middle = count / 2;
        let low = sorted[middle.saturating_sub(reach)];
        let high = sorted[(middle + reach).min(count - 1)];
        Some((high - low) / 2.0 / sorted[middle])
    }

    /// What is kept of them.
    pub(crate) fn summary(&self) -> Summary {
        Summary {
            median: self.median(),
            min: self.percentile(0),
            p90: self.percentile(90),
            p99: self.percentile(99),
            count: self.0.len(),
        }
    }
}

/// What is kept of samples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// The median.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// What nine tenths do not exceed.
    pub(crate) p90: f64,
    /// What all but a hundredth do not exceed.
    pub(crate) p99: f64,
    /// How many samples.
    pub(crate) count: usize,
}

/// One who was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Ours, a peer, or a floor.
    pub(crate) who: String,
    /// What came out.
    pub(crate) figures: Summary,
}

/// What is asked of the first row of a figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Target {
    /// At most this many times the named row.
    TimesOf(f64, String),
    /// The named row is at least this many times as large.
    SmallerBy(f64, String),
    /// At least this many times the named row.
    LargerBy(f64, String),
    /// At most this much, in the figure's unit.
    AtMost(f64),
    /// At least this much, in the figure's unit.
    AtLeast(f64),
}

impl Target {
    /// In words.
    pub(crate) fn words(&self, unit: &str) -> String {
        match self {
            Self::TimesOf(times, of) => format!("at most {times} times {of}"),
            Self::SmallerBy(times, than) => format!("{than} at least {times} times as much"),
            Self::LargerBy(times, than) => format!("at least {times} times {than}"),
            Self::AtMost(most) => format!("at most {most} {unit}"),
            Self::AtLeast(least) => format!("at least {least} {unit}"),
        }
    }
}

/// One thing measured: ours first, beside others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) what: String,
    /// `ms`, `KiB`, `runs/s`, …
    pub(crate) unit: String,
    /// Ours, then who it stands beside.
    pub(crate) rows: Vec<Row>,
    /// What is asked of ours.
    pub(crate) targets: Vec<Target>,
}

impl Figure {
    /// Ours alone.
    pub(crate) fn new(what: &str, unit: &str, ours: &Samples) -> Self {
        Self {
            what: what.to_owned(),
            unit: unit.to_owned(),
            rows: Vec::new(),
            targets: Vec::new(),
        }
        .beside("sandboxd", ours)
    }

    /// And another.
    #[must_use]
    pub(crate) fn beside(mut self, who: &str, samples: &Samples) -> Self {
        self.rows.push(Row {
            who: who.to_owned(),
            figures: samples.summary(),
        });
        self
    }

    /// And what is asked.
    #[must_use]
    pub(crate) fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }

    /// Ours.
    pub(crate) fn ours(&self) -> f64 {
        self.rows.first().map_or(f64::NAN, |row| row.figures.median)
    }

    /// A row's median over ours, where that means something: not for exponents.
    pub(crate) fn ratio(&self, row: &Row) -> f64 {
        if self.unit == EXPONENT {
            return f64::NAN;
        }
        row.figures.median / self.ours()
    }

    /// How much a target asks of ours, in the figure's unit; none where who it speaks of was not measured.
    pub(crate) fn asked(&self, target: &Target) -> Option<f64> {
        let of = |who: &str| {
            let row = self.rows.iter().find(|row| row.who == who);
            row.map(|row| row.figures.median)
        };
        Some(match target {
            Target::TimesOf(times, who) | Target::LargerBy(times, who) => times * of(who)?,
            Target::SmallerBy(times, than) => of(than)? / times,
            Target::AtMost(much) | Target::AtLeast(much) => *much,
        })
    }

    /// Whether a target is met; none where who it speaks of was not measured.
    pub(crate) fn met(&self, target: &Target) -> Option<bool> {
        let asked = self.asked(target)?;
        Some(match target {
            Target::TimesOf(..) | Target::SmallerBy(..) | Target::AtMost(_) => self.ours() <= asked,
            Target::LargerBy(..) | Target::AtLeast(_) => self.ours() >= asked,
        })
    }

    /// Who takes least of those beside ours, where even that is more than a target asks.
    pub(crate) fn none_below(&self, target: &Target) -> Option<&Row> {
        if !matches!(target, Target::TimesOf(..) | Target::SmallerBy(..)) {
            return None;
        }
        let others = self.rows.iter().skip(1);
        let least = others.min_by(|a, b| a.figures.median.total_cmp(&b.figures.median))?;
        (least.figures.median > self.asked(target)?).then_some(least)
    }
}

/// Numbers over numbers, to be drawn.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Curves {
    /// What they show.
    pub(crate) title: String,
    /// Below, and whether its scale is logarithmic.
    pub(crate) x: (String, bool),
    /// At the side, and whether its scale is logarithmic.
    pub(crate) y: (String, bool),
    /// Each with its name.
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// What a suite found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Findings {
    /// What was measured.
    pub(crate) figures: Vec<Figure>,
    /// What is to be drawn.
    pub(crate) curves: Vec<Curves>,
    /// What has to be said: peers that could not be had, limits of the method, where time goes.
    pub(crate) notes: Vec<String>,
}

impl Findings {
    /// Adds a figure.
    pub(crate) fn figure(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    /// Adds a note, once.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// A number with three digits that mean something.
pub(crate) fn shown(value: f64) -> String {
    let digits = match value.abs() {
        v if !v.is_finite() => return "-".to_owned(),
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A count as a number to reckon with.
#[expect(clippy::cast_precision_loss, reason = "counts here are small")]
pub(crate) fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
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
    fn more_samples_of_a_kind_make_the_median_surer() {
        let few: Vec<f64> = (0..16).map(|i| 10.0 + f64::from(i % 4)).collect();
        let many: Vec<f64> = (0..1_600)
            .map(|i| 10.0 + f64::from(i % 400) / 100.0)
            .collect();
        let (few, many) = (samples(&few), samples(&many));
        assert!(few.median_uncertainty() > many.median_uncertainty());
        assert_eq!(samples(&[1.0; 7]).median_uncertainty(), None);
        assert_eq!(samples(&[1.0; 8]).median_uncertainty(), Some(0.0));
    }

    #[test]
    fn a_target_is_met_or_not_or_cannot_be_judged() {
        let figure = |ours: f64| {
            Figure::new("a", "ms", &Samples::one(ours)).beside("bare", &Samples::one(2.0))
        };
        let bare = "bare".to_owned();
        let times = Target::TimesOf(3.0, bare.clone());
        assert_eq!(figure(6.0).met(&times), Some(true));
        assert_eq!(figure(6.1).met(&times), Some(false));
        let smaller = Target::SmallerBy(2.0, bare.clone());
        assert_eq!(figure(1.0).met(&smaller), Some(true));
        assert_eq!(figure(1.1).met(&smaller), Some(false));
        let larger = Target::LargerBy(0.5, bare);
        assert_eq!(figure(1.0).met(&larger), Some(true));
        assert_eq!(figure(0.9).met(&larger), Some(false));
        assert_eq!(figure(0.5).met(&Target::AtMost(0.5)), Some(true));
        assert_eq!(figure(0.6).met(&Target::AtMost(0.5)), Some(false));
        assert_eq!(figure(0.6).met(&Target::AtLeast(0.6)), Some(true));
        assert_eq!(figure(0.6).met(&Target::AtLeast(0.7)), Some(false));
        let absent = Target::TimesOf(3.0, "absent".to_owned());
        assert_eq!(figure(6.0).met(&absent), None);
    }

    #[test]
    fn three_digits_are_shown() {
        for (value, text) in [
            (1234.5, "1234"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.1234, "0.123"),
        ] {
            assert_eq!(shown(value), text);
        }
        assert_eq!(shown(f64::NAN), "-");
    }
}
