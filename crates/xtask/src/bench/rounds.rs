//! Rounds in which everybody does the same thing once, one after the other, so that what the machine does beside falls on
//! all of them alike.

use super::figures::{Figure, Findings, Samples};
use super::machine::Ruler;
use anyhow::Context;
use std::time::{Duration, Instant};

/// Rounds that do not count.
const WARM_UP_ROUNDS: u32 = 3;
/// Nobody is warmed up longer.
const WARM_UP_MAX: Duration = Duration::from_millis(500);
/// Rounds that there are in any case.
const ROUNDS_LEAST: usize = 3;
/// Rounds before a median is believed to be stable.
const ROUNDS_MIN: usize = 12;
/// A median that may be off by at most this part of itself is stable.
const UNCERTAINTY_MAX: f64 = 0.02;
/// Samples of a slow contestant that there are at least.
const SAMPLES_MIN: usize = 7;
/// Nobody's cleaning up is waited for longer.
const REST_MAX: Duration = Duration::from_millis(300);

/// How much is spent on a race.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Rounds at most; the rule for stable medians may stop before.
    pub(crate) rounds_max: usize,
    /// Time at most, but for the smallest number of samples.
    pub(crate) time_max: Duration,
    /// Between two turns at least, so that one's cleaning up does not fall into the next one's time.
    pub(crate) pause: Duration,
}

impl Effort {
    /// The pause after a turn that took so long with everything around it: an engine goes on with clearing away a
    /// container after it has said that it is gone, and takes about as long for that as for all else.
    fn rest_after(&self, took: Duration) -> Duration {
        if self.pause.is_zero() {
            return Duration::ZERO;
        }
        took.min(REST_MAX).max(self.pause)
    }
}

/// Does the thing once, and says how long it took.
type Turn<'a> = Box<dyn FnMut() -> anyhow::Result<Duration> + 'a>;

struct Contestant<'a> {
    who: String,
    turn: Turn<'a>,
    ours: bool,
    samples: Samples,
    /// Takes part in every round that this divides.
    stride: usize,
    /// What a turn takes with everything around it, by the warm-up.
    cost: Duration,
    failed: Option<String>,
}

/// Who takes part.
#[derive(Default)]
pub(crate) struct Race<'a> {
    contestants: Vec<Contestant<'a>>,
}

/// What came out.
#[derive(Debug)]
pub(crate) struct Results {
    samples: Vec<(String, Samples)>,
    /// Who had to be left out, and why.
    pub(crate) skipped: Vec<String>,
}

impl<'a> Race<'a> {
    /// One of ours: where it fails, the race fails.
    pub(crate) fn ours(&mut self, who: &str, turn: impl FnMut() -> anyhow::Result<Duration> + 'a) {
        self.add(who, true, Box::new(turn));
    }

    /// A peer or a floor: where it fails, it is left out.
    pub(crate) fn beside(
        &mut self,
        who: &str,
        turn: impl FnMut() -> anyhow::Result<Duration> + 'a,
    ) {
        self.add(who, false, Box::new(turn));
    }

    fn add(&mut self, who: &str, ours: bool, turn: Turn<'a>) {
        self.contestants.push(Contestant {
            who: who.to_owned(),
            turn,
            ours,
            samples: Samples::default(),
            stride: 1,
            cost: Duration::ZERO,
            failed: None,
        });
    }

    /// Runs rounds until the medians are stable, or the effort is spent.
    pub(crate) fn run(mut self, effort: Effort, ruler: &Ruler) -> anyhow::Result<Results> {
        self.warm_up(effort)?;
        self.share_out(effort);
        let began = Instant::now();
        for round in 0..effort.rounds_max {
            ruler.measure();
            // Each is first in turn, so that nobody always follows the same one.
            let first = round % self.contestants.len().max(1);
            self.contestants.rotate_left(first);
            for contestant in &mut self.contestants {
                if contestant.failed.is_none() && round % contestant.stride == 0 {
                    Ruler::warm();
                    contestant.take_turn(effort)?;
                }
            }
            self.contestants.rotate_right(first);
            let enough = round + 1 >= ROUNDS_LEAST && began.elapsed() > effort.time_max;
            if enough || self.stable(round + 1) {
                break;
            }
        }
        Ok(self.results())
    }

    fn warm_up(&mut self, effort: Effort) -> anyhow::Result<()> {
        for contestant in &mut self.contestants {
            let began = Instant::now();
            for done in 1..=WARM_UP_ROUNDS {
                contestant.take_turn(effort)?;
                contestant.cost = began.elapsed() / done;
                if contestant.failed.is_some() || began.elapsed() > WARM_UP_MAX {
                    break;
                }
            }
            contestant.samples = Samples::default();
        }
        Ok(())
    }

