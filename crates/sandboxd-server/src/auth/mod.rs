//! Who calls.

pub mod session_tokens;
