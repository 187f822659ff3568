//! Golden files.
