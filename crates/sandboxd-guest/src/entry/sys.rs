//! What the C library calls when it is ready.
#![expect(
    unsafe_code,
    reason = "the C library knows this function by its name, and hands over pointers"
)]

use std::ffi::{CStr, c_char, c_int};

/// The guest, from its command line to its status.
// SAFETY: nothing else in this program is called so, and this is what the C library calls by that name.
#[unsafe(no_mangle)]
extern "C" fn main(count: c_int, arguments: *const *const c_char) -> c_int {
    let count = usize::try_from(count).unwrap_or(0);
    let words = (1..count).map(|number| {
        // SAFETY: the C library gives as many pointers as it says.
        let word = unsafe { *arguments.wrapping_add(number) };
        // SAFETY: each is of a string that ends with NUL and outlives this function.
        unsafe { CStr::from_ptr(word) }.to_bytes().to_vec()
    });
    super::live(words.collect())
}
