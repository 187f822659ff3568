//! Who calls (skeleton).
