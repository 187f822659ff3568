//! The system call filter, as the last wall: from here on the steps above could not be taken.

use crate::spawn::at;
use crate::sys;
use sandboxd_jail::report::{Failure, Step};
use sandboxd_jail::seccomp::{self, Instruction};
use std::sync::OnceLock;

/// The filters that there are, by whether clone3 is allowed and whether modes are plain.
type Filters = [[Vec<Instruction>; 2]; 2];

/// Put together by the launcher once: each child finds them in its copy of the launcher's memory.
static FILTERS: OnceLock<Filters> = OnceLock::new();

/// Puts the filters together, before anybody waits for one.
pub(crate) fn prepare() {
    filters();
}

fn filters() -> &'static Filters {
    let of = |clone3| [false, true].map(|plain_modes| seccomp::program(clone3, plain_modes));
    FILTERS.get_or_init(|| [of(false), of(true)])
}

/// Installs one. `clone3` is allowed where the guest puts each run into a cgroup of its own, which no other call can do;
/// that no namespace can be made with it is the work of [`crate::steps::nested`].
pub(crate) fn install(clone3: bool, plain_modes: bool) -> Result<(), Failure> {
    let [without_clone3, with_clone3] = filters();
    let [all_modes, only_plain] = if clone3 { with_clone3 } else { without_clone3 };
    let filter = if plain_modes { only_plain } else { all_modes };
    sys::install_filter(filter).map_err(at(Step::Seccomp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_filter_is_the_one_that_is_asked_for() {
        for (clone3, of_clone3) in [false, true].into_iter().zip(filters()) {
            for (plain_modes, filter) in [false, true].into_iter().zip(of_clone3) {
                assert_eq!(*filter, seccomp::program(clone3, plain_modes));
            }
        }
    }
}
