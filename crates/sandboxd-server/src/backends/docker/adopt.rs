//! Containers that the Python service made, taken over with what is in them: `sandboxd-` and the session's id, `sleep
//! infinity` under the engine's init, no labels.
//!
//! Their command cannot be changed and labels cannot be added. So the guest is copied in and started with one `exec` per
//! wake, beside that command and not as the first process; and which sandbox is in which container is written down in the
//! state directory. What can be changed of such a container, its ceilings, is; what cannot has to be as it is asked for.

use super::connect::{Engine, EngineError};
use super::container::{GUEST, LABEL_STATE, arguments, environment};
use super::create::{inspect, step};
use super::ending;
use super::link::AttachedLink;
use super::{Inner, create};
use crate::backends::{CreateError, Network, SandboxSpec};
use crate::id::{SandboxId, SessionId};
use crate::limits::ENGINE_ACT_SECONDS_MAX;
use bollard::exec::StartExecResults;
use bollard::models::{ContainerInspectResponse, ExecConfig};
use std::io;
use std::path::{Path, PathBuf};

/// What the Python service's containers run.
const COMMAND: [&str; 2] = ["sleep", "infinity"];

/// Which sandboxes are in containers without labels.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The engine's id for the container.
    pub(super) container: String,
    /// The instance of the daemon that used it last.
    pub(super) instance: String,
}

