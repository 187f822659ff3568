//! What is told while an image is made ready: bars where somebody watches a terminal, lines everywhere else.

use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use sandboxd_server::runtimes::images::{Event, Progress};
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

/// What a bar looks like while bytes come.
const FETCHING: &str = "{prefix}  {bar:30}  {bytes:>11} of {total_bytes:<11}  {msg}";
/// While an image is built: the step, and the last line that it printed.
const BUILDING: &str = "{prefix}  {bar:30}  {pos} of {len} steps  {wide_msg}";
/// The bar of a build, beside those of blobs.
const STEPS: &str = "steps";
/// While a file is read that is imported.
const READING: &str = "{prefix}  {bar:30}  {bytes:>11} of {total_bytes:<11}  {msg}";
/// While something is read of which nobody knows how long it is.
const READING_ON: &str = "{prefix}  {spinner}  {bytes:>11}  {msg}";
/// The bar of what is read.
const READ: &str = "read";
/// And when there are no more.
const STANDING: &str = "{prefix}  {msg}";

/// Tells it on stderr.
pub(crate) enum Shown {
    Lines {
        image: String,
    },
    Bars {
        all: MultiProgress,
        /// By blob; held only while one is changed.
        bars: Mutex<HashMap<String, ProgressBar>>,
    },
}

impl Shown {
    /// For one image.
    pub(crate) fn for_image(image: &str) -> Self {
        if std::io::stderr().is_terminal() {
            Self::Bars {
                all: MultiProgress::new(),
                bars: Mutex::new(HashMap::new()),
            }
        } else {
            Self::Lines {
                image: image.to_owned(),
            }
        }
    }

    /// Nothing more comes.
    pub(crate) fn end(&self) {
        if let Self::Bars { all, .. } = self {
            let _ = all.clear();
        }
    }
}

/// The words of an event; none for those that come too often.
fn line(event: Event<'_>) -> Option<String> {
    Some(match event {
        Event::Layers {
            all, missing: 0, ..
        } => format!("all {all} layers are here"),
        Event::Layers {
            all,
            missing,
            bytes,
        } => {
            format!(
                "{missing} of {all} layers to fetch, {}",
                output::size(bytes)
            )
        }
        Event::Fetching { blob, size, had: 0 } => {
            format!("{}: fetching {}", blob.short(), output::size(size))
        }
        Event::Fetching { blob, size, had } => format!(
            "{}: fetching {}, from {} on",
            blob.short(),
            output::size(size),
            output::size(had)
        ),
        Event::Reading {
            what,
            size: Some(size),
        } => format!("{what}: reading {}", output::size(size)),
        Event::Reading { what, size: None } => format!("{what}: reading"),
        Event::Unpacking { blob } => format!("{}: unpacking", blob.short()),
        Event::Ready { blob } => format!("{}: ready", blob.short()),
        Event::Step {
            number,
            all,
            label,
            done: false,
        } => format!("step {number} of {all}: {label}"),
        Event::Step {
            number, all, label, ..
        } => format!("step {number} of {all}: {label}: done before"),
        Event::Said { line } => format!("| {line}"),
        Event::Storing { label } => format!("{label}: storing"),
        Event::Again { why, wait } => {
            format!("{why}; again in {:.1} s", wait.as_secs_f64())
        }
        Event::Fetched { .. } | Event::Read { .. } => return None,
    })
}

impl Progress for Shown {
    fn event(&self, event: Event<'_>) {
        match self {
            Self::Lines { image } => {
                if let Some(line) = line(event) {
                    output::complain(&format!("{image}: {line}"));
                }
            }
            Self::Bars { all, bars } => {
                let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
                draw(all, &mut bars, event);
            }
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn draw(all: &MultiProgress, bars: &mut HashMap<String, ProgressBar>, event: Event<'_>) {
    match event {
        Event::Fetching { blob, size, had } => {
            let bar = bars.entry(blob.hex().to_owned()).or_insert_with(|| {
                let bar = all.add(ProgressBar::new(size));
                bar.set_style(style(FETCHING));
                bar.set_prefix(blob.short().to_owned());
                bar
            });
            bar.set_position(had);
        }
        Event::Fetched { blob, bytes } => {
            if let Some(bar) = bars.get(blob.hex()) {
                bar.inc(bytes);
            }
        }
        Event::Reading { what, size } => {
            let bar = bars
                .entry(READ.to_owned())
                .or_insert_with(|| all.add(ProgressBar::new(0)));
            let template = if size.is_some() { READING } else { READING_ON };
            bar.set_style(style(template));
            bar.set_prefix(output::printable(what));
            bar.set_length(size.unwrap_or(0));
            bar.set_position(0);
        }
        Event::Read { bytes } => {
            if let Some(bar) = bars.get(READ) {
                bar.inc(bytes);
            }
        }
        Event::Unpacking { blob } => {
            if let Some(bar) = bars.get(blob.hex()) {
                bar.set_message("unpacking");
            }
        }
        Event::Ready { blob } => {
            if let Some(bar) = bars.get(blob.hex()) {
                bar.set_style(style(STANDING));
                bar.finish_with_message("ready");
            }
        }
        Event::Step {
            number,
            all: steps,
            label,
            done,
        } => {
            let bar = bars.entry(STEPS.to_owned()).or_insert_with(|| {
                let bar = all.add(ProgressBar::new(steps as u64));
                bar.set_style(style(BUILDING));
                bar
            });
            bar.set_position(number.saturating_sub(1) as u64);
            let did = if done { ": done before" } else { "" };
            bar.set_prefix(output::printable(&format!("{label}{did}")));
        }
        Event::Said { line } => {
            if let Some(bar) = bars.get(STEPS) {
                bar.set_message(output::printable(line));
            }
        }
        Event::Storing { label } => {
            if let Some(bar) = bars.get(STEPS) {
                bar.inc(1);
                bar.set_message(output::printable(&format!("{label}: storing")));
            }
        }
        Event::Layers { .. } | Event::Again { .. } => {
            let _ = all.println(output::printable(&line(event).unwrap_or_default()));
        }
    }
}
