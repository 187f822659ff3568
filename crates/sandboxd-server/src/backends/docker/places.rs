//! Where directories of this daemon's lie for the engine: elsewhere, where the daemon runs in a container of the engine's
//! itself. The engine is then asked what it mounted there, since it binds its own host's directories and not ours.

use super::connect::{Engine, EngineError, unless_missing};
use crate::limits::ENGINE_ASK_SECONDS_MAX;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::InspectContainerOptions;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files that are in containers; and in what was once made from one, so they are a hint and no more.
const MARKS: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// What an engine mounts into every container from a directory that is named after it.
const OF_THE_ENGINE: [&str; 3] = ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"];
/// Digits of a container's whole id.
const ID_DIGITS: usize = 64;

/// Where the daemon's directories lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    /// Where they lie for the daemon.
    Same,
    /// Below mounts of the container that the daemon runs in: where they are inside, and on the engine's host.
    Mounted(Vec<(PathBuf, PathBuf)>),
}

/// What of this process can say in which container it is.
#[derive(Debug, Default)]
struct Traces {
    /// `/proc/self/mountinfo`.
    mounts: String,
    /// `/proc/self/cgroup`.
    cgroups: String,
    /// The host name, where the process may be in a container.
    hostname: Option<String>,
}

impl Places {
    /// Finds out, and whether stored workspaces can lie where they are to.
    ///
    /// # Errors
    /// Why they cannot.
    pub(super) async fn find(
        engine: &Engine,
        workspace_root: Option<&Path>,
    ) -> Result<Self, String> {
        let traces = Traces::of_this_process();
        let contained = !traces.of_mounts().is_empty();
        let mut found = None;
        for candidate in traces.candidates() {
            let asking = engine
                .client()
                .inspect_container(&candidate, None::<InspectContainerOptions>);
            let answer = engine
                .call(
                    "looking for our own container",
                    ENGINE_ASK_SECONDS_MAX,
                    asking,
                )
                .await;
            let answer = unless_missing(answer).map_err(|error: EngineError| error.to_string())?;
            found = answer.filter(|answer| is_it(answer, &candidate, &traces));
            if found.is_some() {
                break;
            }
        }
        let places = match &found {
            Some(ours) => Self::Mounted(mounts(ours)),
            None => Self::Same,
        };
        let Some(root) = workspace_root else {
            return Ok(places);
        };
        if found.is_none() && contained {
            return Err(format!(
                "workspace_root {}: this process is in a container that the container engine at {} does not know, so where the directory lies for the engine cannot be known",
                root.display(),
                engine.address()
            ));
        }
        let source = places.source(root)?;
        if source != root {
            tracing::info!(workspace_root = %root.display(), source = %source.display(), "stored workspaces lie on a mount of our own container");
        }
        Ok(places)
    }

    /// A directory of the daemon's, as the engine is told it.
    ///
    /// # Errors
    /// Where it is in the daemon's container only.
    pub(super) fn source(&self, path: &Path) -> Result<PathBuf, String> {
        let Self::Mounted(mounts) = self else {
            return Ok(path.to_owned());
        };
        let below = mounts
            .iter()
            .filter_map(|(inside, source)| Some((inside, source, path.strip_prefix(inside).ok()?)))
            .max_by_key(|(inside, _, _)| inside.components().count());
        match below {
            Some((_, source, rest)) if rest.as_os_str().is_empty() => Ok(source.clone()),
            Some((_, source, rest)) => Ok(source.join(rest)),
            None => Err(format!(
                "{} lies in this container itself, where the container engine cannot mount it from: mount a volume or a directory of the host there",
                path.display()
            )),
        }
    }
}

impl Traces {
    fn of_this_process() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let contained = MARKS.iter().any(|mark| Path::new(mark).exists());
        let traces = Self {
            mounts: read("/proc/self/mountinfo"),
            cgroups: read("/proc/self/cgroup"),
            hostname: None,
        };
        Self {
            hostname: contained.then(|| read("/proc/sys/kernel/hostname").trim().to_owned()),
            ..traces
        }
    }

    /// Ids of containers that this process may be in.
    fn candidates(&self) -> BTreeSet<String> {
        let of_cgroups = self.cgroups.lines().flat_map(ids);
        let mut all: BTreeSet<String> = self.of_mounts();
        all.extend(of_cgroups);
        // The usual name is the first digits; whoever set another one is found by the others.
        let short = self.hostname.iter();
        all.extend(
            short
                .filter(|name| name.len() == 12 && is_hex(name))
                .cloned(),
        );
        all
    }

    fn of_mounts(&self) -> BTreeSet<String> {
        let of_line = |line: &str| {
            let mut fields = line.split(' ').skip(3);
            let (source, place) = (fields.next()?, fields.next()?);
            OF_THE_ENGINE.contains(&place).then(|| ids(source))
        };
        self.mounts.lines().filter_map(of_line).flatten().collect()
    }
}

