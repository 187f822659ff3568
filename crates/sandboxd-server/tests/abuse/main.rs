//! One sandbox does its worst while another session keeps working: a file per attack, each with its harmless twin.
//!
//! What is asserted is behaviour: the attack ends, its reason is named, every run of the other session succeeds, and what
//! the attacker does next has its whole limits again. How long the other session's runs take is for `xtask bench abuse`.
//!
//! All of it needs root: the ceilings of an ordinary user are those that were delegated.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends where something is not as it should be, and says what it cannot try here"
)]

mod busy_loop;
mod disk_fill;
mod fork_bomb;
mod log_flood;
mod many_files;
mod memory_bomb;
mod town;
