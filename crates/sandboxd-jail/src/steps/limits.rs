//! Limits that processes carry themselves and hand on to what they start.

use crate::spawn::{at, on};
use rustix::process::{Resource as KernelResource, Rlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use sandboxd_jail::plan::{Limits, Resource};
use sandboxd_jail::report::{Failure, Step};

/// Sets them.
pub(crate) fn set(limits: &Limits) -> Result<(), Failure> {
    for limit in &limits.resources {
        let resource = match limit.resource {
            Resource::OpenFiles => KernelResource::Nofile,
            Resource::Core => KernelResource::Core,
            Resource::Processes => KernelResource::Nproc,
            Resource::LockedMemory => KernelResource::Memlock,
            Resource::MessageQueues => KernelResource::Msgqueue,
            Resource::FileSize => KernelResource::Fsize,
        };
        // Never more than the daemon itself may: raising needs a capability of the host's.
        let most = rustix::process::getrlimit(resource).maximum;
        let value = most.map_or(limit.value, |most| most.min(limit.value));
        let both = Rlimit {
            current: Some(value),
            maximum: Some(value),
        };
        let name = format!("{:?}", limit.resource);
        setrlimit(resource, both).map_err(on(Step::Resources, &name))?;
    }
    if !limits.cpus.is_empty() {
        let mut set = CpuSet::new();
        for cpu in &limits.cpus {
            if usize::from(*cpu) < CpuSet::MAX_CPU {
                set.set(usize::from(*cpu));
            }
        }
        sched_setaffinity(None, &set).map_err(at(Step::Affinity))?;
    }
    Ok(())
}
