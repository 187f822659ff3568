//! What a session's sandbox is to be, from the settings in force and its runtime: pure.

use crate::backends::{Asked, HostWorkspace, Network, PreparedImage, SandboxSpec};
use crate::config::Service;
use crate::runtimes::Runtime;
use crate::runtimes::environment::environment;
use std::path::PathBuf;

/// The host name inside every sandbox.
const HOSTNAME: &str = "sandbox";

/// Why there is no such sandbox on any backend that exists.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// The image names a user for its programs that it does not have.
    #[error("the image's own user cannot be used: {0}; the runtime can be given another")]
    ImageUser(String),
}

/// The uid that runs of this runtime have inside; absent means the image's own, or root inside. Nobody built an account
/// into an image that is ready-made: the service's uid is none of its users.
pub(super) fn user_of(service: &Service, runtime: &Runtime) -> Option<u32> {
    let shared = service.sandbox_uid.filter(|_| runtime.source.has_account());
    runtime.user.or(shared)
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
    let network = ceilings
        .network_mode
        .as_ref()
        .or(shared.values.network_mode.as_ref());
    let network = match network.map(String::as_str) {
        None | Some("none") => Network::None,
        Some("bridge") => Network::Bridge,
        Some(name) => Network::Named(name.to_owned()),
    };
    let oci_runtime = ceilings
        .oci_runtime
        .as_ref()
        .or(shared.values.oci_runtime.as_ref());
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
        session: None,
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
        oci_runtime: oci_runtime.cloned(),
        user,
        group,
        keep_layer: service.persist_containers,
        allow_unenforced: service.allow_unenforced.clone(),
        unmet: Vec::new(),
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
    use crate::runtimes::Source;

    #[test]
    fn the_services_uid_is_for_runtimes_that_have_an_account_for_it() {
        let layers = Layers {
            flags: Flags::default(),
            env: vec![("HOME".into(), "/nonexistent".into())],
            file: None,
            root: true,
        };
        let mut service = layers.read().unwrap().0.service;
        service.sandbox_uid = Some(1000);
        let user = |source: Source, own: Option<u32>| {
            let runtime = Runtime {
                user: own,
                ..Runtime::plain("x", "x", source)
            };
            user_of(&service, &runtime)
        };
        let recipe = || Source::Recipe(crate::runtimes::recipe::Recipe::of("x", "b:1"));
        let image = || Source::Image("b:1".to_owned());
        assert_eq!(user(Source::Host, None), Some(1000));
        assert_eq!(user(recipe(), None), Some(1000));
        assert_eq!(user(image(), None), None);
        assert_eq!(user(Source::Directory("/srv/x".into()), None), None);
        // Who asks for one for an image means it.
        assert_eq!(user(image(), Some(7)), Some(7));
    }
}
