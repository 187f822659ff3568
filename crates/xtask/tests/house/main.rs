//! The house rules, held by tests.
//!
//! - [`tidy`]: what can be read off one file: length, where `unsafe` stands, reasons, words.
//! - [`documents`]: links and paths in documents, and the list of decisions.
//! - [`arrows`]: which crate may know which.
//! - [`rooms`]: which room of a crate may know which.
//! - [`pins`]: versions below which a library had a hole.
//! - [`source`]: reading the project's own files.

mod arrows;
mod documents;
mod pins;
mod rooms;
mod source;
mod tidy;
