//! Searching, as the older routes do it: `find` and `grep` run inside the sandbox, with their arguments as a list and
//! never as a shell's text.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, rules};
use super::error::Failure;
use super::request::{Json, OfSession};
use super::run::text_of;
use super::shell::Operation;
use crate::id::SessionId;
use crate::limits::SEARCH_SECONDS_MAX;
use crate::sessions::{RunDone, UseError};
use axum::extract::State;
use sandboxd_api::files::FileEntry;
use sandboxd_api::shell as api;
use std::time::Duration;

impl Decode for api::GlobRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let pattern = fields.required("pattern", rules::text);
        let path = fields.or("path", "/".to_owned(), rules::text);
        Some(Self {
            pattern: pattern?,
            path: path?,
        })
    }
}

/// `POST /sessions/{session_id}/glob`
pub(super) async fn glob(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<api::GlobRequest>,
) -> Answer {
    let target = format!("{} in {}", ask.pattern, ask.path);
    let operation = Operation::begin(&app, &id, "glob", &target);
    let done = search(&app, &id, find_argv(&ask)).await?;
    let rows = match done {
        Some(Found {
            code: 0 | 1,
            stdout,
            ..
        }) => glob_rows(&stdout),
        Some(_) | None => Vec::new(),
    };
    operation.end(true, format!("{} matches", rows.len()));
    Ok(answer::json(&rows))
}

/// `find` below a root, for a pattern at any depth.
fn find_argv(ask: &api::GlobRequest) -> Vec<String> {
    let pattern = ask.pattern.strip_prefix("**/").unwrap_or(&ask.pattern);
    [
        "find",
        &root(&ask.path),
        "-path",
        &format!("*/{pattern}"),
        "-type",
        "f",
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A root that no program takes for an option. `/`, `.` and an empty text mean the work directory, in which searches
/// start.
fn root(path: &str) -> String {
    match path {
        "" | "/" | "." => ".".to_owned(),
        absolute if absolute.starts_with('/') => absolute.to_owned(),
        relative if relative.starts_with("./") => relative.to_owned(),
        relative => format!("./{relative}"),
    }
}

fn glob_rows(stdout: &str) -> Vec<FileEntry> {
    let mut paths: Vec<&str> = stdout
        .lines()
        .map(|path| path.strip_prefix("./").unwrap_or(path))
        .filter(|path| !path.is_empty())
        .collect();
    paths.sort_unstable();
    let rows = paths.into_iter().map(|path| FileEntry {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        path: path.to_owned(),
        is_dir: false,
        size: None,
        modified_at: None,
    });
    rows.collect()
}

impl Decode for api::GrepRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let pattern = fields.required("pattern", rules::text);
        let path = fields.or("path", None, rules::nullable(rules::text));
        let glob = fields.or("glob", None, rules::nullable(rules::text));
        let ignore_hidden = fields.or("ignore_hidden", true, rules::boolean);
        Some(Self {
            pattern: pattern?,
            path: path?,
            glob: glob?,
            ignore_hidden: ignore_hidden?,
        })
    }
}

/// `POST /sessions/{session_id}/grep`
pub(super) async fn grep(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<api::GrepRequest>,
) -> Answer {
    let operation = Operation::begin(&app, &id, "grep", &ask.pattern);
    let done = search(&app, &id, grep_argv(&ask)).await?;
    let response = grep_response(done);
    let detail = match &response.error {
        Some(error) => error.clone(),
        None => format!("{} matches", response.matches.len()),
    };
    operation.end(response.error.is_none(), detail);
    Ok(answer::json(&response))
}

/// `grep` for a basic regular expression. Hidden names have at least one character after the dot, so that the work
/// directory's own name `.` is not passed over; `-H` names the file also where only one is searched.
fn grep_argv(ask: &api::GrepRequest) -> Vec<String> {
    let mut argv = vec!["grep".to_owned(), "-rnH".to_owned()];
    // What matches neither is left out only where the first of these options includes.
    if let Some(glob) = &ask.glob {
        argv.push(format!("--include={glob}"));
    }
    if ask.ignore_hidden {
        argv.push("--exclude=.?*".to_owned());
        argv.push("--exclude-dir=.?*".to_owned());
    }
    argv.extend(["-e".to_owned(), ask.pattern.clone(), "--".to_owned()]);
    argv.push(root(ask.path.as_deref().unwrap_or_default()));
    argv
}

