//! The Linux jail: its walls as data, and the program that carries them out.
//!
//! The library is what the daemon needs, and makes no privileged call on its own: a [`plan::Plan`] says what one sandbox's walls are,
//! [`wire`] is how plans travel to the launcher, [`report`] how a failed step is told, [`seccomp`] the reviewed list of
//! system calls with the generator of the filter, [`network`] and [`rules`] what sandboxes may reach and by which packet
//! rules, and [`remains`] and [`host_rules`] how what a sandbox or an instance leaves is removed, which the daemon does at
//! its start and the launcher after the daemon's end. [`projects`] is what both need of a file system's quotas.
//!
//! The program (`main.rs`) is the *launcher*: one thread, started by the daemon, that clones one child per plan. The
//! child makes its walls step by step (`steps/`), each with a reason and an error of its own, and becomes the guest.

pub mod host_rules;
pub mod network;
pub mod plan;
pub mod projects;
pub mod remains;
pub mod report;
pub mod rules;
pub mod seccomp;
pub mod wire;