    /// Gives each the same time: whoever is slow takes part in fewer rounds, spread over all of them.
    fn share_out(&mut self, effort: Effort) {
        let left: Vec<Duration> = self
            .contestants
            .iter()
            .filter(|c| c.failed.is_none())
            .map(|c| c.cost)
            .collect();
        let share = effort.time_max.as_secs_f64() / super::figures::number(left.len().max(1));
        let turns = |cost: Duration| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "small and positive, and clamped"
            )]
            let fit = (share / cost.as_secs_f64().max(1e-6)) as usize;
            fit.clamp(SAMPLES_MIN, effort.rounds_max.max(SAMPLES_MIN))
        };
        let most = left.iter().map(|cost| turns(*cost)).max().unwrap_or(1);
        for contestant in &mut self.contestants {
            contestant.stride = (most / turns(contestant.cost)).max(1);
        }
    }

    fn stable(&self, rounds: usize) -> bool {
        rounds >= ROUNDS_MIN
            && self.contestants.iter().all(|contestant| {
                let uncertainty = contestant.samples.median_uncertainty();
                contestant.failed.is_some() || uncertainty.is_some_and(|u| u <= UNCERTAINTY_MAX)
            })
    }

    fn results(self) -> Results {
        let mut results = Results {
            samples: Vec::new(),
            skipped: Vec::new(),
        };
        for contestant in self.contestants {
            match contestant.failed {
                Some(why) => results
                    .skipped
                    .push(format!("{} is left out: {why}", contestant.who)),
                None => results.samples.push((contestant.who, contestant.samples)),
            }
        }
        results
    }
}

impl Contestant<'_> {
    fn take_turn(&mut self, effort: Effort) -> anyhow::Result<()> {
        let began = Instant::now();
        match (self.turn)() {
            Ok(took) => self.samples.push(took),
            Err(error) if self.ours => return Err(error).with_context(|| self.who.clone()),
            Err(error) => self.failed = Some(format!("{error:#}")),
        }
        std::thread::sleep(effort.rest_after(began.elapsed()));
        Ok(())
    }
}

impl Results {
    /// Of whom there are samples.
    pub(crate) fn of(&self, who: &str) -> Option<&Samples> {
        let found = self.samples.iter().find(|(name, _)| name == who);
        found.map(|(_, samples)| samples)
    }

    /// A figure of `ours` beside those of `others` that were measured. Nothing where ours was not.
    pub(crate) fn figure(&self, what: &str, ours: &str, others: &[&str]) -> Option<Figure> {
        let mut figure = Figure::new(what, "ms", self.of(ours)?);
        for who in others {
            if let Some(samples) = self.of(who) {
                figure = figure.beside(who, samples);
            }
        }
        Some(figure)
    }

    /// A figure of the first beside everybody else.
    pub(crate) fn whole(&self, what: &str) -> Option<Figure> {
        let (ours, others) = self.samples.split_first()?;
        let others: Vec<&str> = others.iter().map(|(who, _)| who.as_str()).collect();
        self.figure(what, &ours.0, &others)
    }

    /// Hands on who was left out.
    pub(crate) fn notes(&self, findings: &mut Findings) {
        for skipped in &self.skipped {
            findings.note(skipped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EFFORT: Effort = Effort {
        rounds_max: 30,
        time_max: Duration::from_secs(60),
        pause: Duration::ZERO,
    };

    #[test]
    fn a_stable_median_ends_the_race() {
        let mut race = Race::default();
        let mut turns = 0;
        race.ours("ours", || {
            turns += 1;
            Ok(Duration::from_millis(3))
        });
        let results = race.run(EFFORT, &Ruler::default()).expect("nothing fails");
        let figure = results.whole("a").expect("ours was measured");
        assert_eq!(figure.rows[0].figures.count, ROUNDS_MIN);
        assert_eq!(turns, 3 + ROUNDS_MIN);
    }

    #[test]
    fn whoever_takes_long_is_given_long_to_clear_away() {
        let pause = Duration::from_millis(2);
        let effort = Effort { pause, ..EFFORT };
        assert_eq!(effort.rest_after(Duration::from_micros(50)), pause);
        let long = Duration::from_millis(90);
        assert_eq!(effort.rest_after(long), long);
        assert_eq!(effort.rest_after(Duration::from_secs(9)), REST_MAX);
        assert_eq!(EFFORT.rest_after(long), Duration::ZERO);
    }

    #[test]
    fn medians_that_do_not_settle_take_all_rounds() {
        let mut race = Race::default();
        let mut turns = 0;
        race.ours("ours", || {
            turns += 1;
            Ok(Duration::from_millis(if turns % 2 == 0 { 1 } else { 50 }))
        });
        let results = race.run(EFFORT, &Ruler::default()).expect("nothing fails");
        let figure = results.whole("a").expect("ours was measured");
        assert_eq!(figure.rows[0].figures.count, EFFORT.rounds_max);
    }

    #[test]
    fn a_peer_that_fails_is_left_out_and_ours_is_not() {
        let mut race = Race::default();
        race.ours("ours", || Ok(Duration::from_millis(3)));
        race.beside("peer", || anyhow::bail!("is not installed"));
        let results = race.run(EFFORT, &Ruler::default()).expect("ours works");
        assert_eq!(results.skipped, ["peer is left out: is not installed"]);
        assert_eq!(results.whole("a").map(|figure| figure.rows.len()), Some(1));
        let mut race = Race::default();
        race.ours("ours", || anyhow::bail!("is broken"));
        assert!(race.run(EFFORT, &Ruler::default()).is_err());
    }
}
