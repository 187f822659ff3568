//! The HTTP API over a real socket, with the in-memory backend: one file per resource, and the order of checks,
//! transport and bad input beside them.

mod any_body;
mod archive;
mod bad_input;
mod budgets;
mod document;
mod figures;
mod files;
mod large_files;
mod lifetime;
mod order;
mod policy;
mod run;
mod service;
mod sessions;
mod shell;
mod support;
mod transport;
