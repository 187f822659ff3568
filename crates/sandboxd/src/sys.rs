//! The system calls that no safe wrapper has.
