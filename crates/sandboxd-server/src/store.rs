//! The state directory (skeleton).
