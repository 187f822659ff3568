//! The system call filter, as the last wall: from here on the steps above could not be taken.

use crate::spawn::at;
use crate::sys;
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::seccomp;

/// Installs it. `clone3` is allowed where the guest puts each run into a cgroup of its own, which no other call can do;
/// that no namespace can be made with it is the work of [`crate::steps::nested`].
pub(crate) fn install(clone3: bool, plain_modes: bool) -> Result<(), Failure> {
    sys::install_filter(&seccomp::program(clone3, plain_modes)).map_err(at(Step::Seccomp))
}
