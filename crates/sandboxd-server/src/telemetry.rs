//! Logs (skeleton).
