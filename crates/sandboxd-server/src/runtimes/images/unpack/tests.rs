//! Hostile and ordinary archives.