impl Records {
    /// In this state directory.
    pub(super) fn new(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.join("adopted"),
        }
    }

    fn file(&self, id: &SandboxId) -> PathBuf {
        self.directory.join(id.as_str())
    }

    /// That of a sandbox.
    pub(super) async fn read(&self, id: &SandboxId) -> io::Result<Option<Record>> {
        match tokio::fs::read_to_string(self.file(id)).await {
            Ok(text) => Ok(parse(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes one down, whole or not at all.
    async fn write(&self, id: &SandboxId, record: &Record) -> io::Result<()> {
        tokio::fs::create_dir_all(&self.directory).await?;
        let making = self.directory.join(format!(".{id}"));
        let text = format!("{} {}\n", record.container, record.instance);
        tokio::fs::write(&making, text).await?;
        tokio::fs::rename(&making, self.file(id)).await
    }

    /// Strikes one out; none there is fine.
    pub(super) async fn remove(&self, id: &SandboxId) -> io::Result<()> {
        match tokio::fs::remove_file(self.file(id)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// All of them.
    pub(super) async fn all(&self) -> io::Result<Vec<(SandboxId, Record)>> {
        let mut entries = match tokio::fs::read_dir(&self.directory).await {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| SandboxId::parse(name).ok()) else {
                continue;
            };
            if let Some(record) = self.read(&id).await? {
                all.push((id, record));
            }
        }
        Ok(all)
    }
}

fn parse(text: &str) -> Option<Record> {
    let (container, instance) = text.trim().split_once(' ')?;
    let is_id = !container.is_empty() && container.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| Record {
        container: container.to_owned(),
        instance: instance.to_owned(),
    })
}

/// The name that the Python service gives a session's container, and we give those that are kept.
pub(super) fn name(session: &SessionId) -> String {
    format!("sandboxd-{session}")
}

/// Looks for a container of this session's name before one is made: the Python service's is taken over, what is left of a
/// closed session of ours is removed, and anybody else's is in the way.
pub(super) async fn find(
    inner: &Inner,
    id: &SandboxId,
    spec: &SandboxSpec,
    session: &SessionId,
) -> Result<Option<ContainerInspectResponse>, CreateError> {
    let name = name(session);
    let Some(looked) = inspect(&inner.engine, &name).await? else {
        return Ok(None);
    };
    let in_the_way = |why: &str| {
        let cause = format!("{why}; docker rm {name} makes room for a new one");
        Err(step(format!("taking the container {name} over"), cause))
    };
    let Some(container) = looked.id.clone() else {
        return in_the_way("the engine does not say its id");
    };
    let config = looked.config.clone().unwrap_or_default();
    let labels = config.labels.unwrap_or_default();
    match labels.get(LABEL_STATE) {
        Some(state) if *state == inner.state => {
            ending::remove_container(&inner.engine, &container).await?;
            return Ok(None);
        }
        Some(_) => return in_the_way("it belongs to another sandboxd"),
        None => {}
    }
    if config.cmd.unwrap_or_default() != COMMAND {
        return in_the_way("it was not made by a sandboxd");
    }
    if let Err(why) = fits(spec, &looked) {
        return in_the_way(&why);
    }
    create::same_place(inner, spec, &looked)?;
    let record = Record {
        container: container.clone(),
        instance: inner.instance.name.clone(),
    };
    let written = inner.records.write(id, &record).await;
    written.map_err(|error| step("writing down the container that is taken over", error))?;
    tracing::info!(sandbox = %id, container, name, "took over a container of the Python service's");
    Ok(Some(looked))
}

/// Whether a container has no more than a sandbox may have, and the network that is asked for.
fn fits(spec: &SandboxSpec, looked: &ContainerInspectResponse) -> Result<(), String> {
    let host = looked.host_config.clone().unwrap_or_default();
    let own = |mode: &Option<String>| {
        matches!(mode.as_deref(), None | Some("" | "private" | "shareable"))
    };
    if host.privileged == Some(true)
        || !own(&host.pid_mode)
        || !own(&host.ipc_mode)
        || !own(&host.uts_mode)
        || host.cap_add.is_some_and(|all| !all.is_empty())
        || host.devices.is_some_and(|all| !all.is_empty())
    {
        return Err("it has rights over its host".to_owned());
    }
    let mounts = looked.mounts.iter().flatten();
    let mut strange = mounts.filter(|mount| mount.destination.as_deref() != Some(&spec.work_dir));
    if let Some(mount) = strange.next() {
        return Err(format!(
            "something is mounted in it at {}",
            mount.destination.as_deref().unwrap_or("?")
        ));
    }
    let security = host.security_opt.unwrap_or_default();
    if !security
        .iter()
        .any(|option| option.starts_with("no-new-privileges") && !option.ends_with("false"))
    {
        return Err("programs in it can gain privileges".to_owned());
    }
    let has = host.network_mode.unwrap_or_default();
    let wants = match &spec.network {
        Network::None => "none",
        Network::Bridge => "none",
        Network::Named(name) => name,
    };
    if has != wants {
        return Err(format!("its network is {has:?}, and should be {wants:?}"));
    }
    Ok(())
}

/// Whether a container is one of those: it has no label of ours.
pub(super) fn is_adopted(looked: &ContainerInspectResponse) -> bool {
    let labels = looked
        .config
        .as_ref()
        .and_then(|config| config.labels.as_ref());
    labels.is_none_or(|labels| !labels.contains_key(LABEL_STATE))
}

/// Writes down that this instance uses it now.
pub(super) async fn note_use(
    inner: &Inner,
    id: &SandboxId,
    container: &str,
) -> Result<(), CreateError> {
    let record = Record {
        container: container.to_owned(),
        instance: inner.instance.name.clone(),
    };
    let written = inner.records.write(id, &record).await;
    written.map_err(|error| step("writing down who uses the container", error))
}

/// Starts the guest in a container that runs already, and gives the link to it.
pub(super) async fn start_guest(
    engine: &Engine,
    id: &SandboxId,
    spec: &SandboxSpec,
    container: &str,
) -> Result<AttachedLink, CreateError> {
    let mut command = vec![GUEST.to_owned()];
    command.extend(arguments(spec));
    let env = environment(spec).map_err(|error| step("planning the guest", error))?;
    let config = ExecConfig {
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        tty: Some(false),
        env: Some(env),
        cmd: Some(command),
        privileged: Some(false),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        ..ExecConfig::default()
    };
    let making = engine.client().create_exec(container, config);
    let made = engine
        .call(
            "preparing the guest's start",
            ENGINE_ACT_SECONDS_MAX,
            making,
        )
        .await?;
    let starting = engine.client().start_exec(&made.id, None);
    let started = engine
        .call("starting the guest", ENGINE_ACT_SECONDS_MAX, starting)
        .await?;
    match started {
        StartExecResults::Attached { output, input } => {
            Ok(AttachedLink::new(id.clone(), output, input))
        }
        StartExecResults::Detached => Err(step("starting the guest", "the engine gave no stream")),
    }
}

/// Ends what instances that are no more have left running in such containers, and forgets containers that are gone.
pub(super) async fn sweep(
    inner: &Inner,
    alive: &std::collections::BTreeSet<String>,
) -> Result<usize, EngineError> {
    let records = match inner.records.all().await {
        Ok(records) => records,
        Err(error) => {
            tracing::error!(%error, "which containers were taken over cannot be read");
            return Ok(0);
        }
    };
    let mut ended = 0;
    for (id, record) in records {
        let Some(looked) = inspect(&inner.engine, &record.container).await? else {
            if let Err(error) = inner.records.remove(&id).await {
                tracing::warn!(%id, %error, "a container that is gone was not forgotten");
            }
            continue;
        };
        let status = looked.state.and_then(|state| state.status);
        if !alive.contains(&record.instance) && create::is_alive(status) {
            ending::kill(&inner.engine, &record.container).await?;
            ended += 1;
        }
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::{HostConfig, MountPoint};

    #[tokio::test]
    async fn records_are_kept_until_they_are_struck_out() {
        let home = tempfile::tempdir().unwrap();
        let records = Records::new(home.path());
        let id = SandboxId::generate();
        assert_eq!(records.read(&id).await.unwrap(), None);
        assert_eq!(records.all().await.unwrap(), []);
        let record = Record {
            container: "0f".repeat(32),
            instance: "me".to_owned(),
        };
        records.write(&id, &record).await.unwrap();
        assert_eq!(records.read(&id).await.unwrap().as_ref(), Some(&record));
        std::fs::write(home.path().join("adopted/not an id"), "x").unwrap();
        assert_eq!(records.all().await.unwrap(), [(id.clone(), record)]);
        records.remove(&id).await.unwrap();
        records.remove(&id).await.unwrap();
        assert_eq!(records.read(&id).await.unwrap(), None);
        assert_eq!(parse("../../x me"), None);
    }

    #[test]
    fn only_what_has_no_more_than_a_sandbox_may_have_is_taken_over() {
        let spec = super::super::container::tests::spec();
        let old = |change: &dyn Fn(&mut ContainerInspectResponse, &mut HostConfig)| {
            let mut host = HostConfig {
                network_mode: Some("none".to_owned()),
                security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
                ..HostConfig::default()
            };
            let mut looked = ContainerInspectResponse::default();
            change(&mut looked, &mut host);
            looked.host_config = Some(host);
            fits(&spec, &looked)
        };
        assert_eq!(old(&|_, _| {}), Ok(()));
        assert!(old(&|_, host| host.privileged = Some(true)).is_err());
        assert!(old(&|_, host| host.pid_mode = Some("host".to_owned())).is_err());
        assert!(old(&|_, host| host.security_opt = None).is_err());
        let network = old(&|_, host| host.network_mode = Some("bridge".to_owned()));
        assert!(network.unwrap_err().contains("\"bridge\""));
        let mounted = old(&|looked, _| {
            looked.mounts = Some(vec![MountPoint {
                destination: Some("/var/run/docker.sock".to_owned()),
                ..MountPoint::default()
            }]);
        });
        assert!(mounted.unwrap_err().contains("/var/run/docker.sock"));
    }
}
