//! Stored files on the host (skeleton).
