//! What is told while an image is fetched: bars where somebody watches a terminal, lines everywhere else.

use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use sandboxd_server::runtimes::images::{Event, Progress};
use std::collections::HashMap;
use std::io::IsTerminal as _;
use std::sync::{Mutex, PoisonError};

/// What a bar looks like while bytes come.
const FETCHING: &str = "{prefix}  {bar:30}  {bytes:>11} of {total_bytes:<11}  {msg}";
/// And when there are no more.
const STANDING: &str = "{prefix}  {msg}";

/// Tells it on stderr.
pub(super) enum Shown {
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
    pub(super) fn for_image(image: &str) -> Self {
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
    pub(super) fn end(&self) {
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
            format!("{missing} of {all} layers to fetch, {}", super::size(bytes))
        }
        Event::Fetching { blob, size, had: 0 } => {
            format!("{}: fetching {}", blob.short(), super::size(size))
        }
        Event::Fetching { blob, size, had } => format!(
            "{}: fetching {}, from {} on",
            blob.short(),
            super::size(size),
            super::size(had)
        ),
        Event::Unpacking { blob } => format!("{}: unpacking", blob.short()),
        Event::Ready { blob } => format!("{}: ready", blob.short()),
        Event::Again { why, wait } => {
            format!("{why}; again in {:.1} s", wait.as_secs_f64())
        }
        Event::Fetched { .. } => return None,
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
        Event::Layers { .. } | Event::Again { .. } => {
            let _ = all.println(output::printable(&line(event).unwrap_or_default()));
        }
    }
}
