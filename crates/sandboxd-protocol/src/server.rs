//! The guest's half of the link (skeleton).
