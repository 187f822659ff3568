//! What a session's sandbox is to be, from the settings in force and its runtime: pure.

use crate::backends::{Asked, Ceiling, HostWorkspace, Network, PreparedImage, SandboxSpec};
use crate::config::Service;
use crate::runtimes::Runtime;
use crate::runtimes::environment::environment;
use std::path::PathBuf;

/// The host name inside every sandbox.
const HOSTNAME: &str = "sandbox";

/// Why there is no such sandbox on any backend that exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A network of a container engine's, by its name.
    #[error(
        "network mode {0:?} cannot be given: this backend has \"none\" and \"bridge\", and no container engine's networks (allow_unenforced = [\"network\"] gives no network instead)"
    )]
    Network(String),
    /// The image names a user for its programs that it does not have.
    #[error("the image's own user cannot be used: {0}; the runtime can be given another")]
    ImageUser(String),
    /// A container runtime by name.
    #[error(
        "OCI runtime {0:?} cannot be used by this backend (allow_unenforced = [\"oci_runtime\"] goes on without)"
    )]
    OciRuntime(String),
}

/// The uid that runs of this runtime have inside; absent means root inside.
pub(super) fn user_of(service: &Service, runtime: &Runtime) -> Option<u32> {
    runtime.user.or(service.sandbox_uid)
}

/// The specification. A runtime's own ceiling was set by somebody; the service's says itself whether it was.
pub fn sandbox_spec(
    service: &Service,
    runtime: &Runtime,
    image: PreparedImage,
    workspace: Option<PathBuf>,
) -> Result<SandboxSpec, SpecError> {
    let ceilings = &runtime.ceilings;
    let shared = &service.ceilings;
    let accepts = |ceiling| service.allow_unenforced.contains(&ceiling);
    let mut unmet = Vec::new();
    let network = ceilings
        .network_mode
        .as_ref()
        .or(shared.values.network_mode.as_ref());
    let network = match network.map(String::as_str) {
        None | Some("none") => Network::None,
        Some("bridge") => Network::Bridge,
        Some(name) if accepts(Ceiling::Network) => {
            let why = format!("this backend has no network {name:?}; there is none instead");
            unmet.push((Ceiling::Network, why));
            Network::None
        }
        Some(name) => return Err(SpecError::Network(name.to_owned())),
    };
    let oci = ceilings
        .oci_runtime
        .as_ref()
        .or(shared.values.oci_runtime.as_ref());
    match oci {
        Some(name) if accepts(Ceiling::OciRuntime) => {
            let why = format!("this backend starts no container runtime {name:?}");
            unmet.push((Ceiling::OciRuntime, why));
        }
        Some(name) => return Err(SpecError::OciRuntime(name.clone())),
        None => {}
    }
    let own = user_of(service, runtime);
    let of_image = match (own, image.defaults().map(|defaults| &defaults.user)) {
        (None, Some(Err(why))) => return Err(SpecError::ImageUser(why.clone())),
        (None, Some(Ok(user))) => user.as_ref(),
        _ => None,
    };
    let user = own.or(of_image.map(|user| user.uid));
    let group = of_image.map(|user| user.gid);
    Ok(SandboxSpec {
        env: environment(runtime, user, image.defaults()),
        image,
        work_dir: service.work_dir.clone(),
        workspace: workspace.map(|path| HostWorkspace {
            path,
            managed: true,
        }),
        hostname: HOSTNAME.to_owned(),
        memory_bytes: asked(
            ceilings.memory_bytes,
            shared.values.memory_bytes,
            shared.memory_explicit,
        ),
        // A swap ceiling beside a memory ceiling of another source would mean something nobody asked for.
        memory_swap_bytes: if ceilings.memory_bytes.is_some()
            || ceilings.memory_swap_bytes.is_some()
        {
            asked(ceilings.memory_swap_bytes, None, true)
        } else {
            asked(None, shared.values.memory_swap_bytes, true)
        },
        cpus: asked(ceilings.cpus, shared.values.cpus, shared.cpus_explicit),
        cpu_shares: asked(ceilings.cpu_shares, shared.values.cpu_shares, true),
        pids: asked(ceilings.pids, shared.values.pids, shared.pids_explicit),
        disk_bytes: asked(
            ceilings.disk_bytes,
            shared.values.disk_bytes,
            shared.disk_bytes_explicit,
        ),
        disk_files: asked(
            ceilings.disk_files,
            shared.values.disk_files,
            shared.disk_files_explicit,
        ),
        tmpfs_bytes: service.tmpfs_bytes,
        network,
        user,
        group,
        keep_layer: service.persist_containers,
        allow_unenforced: service.allow_unenforced.clone(),
        unmet,
    })
}

fn asked<T>(own: Option<T>, shared: Option<T>, shared_explicit: bool) -> Option<Asked<T>> {
    match (own, shared) {
        (Some(value), _) => Some(Asked {
            value,
            explicit: true,
        }),
        (None, Some(value)) => Some(Asked {
            value,
            explicit: shared_explicit,
        }),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, Layers};

    fn service(change: impl FnOnce(&mut Service)) -> Service {
        let layers = Layers {
            flags: Flags::default(),
            env: vec![("HOME".into(), "/nonexistent".into())],
            file: None,
            root: true,
        };
        let mut service = layers.read().unwrap().0.service;
        change(&mut service);
        service
    }

    fn specified(service: &Service) -> Result<SandboxSpec, SpecError> {
        let runtime = &service.runtimes[&service.default_runtime];
        sandbox_spec(service, runtime, PreparedImage::Empty, None)
    }

    #[test]
    fn a_name_that_means_nothing_here_is_refused_by_name_or_reported_where_that_is_accepted() {
        let named = |accepted: &[Ceiling]| {
            let accepted = accepted.to_vec();
            service(move |service| {
                let values = &mut service.ceilings.values;
                values.network_mode = Some("my-net".to_owned());
                values.oci_runtime = Some("runsc".to_owned());
                service.allow_unenforced = accepted;
            })
        };
        let refused = specified(&named(&[])).unwrap_err().to_string();
        assert!(
            refused.contains("\"my-net\"") && refused.contains("[\"network\"]"),
            "{refused}"
        );
        let refused = specified(&named(&[Ceiling::Network]))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("\"runsc\"") && refused.contains("[\"oci_runtime\"]"),
            "{refused}"
        );
        let spec = specified(&named(&[Ceiling::Network, Ceiling::OciRuntime])).unwrap();
        assert_eq!(spec.network, Network::None);
        let unmet: Vec<Ceiling> = spec.unmet.iter().map(|(ceiling, _)| *ceiling).collect();
        assert_eq!(unmet, [Ceiling::Network, Ceiling::OciRuntime]);
        assert!(specified(&service(|_| {})).unwrap().unmet.is_empty());
    }
}
