//! `docs/benchmarks.md`, and the plots and figures beside it in `docs/benchmarks/`.
//!
//! - [`page`]: the text; [`plots`]: the drawings.
//!
//! All of it is made from one record, which is kept as `figures.json`: a run of some suites renews those and keeps the rest.

mod page;
mod plots;

use super::record::Record;
use crate::report::say;
use crate::tools::root;
use anyhow::Context;
use std::fs;

/// Writes everything anew, with what this run found.
pub(crate) fn write(found: &Record) -> anyhow::Result<()> {
    let folder = root().join("docs/benchmarks");
    fs::create_dir_all(&folder)?;
    let kept = folder.join("figures.json");
    let record = match Record::read(&kept) {
        Ok(former) if former.machine == found.machine => former.renewed(found),
        // There is none, or it is of a machine that says nothing about this one.
        _ => found.clone(),
    };
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "svg") {
            fs::remove_file(path)?;
        }
    }
    let mut pictures = Vec::new();
    for suite in &record.suites {
        for plot in plots::of(suite)? {
            let path = folder.join(&plot.file);
            fs::write(&path, plot.svg).with_context(|| path.display().to_string())?;
            pictures.push((suite.name.clone(), plot.file, plot.title));
        }
    }
    record.write(&kept)?;
    let page = root().join("docs/benchmarks.md");
    fs::write(&page, page::page(&record, &pictures)).with_context(|| page.display().to_string())?;
    say(&format!("{} is written", page.display()));
    Ok(())
}
