//! Sessions on the in-memory double: what clients are promised, and what happens on bad days.

mod bad_days;
mod files;
mod opening;
mod runs;
mod sleeping;
mod support;
