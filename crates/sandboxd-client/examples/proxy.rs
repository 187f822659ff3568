//! What an application does for its own pages: it hands on listings and contents of a workspace, and no token ever leaves
//! it. The page is anybody's; the login, and who may see which session, are the application's.
//! `proxy http://localhost:8080 TOKEN`.

use sandboxd_client::{ArchiveError, Service, WorkspaceArchive};
use std::collections::HashMap;
use std::error::Error;

/// The application's side: it alone holds the service token.
struct Application {
    archive: WorkspaceArchive,
    /// Which sessions each of its users has, by the application's own records.
    sessions: HashMap<String, Vec<String>>,
}

/// What the application's page is told. No refusal of the service gets there: those name ids and paths.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Names, with a slash after those of directories.
    Names(Vec<String>),
    /// A file's content. It was written by a model or by what a model ran, so it is only ever a download
    /// (`Content-Disposition: attachment`, `X-Content-Type-Options: nosniff`), never a page of the application's own.
    Download(Vec<u8>),
    /// Not there, or not theirs: which of the two is nobody's business.
    NotFound,
    /// Something is wrong on this side.
    Unavailable,
}

impl Application {
    /// `user` comes from the application's login, `session` and `path` from the request: they are claims.
    async fn list(&self, user: &str, session: &str, path: &str) -> Answer {
        if !self.may_see(user, session) {
            return Answer::NotFound;
        }
        match self.archive.ls(session, path).await {
            Ok(entries) => {
                let name = |directory, name| if directory { name + "/" } else { name };
                let names = entries.into_iter();
                Answer::Names(names.map(|entry| name(entry.is_dir, entry.name)).collect())
            }
            Err(error) => hidden(&error),
        }
    }

    async fn read(&self, user: &str, session: &str, path: &str) -> Answer {
        if !self.may_see(user, session) {
            return Answer::NotFound;
        }
        match self.archive.read_bytes(session, path).await {
            Ok(content) => Answer::Download(content),
            Err(error) => hidden(&error),
        }
    }

    fn may_see(&self, user: &str, session: &str) -> bool {
        let theirs = self.sessions.get(user);
        theirs.is_some_and(|ids| ids.iter().any(|id| id == session))
    }
}

/// A path that leads nowhere or outside is the request's fault; the rest is for the application's log.
fn hidden(error: &ArchiveError) -> Answer {
    match error.status() {
        Some(400 | 404 | 422) => Answer::NotFound,
        _ => Answer::Unavailable,
    }
}

/// Two users, one of them curious; gives what each was told.
pub(crate) async fn example(url: &str, token: &str) -> Result<Vec<Answer>, Box<dyn Error>> {
    let service = Service::new(url, token)?;
    // No name: the service makes an id that cannot be guessed. The application writes down whose it is.
    let sandbox = service.sandbox().build()?;
    let directory = sandbox.working_dir().await?;
    sandbox
        .write_bytes(&format!("{directory}/report/page.html"), "<script>")
        .await?;
    let id = sandbox.session_id().ok_or("an open session has an id")?;
    let application = Application {
        archive: service.archive(),
        sessions: HashMap::from([("ann".to_owned(), vec![id.clone()])]),
    };
    let told = vec![
        application.list("ann", &id, ".").await,
        application.read("ann", &id, "report/page.html").await,
        application.read("ann", &id, "../../token").await,
        application.list("bob", &id, ".").await,
        application.read("bob", &id, "report/page.html").await,
    ];
    sandbox.purge().await?;
    Ok(told)
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
        return Err("usage: proxy URL TOKEN".into());
    };
    for answer in example(&url, &token).await? {
        println!("{answer:?}");
    }
    Ok(())
}
