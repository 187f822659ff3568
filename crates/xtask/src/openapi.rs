//! Keeps `docs/openapi.json`: the document that the service serves. A test compares the two.

use crate::report::say;
use crate::tools::{cargo, root};
use anyhow::{Context, bail};
use std::process::{ExitCode, Stdio};

/// Writes the document anew.
pub(crate) fn write() -> ExitCode {
    match written() {
        Ok(words) => {
            say(&words);
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn written() -> anyhow::Result<String> {
    let printed = cargo(&[
        "run",
        "--quiet",
        "--package",
        "sandboxd-server",
        "--example",
        "openapi",
    ])
    .stderr(Stdio::inherit())
    .output()
    .context("cargo does not start")?;
    if !printed.status.success() {
        bail!("the document was not printed");
    }
    let document = String::from_utf8(printed.stdout).context("the document is no text")?;
    if !document.starts_with('{') {
        bail!("what was printed is no document");
    }
    let kept = root().join("docs/openapi.json");
    let before = std::fs::read_to_string(&kept).unwrap_or_default();
    if before == document {
        return Ok(format!("{} is as it should be", kept.display()));
    }
    std::fs::write(&kept, &document)
        .with_context(|| format!("{} cannot be written", kept.display()))?;
    Ok(format!(
        "{} is written anew; look at the difference",
        kept.display()
    ))
}
