//! The text of a PDF, for an agent to read: what its information says, then each page's text.
//!
//! The file comes from inside a sandbox and is hostile. It is read on a thread of its own, one file at a time, within
//! [`PDF_SECONDS_MAX`], and a panic ends that thread only. What the library would make of it in memory is counted before
//! it is made ([`tokens`]), streams are inflated up to a limit, and a page or a text that gets too long is cut, and says
//! so.
//!
//! - `page`: walks what a page shows, and sets lines and spaces where the positions say so.
//! - `font`: from a font's codes to characters; `map`: what the file itself says of them.
//! - `tidy`: takes out what hinders reading.

mod font;
mod map;
mod page;
mod tidy;

use crate::limits::{
    PDF_AT_ONCE, PDF_PAGE_BYTES_MAX, PDF_SECONDS_MAX, PDF_STACK_BYTES, PDF_STREAM_BYTES_MAX,
    PDF_TEXT_BYTES_MAX, PDF_TOKENS_MAX,
};
use bytes::Bytes;
use lopdf::{Dictionary, Document, LoadOptions, Object, ObjectId};
use page::Walk;
use std::cell::Cell;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

/// Why a PDF gave no text. The texts are public.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PdfError {
    /// No PDF, or a damaged one.
    #[error("Failed to parse PDF: {0}")]
    Broken(String),
    /// A password is needed.
    #[error("Failed to parse PDF: it is encrypted")]
    Encrypted,
    /// Nothing to read.
    #[error("Failed to parse PDF: PDF contains no pages")]
    NoPages,
    /// Pictures, say.
    #[error("Failed to parse PDF: No extractable text found in PDF")]
    NoText,
    /// It would take more memory than one file may.
    #[error("Failed to parse PDF: it holds too much")]
    TooMuch,
    /// It, or those before it, took too long.
    #[error("Failed to parse PDF: not done within {0} seconds")]
    Late(u64),
}

/// Lets so many be read at once. A reading that nobody waits for any more holds its place until it is really over.
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(PDF_AT_ONCE)));

/// The text of a PDF.
///
/// # Errors
/// [`PdfError`].
pub(crate) async fn text(content: Bytes) -> Result<String, PdfError> {
    let deadline = Instant::now() + Duration::from_secs(PDF_SECONDS_MAX);
    let work = async {
        let Ok(place) = PLACES.clone().acquire_owned().await else {
            return Err(PdfError::Late(PDF_SECONDS_MAX));
        };
        let (done, result) = oneshot::channel();
        let read = move || {
            let _place = place;
            let read = AssertUnwindSafe(|| extracted(&content, deadline.into_std()));
            let read = std::panic::catch_unwind(read);
            let read = read.unwrap_or_else(|_| Err(PdfError::Broken("it is damaged".to_owned())));
            // Nobody may be waiting any more.
            let _ = done.send(read);
        };
        let thread = std::thread::Builder::new()
            .name("pdf".to_owned())
            .stack_size(PDF_STACK_BYTES);
        thread
            .spawn(read)
            .map_err(|error| PdfError::Broken(error.to_string()))?;
        match result.await {
            Ok(read) => read,
            Err(_) => Err(PdfError::Broken("it is damaged".to_owned())),
        }
    };
    match timeout_at(deadline, work).await {
        Ok(read) => read,
        Err(_) => Err(PdfError::Late(PDF_SECONDS_MAX)),
    }
}

/// The text of a PDF, until `deadline`.
pub(crate) fn extracted(content: &[u8], deadline: std::time::Instant) -> Result<String, PdfError> {
    let document = loaded(content)?;
    let mut text = information(&document);
    let mut pages = document.page_iter().enumerate().peekable();
    if pages.peek().is_none() {
        return Err(if document.is_encrypted() {
            PdfError::Encrypted
        } else {
            PdfError::NoPages
        });
    }
    let mut any = !text.trim().is_empty();
    for (index, id) in pages {
        if std::time::Instant::now() >= deadline {
            return Err(PdfError::Late(PDF_SECONDS_MAX));
        }
        let page = page_text(&document, id, deadline)?;
        if page.is_empty() {
            continue;
        }
        any = true;
        let _ = write!(text, "--- Page {} ---\n{page}\n\n", index + 1);
        if text.len() > PDF_TEXT_BYTES_MAX {
            let mut end = PDF_TEXT_BYTES_MAX;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            text.push_str("\n[The rest of the text is left out]");
            break;
        }
    }
    if any {
        Ok(text.trim().to_owned())
    } else {
        Err(PdfError::NoText)
    }
}

