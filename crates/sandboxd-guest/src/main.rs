//! The program inside a sandbox: runs programs, touches files, dials ports, ends everything.
//!
//! It is PID 1 of the sandbox where that is possible, speaks over the socket it inherits as descriptor 3, and ends when
//! that does; the kernel then ends everything else in the PID namespace. Nothing inside can trace, read or write it
//! (it is not dumpable from its first instruction on), nor signal it as PID 1. It is one thread.
//!
//! - [`guest`]: the guest as the link sees it.
//! - [`run`], [`spawn`], [`process`]: a run, its words, its processes; [`tree`] and [`leaf`] are the two ways to end them.
//! - [`files`], [`dial`]: the other two things a daemon asks for.
//! - [`children`], [`sinks`]: what outlives a run. [`work_dir`]: where runs begin, made where nobody else made it.
//! - [`sys`] and [`call`]: how a process is born, and all unsafe code but that of [`entry`].

#![cfg_attr(not(test), no_main)]

mod call;
mod children;
mod dial;
mod entry;
mod files;
mod guest;
mod leaf;
mod limits;
mod process;
mod room;
mod run;
mod sinks;
mod spawn;
mod start;
mod sys;
mod tree;
mod work_dir;
