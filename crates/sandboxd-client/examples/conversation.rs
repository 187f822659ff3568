//! One workspace per conversation: files outlive the sandbox, and are read without it.
//! `conversation http://localhost:8080 TOKEN`.

use sandboxd_client::{Service, TreeBounds};
use std::error::Error;

/// Writes in one turn of a conversation, reads in the next; gives what the workspace holds at its end.
pub(crate) async fn example(url: &str, token: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let service = Service::new(url, token)?;
    // Whoever knows the name gets at the files, so it is not one that can be guessed.
    let name = "conversation-5f2c9a1e";

    let turn = service.sandbox().name(name).build()?;
    let directory = turn.working_dir().await?;
    let notes = format!("{directory}/notes/today.md");
    turn.write_bytes(&notes, "# Notes\n").await?;
    turn.stop().await?; // the sandbox ends, the files stay

    let next = service.sandbox().name(name).build()?;
    let kept = next.read_bytes(&notes).await?;
    next.write_bytes(&notes, [&kept[..], b"more\n"].concat())
        .await?;
    next.stop().await?;

    // The archive starts nothing.
    let archive = service.archive();
    let text = archive.read(name, "notes/today.md", 0, 100).await?;
    if text != "# Notes\nmore" {
        return Err(format!("not what was written: {text:?}").into());
    }
    let tree = archive.tree(name, ".", TreeBounds::default()).await?;
    let paths = tree.entries.into_iter().map(|entry| entry.path).collect();

    // Attaching never makes anything new; purging deletes the files.
    service.sandbox().attach(name).build()?.purge().await?;
    Ok(paths)
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
        return Err("usage: conversation URL TOKEN".into());
    };
    println!("{}", example(&url, &token).await?.join("\n"));
    Ok(())
}
