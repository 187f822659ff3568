//! The double that API tests use (skeleton).
