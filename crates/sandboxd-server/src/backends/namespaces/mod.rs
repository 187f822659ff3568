//! Linux namespaces (skeleton).

mod programs;

pub use programs::{NotEmbedded, Programs};
