//! The two halves against each other over a pipe in memory, and each against a hostile other side.

mod double;
mod hostile_daemon;
mod hostile_guest;
mod pair;
