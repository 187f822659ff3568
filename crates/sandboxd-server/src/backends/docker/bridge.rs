//! `network_mode = "bridge"`: the same router, with the same rules, as that of the namespaces backend.
//!
//! No network of the engine's is used, whose rules would be another list, by another program, for another version. A
//! container is made without any network; once its first process is there, the launcher joins its network namespace to
//! the router. That process is the guest, which does nothing before it is asked. So the engine's own name server, which
//! asks from its host's network, is never there either.

use super::connect::{Abilities, Engine};
use super::places::Places;
use crate::backends::instance::Instance;
use crate::backends::namespaces::launch::Launcher;
use crate::backends::namespaces::network::{self, Join, Joined, Networks};
use crate::backends::namespaces::probe;
use crate::backends::namespaces::program_file::ProgramFile;
use crate::backends::{Ceiling, CreateError, Enforcement, Network, SandboxSpec};
use crate::egress::Egress;
use rustix::thread::CapabilitySet;
use std::io;
use std::sync::Arc;

/// OCI runtimes whose programs have the kernel's own network, so that an interface that comes after the start is theirs.
/// Others bring a network stack of their own, or a machine.
const PLAIN_RUNTIMES: [&str; 3] = ["runc", "crun", "youki"];

/// How containers get it, or why they do not.
#[derive(Debug)]
pub(super) struct Bridge(Result<Ways, String>);

#[derive(Debug)]
struct Ways {
    networks: Networks,
    /// Started with the first container that needs it.
    launcher: Launcher,
}

/// A container's address; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Address {
    bridge: Arc<Bridge>,
    number: u16,
}

impl Drop for Address {
    fn drop(&mut self) {
        if let Ok(ways) = &self.bridge.0 {
            ways.networks.give_back(Some(self.number));
        }
    }
}

impl Bridge {
    /// Looks at what there is. It takes an engine on this host, and root's power over its network.
    pub(super) fn look(
        engine: &Engine,
        places: &Places,
        egress: Egress,
        launcher: &[u8],
        instance: &Instance,
    ) -> io::Result<Self> {
        if let Err(why) = possible(engine, places) {
            return Ok(Self(Err(why.to_owned())));
        }
        let networks = Networks::look(egress, true, instance);
        if let Enforcement::Unenforced(why) = networks.enforcement() {
            return Ok(Self(Err(why)));
        }
        let program = ProgramFile::of_launcher(launcher, &instance.directory)?;
        let lock = instance.lock.try_clone()?;
        Ok(Self(Ok(Ways {
            networks,
            launcher: Launcher::new(program, instance.told(&[]), lock),
        })))
    }

    /// Whether a sandbox can have it, and how.
    pub(super) fn enforcement(&self) -> Enforcement {
        match &self.0 {
            Ok(ways) => ways.networks.enforcement(),
            Err(why) => Enforcement::Unenforced(why.clone()),
        }
    }

    /// Finds a sandbox that asks for it an address, before its container is made.
    ///
    /// # Errors
    /// Where it cannot be had, and whoever asks has not accepted that.
    pub(super) async fn join(
        &self,
        spec: &SandboxSpec,
        abilities: &Abilities,
    ) -> Result<Join, CreateError> {
        if spec.network != Network::Bridge {
            return Ok(Join::Loopback);
        }
        let accepted = spec.allow_unenforced.contains(&Ceiling::Network);
        let runtime = spec.oci_runtime.as_deref();
        let runtime = runtime.unwrap_or(&abilities.default_runtime);
        match &self.0 {
            Err(why) => network::without(why.clone(), accepted),
            Ok(_) if !is_plain(runtime, abilities) => {
                let why = format!(
                    "the container runtime {runtime:?} is not known to give programs the kernel's own network, as {} do",
                    PLAIN_RUNTIMES.join(", ")
                );
                network::without(why, accepted)
            }
            Ok(ways) => {
                network::join(&ways.networks, &ways.launcher, &spec.network, accepted).await
            }
        }
    }

    /// Joins a container that has just started to the router.
    ///
    /// # Errors
    /// Why not, in words.
    pub(super) async fn attach(
        &self,
        joined: &Joined,
        container: &str,
        first: Option<i64>,
    ) -> Result<(), String> {
        let first = first.and_then(|first| i32::try_from(first).ok());
        let (Ok(ways), Some(first)) = (&self.0, first) else {
            return Err("the container has ended already".to_owned());
        };
        let joining = ways.launcher.join(first, container, joined.number);
        joining.await.map_err(|error| error.to_string())
    }

    /// The address of a sandbox, for as long as it has it.
    pub(super) fn hold(self: &Arc<Self>, join: &Join) -> Option<Address> {
        join.joined().map(|joined| Address {
            bridge: Arc::clone(self),
            number: joined.number,
        })
    }

    /// Takes away what there is of it on the host.
    pub(super) async fn end(&self) {
        if let Ok(ways) = &self.0 {
            ways.launcher.end().await;
        }
    }
}

fn possible(engine: &Engine, places: &Places) -> Result<(), &'static str> {
    let power = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    if !engine.is_local() {
        return Err(
            "the engine is reached over the network, and the rules would be needed on its host",
        );
    }
    if matches!(places, Places::Mounted(_)) {
        return Err(
            "the service runs in a container, whose network is not that of the engine's host",
        );
    }
    if !rustix::process::geteuid().is_root() || !probe::launcher_holds(power) {
        return Err(
            "it takes root with CAP_NET_ADMIN and CAP_SYS_ADMIN on the engine's host, which this service is not",
        );
    }
    Ok(())
}

/// Whether an OCI runtime, by the engine's name for it, is one of those that are known.
fn is_plain(runtime: &str, abilities: &Abilities) -> bool {
    let program = abilities.runtimes.get(runtime);
    let program = program.filter(|program| !program.is_empty());
    let name = program.map_or(runtime, String::as_str);
    let name = name.rsplit('/').next().unwrap_or(name);
    PLAIN_RUNTIMES.contains(&name) || name == "io.containerd.runc.v2"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_is_known_by_its_program_and_not_by_its_name() {
        let abilities = Abilities {
            runtimes: [
                ("runc", "runc"),
                ("mine", "/usr/local/bin/crun"),
                ("crun", "/usr/bin/runsc"),
                ("io.containerd.runc.v2", ""),
                ("kata", "io.containerd.kata.v2"),
            ]
            .map(|(name, program)| (name.to_owned(), program.to_owned()))
            .into(),
            ..Abilities::default()
        };
        for name in ["runc", "mine", "io.containerd.runc.v2"] {
            assert!(is_plain(name, &abilities), "{name}");
        }
        for name in ["crun", "kata", "unknown", ""] {
            assert!(!is_plain(name, &abilities), "{name}");
        }
    }
}
