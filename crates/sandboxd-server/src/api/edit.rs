//! Replacing text in a file, as the older routes do it.

use super::App;
use super::answer::{self, Answer};
use super::decode::{Decode, Fields, rules};
use super::request::{Json, OfSession};
use super::shell::{Operation, content, follow};
use super::text;
use crate::sessions::FollowFile;
use axum::extract::State;
use sandboxd_api::shell as api;
use sandboxd_protocol::message::FileError;

impl Decode for api::EditRequest {
    fn decode(fields: &mut Fields) -> Option<Self> {
        let path = fields.required("path", rules::text);
        let old_string = fields.required("old_string", rules::text);
        let new_string = fields.required("new_string", rules::text);
        let replace_all = fields.or("replace_all", false, rules::boolean);
        Some(Self {
            path: path?,
            old_string: old_string?,
            new_string: new_string?,
            replace_all: replace_all?,
        })
    }
}

/// `POST /sessions/{session_id}/edit`
pub(super) async fn edit(
    State(app): State<App>,
    OfSession(id): OfSession,
    Json(ask): Json<api::EditRequest>,
) -> Answer {
    let operation = Operation::begin(&app, &id, "edit", &ask.path);
    let edited = match content(&app, &id, &ask.path).await? {
        Ok((_, content)) => replaced(&content, &ask),
        Err(FileError::NotFound | FileError::IsADirectory | FileError::NotADirectory) => {
            Err(format!("File '{}' not found", ask.path))
        }
        Err(error) => Err(format!("Cannot edit '{}': {error}", ask.path)),
    };
    let written = match edited {
        Err(error) => Err(error),
        Ok((content, count)) => {
            let done = follow(&app, &id, &ask.path, FollowFile::Write(content.into())).await?;
            done.map(|done| (done.path, count))
                .map_err(|error| format!("Cannot edit '{}': {error}", ask.path))
        }
    };
    let response = match written {
        Ok((path, count)) => api::EditResponse {
            path: Some(path),
            error: None,
            occurrences: Some(count),
        },
        Err(error) => api::EditResponse {
            path: None,
            error: Some(error),
            occurrences: None,
        },
    };
    let detail = match (&response.error, response.occurrences) {
        (Some(error), _) => error.clone(),
        (None, count) => format!("{} replaced", count.unwrap_or_default()),
    };
    operation.end(response.error.is_none(), detail);
    Ok(answer::json(&response))
}

/// The content with the replacement made, and how many there were. Works on bytes, so that a file in another encoding
/// keeps every byte that is not replaced.
fn replaced(content: &[u8], ask: &api::EditRequest) -> Result<(Vec<u8>, u64), String> {
    let (old, new) = (ask.old_string.as_bytes(), ask.new_string.as_bytes());
    let spots = occurrences(content, old);
    let count = spots.len();
    let old_words = text::brief(&ask.old_string);
    match count {
        0 => return Err(format!("String '{old_words}' not found in file")),
        1 => {}
        _ if ask.replace_all => {}
        _ => {
            return Err(format!(
                "String '{old_words}' found {count} times. Use replace_all=True to replace all, or provide more context."
            ));
        }
    }
    let mut edited = Vec::with_capacity(content.len() + count * new.len());
    let mut from = 0;
    for at in spots {
        edited.extend_from_slice(&content[from..at]);
        edited.extend_from_slice(new);
        from = at + old.len();
    }
    edited.extend_from_slice(&content[from..]);
    Ok((edited, count as u64))
}

/// Where `old` begins in the content, without overlaps. An empty text is found before every character and at the end.
fn occurrences(content: &[u8], old: &[u8]) -> Vec<usize> {
    if old.is_empty() {
        let is_start = |byte: &u8| *byte & 0b1100_0000 != 0b1000_0000;
        let starts = content.iter().enumerate();
        let starts = starts.filter(|(_, byte)| is_start(byte)).map(|(at, _)| at);
        return starts.chain([content.len()]).collect();
    }
    memchr::memmem::find_iter(content, old).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(content: &[u8], old: &str, new: &str, all: bool) -> Result<(Vec<u8>, u64), String> {
        let ask = api::EditRequest {
            path: "f".to_owned(),
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all: all,
        };
        replaced(content, &ask)
    }

    #[test]
    fn an_edit_replaces_one_or_all_and_counts() {
        assert_eq!(edit(b"a b", "b", "c", false), Ok((b"a c".to_vec(), 1)));
        assert_eq!(edit(b"bab", "b", "cc", true), Ok((b"ccacc".to_vec(), 2)));
        assert_eq!(edit(b"aaa", "aa", "b", true), Ok((b"ba".to_vec(), 1)));
        assert_eq!(
            edit(b"\xe9 b", "b", "c", false),
            Ok((b"\xe9 c".to_vec(), 1))
        );
        let missing = edit(b"a", "zzz", "", false).expect_err("missing");
        assert_eq!(missing, "String 'zzz' not found in file");
        let many = edit(b"l1\nl2\nl3\n", "", "x", false).expect_err("ambiguous");
        assert!(many.starts_with("String '' found 10 times. Use replace_all=True"));
        assert_eq!(
            edit("ä".as_bytes(), "", "x", true),
            Ok(("xäx".as_bytes().to_vec(), 2))
        );
    }
}
