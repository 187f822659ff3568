//! The session keyring of whoever started the daemon is left behind.

use crate::spawn::at;
use crate::sys;
use rustix::io::Errno;
use sandboxd_jail::report::{Failure, Step};

/// Joins an empty one. A host whose own filter forbids keyrings has none to hide.
pub(crate) fn leave_behind() -> Result<(), Failure> {
    match sys::join_keyring() {
        Ok(()) | Err(Errno::NOSYS | Errno::PERM) => Ok(()),
        Err(errno) => Err(at(Step::Keyring)(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_former_ring_held_is_out_of_reach() {
        // Rings are a thread's own, so those of the test's process stay as they are.
        let tried = std::thread::spawn(|| {
            sys::join_keyring()?;
            sys::add_to_keyring(c"sandboxd-test")?;
            // The twin: it is found while nothing has been left behind.
            sys::find_in_keyring(c"sandboxd-test")?;
            assert_eq!(leave_behind(), Ok(()));
            Ok(sys::find_in_keyring(c"sandboxd-test"))
        });
        match tried.join().unwrap() {
            Ok(found) => assert_eq!(found, Err(Errno::NOKEY)),
            Err(errno @ (Errno::NOSYS | Errno::PERM)) => {
                println!("this host's own filter forbids keyrings: {errno}");
            }
            Err(errno) => panic!("{errno}"),
        }
    }
}
