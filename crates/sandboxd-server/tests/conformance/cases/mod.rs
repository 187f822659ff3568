//! The cases.

pub(crate) mod files;
pub(crate) mod lives;
pub(crate) mod runs;