fn grep_response(done: Option<Found>) -> api::GrepResponse {
    let failed = |words: &str| api::GrepResponse {
        matches: Vec::new(),
        error: Some(format!("Error: {words}")),
    };
    let Some(found) = done else {
        return failed("the search took too long");
    };
    let matches: Vec<api::GrepMatch> = found.stdout.lines().filter_map(grep_match).collect();
    match found.code {
        0 | 1 => {}
        // Some files could not be read, others matched.
        _ if !matches.is_empty() => {}
        _ => return failed(&format!("{}{}", found.stdout, found.stderr)),
    }
    api::GrepResponse {
        matches,
        error: None,
    }
}

/// `path:number:line`. A line of another form is grep's own, about a binary file say.
fn grep_match(row: &str) -> Option<api::GrepMatch> {
    let colons = row.match_indices(':').map(|(at, _)| at);
    for at in colons {
        let rest = &row[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && rest[digits..].starts_with(':') {
            return Some(api::GrepMatch {
                path: row[..at].to_owned(),
                line_number: rest[..digits].parse().ok()?,
                line: rest[digits + 1..].to_owned(),
            });
        }
    }
    None
}

/// What a search said.
struct Found {
    code: u8,
    stdout: String,
    stderr: String,
}

/// Runs a search inside. `None` is one that took too long by its own bound; by the service's ceiling it is a refusal.
async fn search(app: &App, id: &SessionId, argv: Vec<String>) -> Result<Option<Found>, Failure> {
    let ceiling = app.sessions.service().execute_timeout;
    let seconds = ceiling.min(SEARCH_SECONDS_MAX);
    let done = app
        .sessions
        .search(id, argv, Duration::from_secs(seconds))
        .await;
    let (code, stdout, stderr) = match done {
        Ok(RunDone::Finished {
            code,
            stdout,
            stderr,
        }) => (code, stdout, stderr),
        // Cut output is what was found so far.
        Ok(RunDone::OutputLimited { stdout, stderr, .. }) => (0, stdout, stderr),
        Ok(RunDone::TimedOut { .. }) if seconds < ceiling => return Ok(None),
        Ok(RunDone::TimedOut { .. }) => return Err(UseError::Ceiling(ceiling).into()),
        Err(UseError::Invalid(why)) => (2, Vec::new(), why.into_bytes()),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(Found {
        code,
        stdout: text_of(stdout),
        stderr: text_of(stderr),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grep_ask(pattern: &str, path: Option<&str>) -> api::GrepRequest {
        api::GrepRequest {
            pattern: pattern.to_owned(),
            path: path.map(str::to_owned),
            glob: Some("*.py".to_owned()),
            ignore_hidden: true,
        }
    }

    #[test]
    fn nothing_that_a_client_sends_becomes_an_option() {
        let argv = grep_argv(&grep_ask("-n", Some("-delete")));
        let expected = [
            "grep",
            "-rnH",
            "--include=*.py",
            "--exclude=.?*",
            "--exclude-dir=.?*",
            "-e",
            "-n",
            "--",
            "./-delete",
        ];
        assert_eq!(argv, expected);
        let argv = find_argv(&api::GlobRequest {
            pattern: "**/*.py".to_owned(),
            path: "-delete".to_owned(),
        });
        assert_eq!(argv, ["find", "./-delete", "-path", "*/*.py", "-type", "f"]);
        for work_dir in ["", "/", "."] {
            assert_eq!(root(work_dir), ".");
        }
        assert_eq!(root("/usr"), "/usr");
    }

    #[test]
    fn rows_of_find_are_sorted_and_without_a_leading_dot() {
        let rows = glob_rows("./b.py\n./a/c.py\n");
        let paths: Vec<&str> = rows.iter().map(|row| row.path.as_str()).collect();
        assert_eq!(paths, ["a/c.py", "b.py"]);
        assert_eq!(rows[0].name, "c.py");
        assert_eq!(glob_rows("/w/a.py\n")[0].path, "/w/a.py");
    }

    #[test]
    fn rows_of_grep_are_taken_apart_at_the_line_number() {
        let found = grep_match("./a:b.py:12:x:3:y").expect("a match");
        assert_eq!((found.path.as_str(), found.line_number), ("./a:b.py", 12));
        assert_eq!(found.line, "x:3:y");
        assert_eq!(grep_match("grep: ./x: binary file matches"), None);
    }

    #[test]
    fn grep_fails_only_where_nothing_was_found() {
        let found = |code, stdout: &str| {
            Some(Found {
                code,
                stdout: stdout.to_owned(),
                stderr: "grep: /nope: No such file or directory\n".to_owned(),
            })
        };
        assert_eq!(grep_response(found(1, "")).error, None);
        let error = grep_response(found(2, "")).error.expect("failed");
        assert_eq!(error, "Error: grep: /nope: No such file or directory\n");
        let some = grep_response(found(2, "a:1:x\n"));
        assert_eq!((some.matches.len(), some.error), (1, None));
        assert!(grep_response(None).error.is_some());
    }
}
