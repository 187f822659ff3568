//! The child becomes the root of its own user namespace. With a single mapping it already is who it is.

use crate::spawn::at;
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use sandboxd_jail::plan::Users;
use sandboxd_jail::report::{Failure, Step};

/// Takes uid and gid 0 of a range, and no other group.
pub(crate) fn take(users: Users) -> Result<(), Failure> {
    if users.is_range() {
        set_thread_groups(&[]).map_err(at(Step::Identity))?;
        set_thread_res_gid(Gid::ROOT, Gid::ROOT, Gid::ROOT).map_err(at(Step::Identity))?;
        set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).map_err(at(Step::Identity))?;
    }
    Ok(())
}