fn page_text(
    document: &Document,
    id: ObjectId,
    deadline: std::time::Instant,
) -> Result<String, PdfError> {
    let content = match document.get_page_content_with_limit(id, PDF_PAGE_BYTES_MAX) {
        Ok(content) if tokens(&content) <= PDF_TOKENS_MAX => content,
        Ok(_) | Err(_) => return Ok("[This page holds too much to be read]".to_owned()),
    };
    let mut walk = Walk::new(document, deadline);
    let resources = page_resources(document, id);
    if walk.content(&content, &resources, 0).is_late() {
        return Err(PdfError::Late(PDF_SECONDS_MAX));
    }
    Ok(tidy::tidy(&walk.text()))
}

/// Nearest first.
fn page_resources(document: &Document, id: ObjectId) -> Vec<&Dictionary> {
    let Ok((own, others)) = document.get_page_resources(id) else {
        return Vec::new();
    };
    let others = others
        .into_iter()
        .filter_map(|id| document.get_dictionary(id).ok());
    own.into_iter().chain(others).collect()
}

thread_local! {
    /// What this thread's loading may still make.
    static TOKENS_LEFT: Cell<usize> = const { Cell::new(0) };
}

fn loaded(content: &[u8]) -> Result<Document, PdfError> {
    let load = |force_reconstruct| {
        let left = PDF_TOKENS_MAX
            .checked_sub(tokens(content))
            .ok_or(PdfError::TooMuch)?;
        TOKENS_LEFT.set(left);
        let options = LoadOptions {
            filter: Some(charge),
            max_decompressed_size: Some(PDF_STREAM_BYTES_MAX),
            force_reconstruct,
            ..LoadOptions::default()
        };
        let document = Document::load_mem_with_options(content, options);
        if TOKENS_LEFT.get() == 0 {
            return Err(PdfError::TooMuch);
        }
        document.map_err(|error| match error {
            lopdf::Error::InvalidPassword => PdfError::Encrypted,
            lopdf::Error::Decompress(_) => PdfError::TooMuch,
            error => PdfError::Broken(error.to_string()),
        })
    };
    let document = load(false)?;
    if document.page_iter().next().is_some() || document.is_encrypted() {
        return Ok(document);
    }
    // Its table of contents may lead nowhere though the objects are there.
    load(true)
}

/// Lets a stream of packed objects in only where what it unpacks to still fits.
fn charge(id: ObjectId, object: &mut Object) -> Option<(ObjectId, Object)> {
    let Object::Stream(stream) = &*object else {
        return Some((id, object.clone()));
    };
    if stream.dict.has_type(b"ObjStm") {
        let left = TOKENS_LEFT.get();
        let unpacked = stream.get_plain_content_with_limit(PDF_STREAM_BYTES_MAX);
        let cost = unpacked.map_or(left, |unpacked| tokens(&unpacked));
        TOKENS_LEFT.set(left.saturating_sub(cost));
        if cost >= left {
            return None;
        }
    }
    // Of a stream only the yes or no is looked at: none is packed in another.
    Some((id, Object::Null))
}

/// How many objects these bytes can make at most: each takes a first byte that ends what was before.
fn tokens(content: &[u8]) -> usize {
    let mut count = 0;
    let mut between = true;
    for byte in content {
        match byte {
            b'[' | b'(' | b'<' => {
                count += 1;
                between = true;
            }
            b'/' => {
                count += 1;
                between = false;
            }
            b' ' | b'\n' | b'\r' | b'\t' | b'\x0c' | 0 | b']' | b')' | b'>' | b'%' => {
                between = true;
            }
            _ => {
                count += usize::from(between);
                between = false;
            }
        }
    }
    count
}

fn information(document: &Document) -> String {
    let mut text = String::new();
    let info = document.trailer.get(b"Info").ok();
    let info = info.and_then(|info| document.dereference(info).ok());
    let Some(info) = info.and_then(|(_, info)| info.as_dict().ok()) else {
        return text;
    };
    for key in ["Title", "Author", "Subject"] {
        let value = info.get(key.as_bytes()).ok();
        let value = value.and_then(|value| document.dereference(value).ok());
        let value = value.and_then(|(_, value)| lopdf::decode_text_string(value).ok());
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            let _ = writeln!(text, "{key}: {value}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests;
