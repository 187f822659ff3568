//! Bytes of the link (skeleton).
