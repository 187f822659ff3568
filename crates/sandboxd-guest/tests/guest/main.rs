//! The guest as a process of its own, over a socket pair: mostly as a subreaper, and as PID 1 where that is the point.

mod files;
mod house;
mod runs;
mod trees;
mod walls;
