//! Tools for a model: whatever goes wrong is a text that the model can read. `tools http://localhost:8080 TOKEN`.

use sandboxd_client::{DegradingSandbox, Service};
use std::error::Error;

/// What a tool called `execute` would hand to the model.
async fn execute(sandbox: &DegradingSandbox, command: &str) -> String {
    let outcome = sandbox.execute(command, None).await;
    match outcome.exit_code {
        Some(0) => outcome.output,
        Some(code) => format!("{}\nCommand failed (exit code {code})", outcome.output),
        None => format!("{}\nCommand failed", outcome.output),
    }
}

/// Uses the tools, also after the session is gone; gives what they said.
pub(crate) async fn example(url: &str, token: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let service = Service::new(url, token)?;
    let sandbox = service.sandbox().build_degrading()?;
    let mut said = Vec::new();
    sandbox.write("notes.md", b"one\ntwo\n").await;
    said.push(sandbox.read("notes.md", 0, 10).await);
    said.push(sandbox.read("missing.md", 0, 10).await);
    said.push(execute(&sandbox, "echo done").await);

    // Somebody else closes the session: nothing raises.
    if let Some(id) = sandbox.raising().session_id() {
        service.purge(&id).await?;
    }
    said.push(execute(&sandbox, "echo done").await);
    Ok(said)
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
        return Err("usage: tools URL TOKEN".into());
    };
    println!("{}", example(&url, &token).await?.join("\n---\n"));
    Ok(())
}