/// Whole ids of containers in a path, or in a line with one.
fn ids(text: &str) -> Vec<String> {
    let parts = text.split(|c: char| !c.is_ascii_hexdigit());
    parts
        .filter(|part| part.len() == ID_DIGITS && is_hex(part))
        .map(str::to_owned)
        .collect()
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Whether what the engine found by a candidate is the container of these traces.
fn is_it(found: &ContainerInspectResponse, candidate: &str, traces: &Traces) -> bool {
    let id = found.id.as_deref().unwrap_or_default();
    if candidate.len() == ID_DIGITS {
        return id == candidate;
    }
    let name = found
        .config
        .as_ref()
        .and_then(|config| config.hostname.as_deref());
    id.starts_with(candidate) && name.is_some() && name == traces.hostname.as_deref()
}

/// Where the container has what from.
fn mounts(found: &ContainerInspectResponse) -> Vec<(PathBuf, PathBuf)> {
    let mounts = found.mounts.iter().flatten();
    mounts
        .filter_map(|mount| {
            let (inside, source) = (mount.destination.as_ref()?, mount.source.as_ref()?);
            let writable = mount.rw.unwrap_or(true) && !source.is_empty();
            writable.then(|| (PathBuf::from(inside), PathBuf::from(source)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::{ContainerConfig, MountPoint};

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn traces(mounts: &str, cgroups: &str, hostname: Option<&str>) -> Traces {
        Traces {
            mounts: mounts.to_owned(),
            cgroups: cgroups.to_owned(),
            hostname: hostname.map(str::to_owned),
        }
    }

    #[test]
    fn every_trace_leads_to_the_container() {
        let docker = format!(
            "22 21 0:5 / /dev rw - devtmpfs dev rw\n629 624 254:0 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw,relatime - ext4 /dev/vda rw\n"
        );
        let podman = format!(
            "9 8 0:1 /containers/storage/overlay-containers/{ID}/userdata/hosts /etc/hosts rw - tmpfs tmpfs rw\n"
        );
        let cgroup = format!("4:memory:/docker/{ID}\n0::/\n");
        let scope = format!("0::/system.slice/docker-{ID}.scope\n");
        for found in [
            traces(&docker, "", None),
            traces(&podman, "", None),
            traces("", &cgroup, None),
            traces("", &scope, None),
        ] {
            assert_eq!(found.candidates(), BTreeSet::from([ID.to_owned()]));
        }
        let named = traces("", "", Some("0123456789ab"));
        assert_eq!(
            named.candidates(),
            BTreeSet::from(["0123456789ab".to_owned()])
        );
    }

    #[test]
    fn what_a_host_has_mounted_of_its_containers_says_nothing() {
        let host = format!(
            "629 624 0:52 / /var/lib/docker/overlay2/{ID}/merged rw - overlay overlay rw\n63 62 0:4 / /var/lib/docker/containers/{ID}/mounts/shm rw - tmpfs shm rw\n"
        );
        assert!(
            traces(&host, "0::/user.slice\n", None)
                .candidates()
                .is_empty()
        );
        assert!(traces("", "", Some("my-laptop")).candidates().is_empty());
    }

    #[test]
    fn a_short_name_has_to_be_the_containers_own() {
        let found = |name: &str| ContainerInspectResponse {
            id: Some(ID.to_owned()),
            config: Some(ContainerConfig {
                hostname: Some(name.to_owned()),
                ..ContainerConfig::default()
            }),
            ..ContainerInspectResponse::default()
        };
        let traces = traces("", "", Some("0123456789ab"));
        assert!(is_it(&found("0123456789ab"), "0123456789ab", &traces));
        assert!(!is_it(&found("other"), "0123456789ab", &traces));
        assert!(is_it(&found("other"), ID, &traces));
    }

    #[test]
    fn the_nearest_mount_is_where_a_directory_comes_from() {
        let mount = |inside: &str, source: &str, rw| MountPoint {
            destination: Some(inside.to_owned()),
            source: Some(source.to_owned()),
            rw: Some(rw),
            ..MountPoint::default()
        };
        let found = ContainerInspectResponse {
            mounts: Some(vec![
                mount("/data", "/srv/data", true),
                mount("/data/workspaces", "/var/lib/docker/volumes/w/_data", true),
                mount("/fixed", "/srv/fixed", false),
            ]),
            ..ContainerInspectResponse::default()
        };
        let places = Places::Mounted(mounts(&found));
        let of = |path: &str| places.source(Path::new(path));
        assert_eq!(of("/data/x"), Ok("/srv/data/x".into()));
        assert_eq!(
            of("/data/workspaces/s/workspace"),
            Ok("/var/lib/docker/volumes/w/_data/s/workspace".into())
        );
        assert_eq!(
            of("/data/workspaces"),
            Ok("/var/lib/docker/volumes/w/_data".into())
        );
        assert!(of("/elsewhere").unwrap_err().contains("mount a volume"));
        assert!(of("/fixed/x").is_err());
        assert_eq!(Places::Same.source(Path::new("/a")), Ok("/a".into()));
    }
}
