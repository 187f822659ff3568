//! The launcher: one thread that makes sandboxes from plans.
//!
//! The daemon starts it with one end of a `SOCK_SEQPACKET` pair as standard input. It reads a plan, clones one child
//! for it (whose parent is the daemon), makes the mounts that need the host's privilege, hands them to the child, and
//! goes on to the next plan without waiting. It holds no state that a sandbox needs: it may be ended at any time.
//! When the daemon is gone, it removes what that instance left and exits.
//!
//! In reading order: [`launcher`] (the loop), [`spawn`] (one plan: clone, users, mounts, handover), [`mounts`] and
//! [`id_namespaces`] (what spawn needs for that), [`child`] (the steps in their order), [`steps`] (each of them); and
//! [`assign`] (the workspace of a sandbox that was parked without one). [`mod@aside`] (what older kernels need a namespace
//! for). [`quota`] (what sandboxes store at most). For sandboxes that reach the network: [`router`] (what they hang on),
//! [`join`] (containers that do too), [`uplink`] (its way out), [`netlink`] (the words).

mod aside;
mod assign;
mod child;
mod id_namespaces;
mod join;
mod launcher;
mod mounts;
mod netlink;
mod quota;
mod router;
mod spawn;
mod steps;
mod sys;
mod uplink;

use std::process::ExitCode;

fn main() -> ExitCode {
    match launcher::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[expect(
    clippy::print_stderr,
    reason = "standard error is the only place where a launcher that cannot speak to its daemon can speak"
)]
fn complain(error: &dyn std::fmt::Display) {
    eprintln!("sandboxd-jail: {error}");
}
