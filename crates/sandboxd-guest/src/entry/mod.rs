//! Where the guest begins, and the status that it ends with.
//!
//! The standard library's own start is left out: it reads `/proc/self/maps`, and makes a stack and handlers for what it has
//! to say of an overflow, which nobody would read; and every open of a session waits for the guest's start.

#[cfg(not(test))]
mod sys;

use crate::start;
use std::io::Write;

/// The whole life of the guest.
#[cfg_attr(
    test,
    expect(dead_code, reason = "tests begin where the test harness does")
)]
fn live(words: Vec<Vec<u8>>) -> i32 {
    match start::start(words) {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be listening.
            let _ = writeln!(std::io::stderr(), "sandboxd-guest: {error}");
            1
        }
    }
}
