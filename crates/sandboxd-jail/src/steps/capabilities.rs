//! What stays of root's powers, all of them only over what the sandbox's user namespace owns.

use crate::spawn::at;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use sandboxd_jail::report::{Failure, Step};

/// Drops every capability but these, from the bounding set first: what is not in it can never come back.
pub(crate) fn drop_to(kept: &[u8]) -> Result<(), Failure> {
    let step = at(Step::Capabilities);
    for number in 0..64_u8 {
        if kept.contains(&number) {
            continue;
        }
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // The kernel knows no more of them.
            Err(Errno::INVAL) => break,
            Err(errno) => return Err(step(errno)),
        }
    }
    let kept = kept
        .iter()
        .filter(|number| **number < 64)
        .fold(0, |bits, number| bits | (1_u64 << number));
    let kept = CapabilitySet::from_bits_retain(kept);
    clear_ambient_capability_set().map_err(&step)?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )
    .map_err(&step)
}

/// No exec may gain anything any more.
pub(crate) fn gain_no_more() -> Result<(), Failure> {
    set_no_new_privs(true).map_err(at(Step::NoNewPrivileges))
}
