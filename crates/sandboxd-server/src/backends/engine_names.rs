//! What only a container engine knows by name, for backends that are none: refused by that name, or left out and reported
//! where somebody accepts that.

use super::{Ceiling, CreateError, Network, SandboxSpec};
use std::borrow::Cow;

/// A specification without a container engine's networks and runtimes.
///
/// # Errors
/// One that asks for such, unless the ceiling is accepted to be unenforced.
pub(super) fn left_out(spec: &SandboxSpec) -> Result<Cow<'_, SandboxSpec>, CreateError> {
    let mut own = Cow::Borrowed(spec);
    if let Network::Named(name) = &spec.network {
        if !spec.allow_unenforced.contains(&Ceiling::Network) {
            let cause = format!(
                "this backend has \"none\" and \"bridge\", and no container engine's network {name:?}"
            );
            return Err(CreateError::Unenforceable {
                ceiling: Ceiling::Network,
                cause,
            });
        }
        let why = format!("this backend has no network {name:?}; there is none instead");
        let own = own.to_mut();
        own.network = Network::None;
        own.unmet.push((Ceiling::Network, why));
    }
    if let Some(name) = &spec.oci_runtime {
        let why = format!("this backend starts no container runtime {name:?}");
        if !spec.allow_unenforced.contains(&Ceiling::OciRuntime) {
            return Err(CreateError::Unenforceable {
                ceiling: Ceiling::OciRuntime,
                cause: why,
            });
        }
        let own = own.to_mut();
        own.oci_runtime = None;
        own.unmet.push((Ceiling::OciRuntime, why));
    }
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::PreparedImage;
    use std::collections::BTreeMap;

    fn asked(change: impl FnOnce(&mut SandboxSpec)) -> SandboxSpec {
        let mut spec = SandboxSpec {
            image: PreparedImage::Empty,
            env: BTreeMap::new(),
            work_dir: "/workspace".to_owned(),
            workspace: None,
            hostname: "sandbox".to_owned(),
            session: None,
            memory_bytes: None,
            memory_swap_bytes: None,
            cpus: None,
            cpu_shares: None,
            pids: None,
            disk_bytes: None,
            disk_files: None,
            tmpfs_bytes: None,
            network: Network::None,
            oci_runtime: None,
            user: None,
            group: None,
            keep_layer: false,
            allow_unenforced: Vec::new(),
            unmet: Vec::new(),
        };
        change(&mut spec);
        spec
    }

    #[test]
    fn a_name_that_means_nothing_here_is_refused_by_name_or_reported_where_that_is_accepted() {
        let named = |accepted: &[Ceiling]| {
            let accepted = accepted.to_vec();
            asked(move |spec| {
                spec.network = Network::Named("my-net".to_owned());
                spec.oci_runtime = Some("runsc".to_owned());
                spec.allow_unenforced = accepted;
            })
        };
        let refused = left_out(&named(&[])).unwrap_err().to_string();
        assert!(
            refused.contains("\"my-net\"") && refused.contains("[\"network\"]"),
            "{refused}"
        );
        let refused = left_out(&named(&[Ceiling::Network]))
            .unwrap_err()
            .to_string();
        assert!(
            refused.contains("\"runsc\"") && refused.contains("[\"oci_runtime\"]"),
            "{refused}"
        );
        let spec = named(&[Ceiling::Network, Ceiling::OciRuntime]);
        let spec = left_out(&spec).unwrap().into_owned();
        assert_eq!((spec.network, spec.oci_runtime), (Network::None, None));
        let unmet: Vec<Ceiling> = spec.unmet.iter().map(|(ceiling, _)| *ceiling).collect();
        assert_eq!(unmet, [Ceiling::Network, Ceiling::OciRuntime]);
        let plain = asked(|_| {});
        assert!(matches!(left_out(&plain), Ok(Cow::Borrowed(_))));
    }
}
