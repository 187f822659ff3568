//! The service gives up, before its first thread but this one, what it will not need.
//!
//! It takes requests of strangers and answers of guests; if one of them led it astray, it should be able to do little. The
//! launcher, which does what needs the host's power, is another program: as root it gets that power anew at its start, by
//! the kernel's rule for root, however often it is started again. So only the service itself goes without.

use crate::sys;
use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, capabilities_secure_bits,
    clear_ambient_capability_set, no_new_privs, set_capabilities, set_no_new_privs,
};
use std::io;

/// What a service that root started keeps, and what for.
const KEPT: &[(CapabilitySet, &str)] = &[
    (
        CapabilitySet::CHOWN,
        "workspaces and layers are given to the owners of stored files",
    ),
    (
        CapabilitySet::DAC_OVERRIDE,
        "stored files, cgroups and their like are others'",
    ),
    (CapabilitySet::FOWNER, "as above, where modes are changed"),
    (
        CapabilitySet::FSETID,
        "files of images keep the modes that they have there",
    ),
    (
        CapabilitySet::SETFCAP,
        "files of images keep the capabilities that they have there",
    ),
    (
        CapabilitySet::KILL,
        "sandboxes run as users of their own, and are ended",
    ),
    (
        CapabilitySet::NET_BIND_SERVICE,
        "it may be told to listen on a port below 1024",
    ),
];

/// Gives up everything that is not needed, for this thread and all that it starts.
///
/// # Errors
/// What the kernel says. A kernel that does not know a wall is no error: the wall is then missing.
pub(crate) fn confine() -> io::Result<()> {
    // Tokens are in its memory: no core file, and no look into it by others of the same user.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let core = Rlimit {
        current: Some(0),
        // What sandboxes are limited to, which is one byte, stays possible.
        maximum: getrlimit(Resource::Core).maximum,
    };
    setrlimit(Resource::Core, core)?;
    clear_ambient_capability_set()?;
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        set_no_new_privs(true)?;
    }
    // Before capabilities go: a filter needs one of them, or that no program gains any.
    filter()?;
    let sets = capabilities(None)?;
    if is_root && launcher_gets_power_anew() {
        let kept = KEPT
            .iter()
            .fold(CapabilitySet::empty(), |all, (kept, _)| all | *kept);
        set_capabilities(
            None,
            CapabilitySets {
                effective: sets.effective & kept,
                permitted: sets.permitted & kept,
                inheritable: CapabilitySet::empty(),
            },
        )?;
    } else if is_root {
        tracing::info!(
            "programs that this service starts could not get its power back, so it keeps all of it"
        );
    }
    Ok(())
}

/// Has the kernel refuse what no service needs. A root without power over its machine, as in a container, gives up that
/// programs gain any.
fn filter() -> io::Result<()> {
    let installed = match sys::refuse_what_no_service_needs() {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_no_new_privs(true)?;
            sys::refuse_what_no_service_needs()
        }
        other => other,
    };
    match installed {
        Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        other => other,
    }
}

/// Whether a program that root starts holds every capability of the bounding set, as it does where nobody has switched
/// that off.
fn launcher_gets_power_anew() -> bool {
    let switched_off =
        capabilities_secure_bits().is_ok_and(|bits| bits.contains(CapabilitiesSecureBits::NO_ROOT));
    !switched_off && !no_new_privs().unwrap_or(true)
}
