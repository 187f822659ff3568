//! The guest as a process of its own, over a socket pair, as a subreaper (no PID namespace needed).

mod files;
mod house;
mod runs;
mod trees;
