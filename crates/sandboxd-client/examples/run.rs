//! Opens a sandbox, runs a program and ends it again: `run http://localhost:8080 TOKEN`.

use sandboxd_client::{Command, RunError, Service};
use std::error::Error;
use std::time::Duration;

/// Runs two programs; gives what the first one printed.
pub(crate) async fn example(url: &str, token: &str) -> Result<String, Box<dyn Error>> {
    let service = Service::new(url, token)?;
    let sandbox = service.sandbox().build()?;

    // The first use opens the session.
    let command = Command::new(["echo", "hello"]).timeout(Duration::from_secs(30));
    let output = sandbox.run(&command).await?;

    // A program that takes too long is an error that keeps what was printed.
    let slow = Command::new(["sleep", "60"]).timeout(Duration::from_millis(300));
    match sandbox.run(&slow).await {
        Err(RunError::TimedOut { .. }) => {}
        other => return Err(format!("not ended by its deadline: {other:?}").into()),
    }

    // Ends the session, and deletes its files.
    sandbox.purge().await?;
    Ok(output.stdout)
}

#[tokio::main]
#[allow(
    dead_code,
    clippy::print_stdout,
    reason = "the program around the example, which tests leave out"
)]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(token)) = (arguments.next(), arguments.next()) else {
        return Err("usage: run URL TOKEN".into());
    };
    print!("{}", example(&url, &token).await?);
    Ok(())
}
