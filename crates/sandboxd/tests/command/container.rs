//! The service as a container: the image of `packaging/Dockerfile`, run as `packaging/compose.yaml` says, beside the engine
//! of the tests.

use crate::compose::{Composed, composed};
use crate::support::{is_root, text};
use sandboxd_client::{Command as Ask, Service};
use sandboxd_server::config::{EngineAddress, Flags, Layers};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The service's token.
const TOKEN: &str = "the-token-of-a-container";
/// A runtime of the built-in list, whose image the tests' engine has.
const RUNTIME: &str = "python";

/// It, and it with what a service in a container has not got.
const RUNTIMES: &str = "python=python:3.12-slim,out=python:3.12-slim;network_mode=bridge,little=python:3.12-slim;disk_limit=100m";
/// How long a service may take until its image's own probe says that it lives.
const HEALTHY_WITHIN: Duration = Duration::from_secs(90);

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../packaging")
        .join(name)
}

/// What one test has on the engine; it goes with the test.
struct Stage {
    place: TempDir,
    /// Begins every name on the engine.
    project: String,
    socket: PathBuf,
}

impl Stage {
    /// Nothing where there is no engine: as root there has to be one.
    #[expect(clippy::print_stderr, reason = "what is left out is said")]
    fn set() -> Option<Self> {
        if !is_root() {
            eprintln!("left out: only root has a container engine for the tests");
            return None;
        }
        let place = tempfile::Builder::new()
            .prefix("container-test-")
            .tempdir()
            .expect("a directory");
        let name = place.path().file_name().and_then(|name| name.to_str());
        let project = name.expect("a plain name").to_lowercase();
        let layers = Layers {
            flags: Flags::default(),
            env: std::env::vars_os()
                .filter(|(name, _)| name == "DOCKER_HOST")
                .collect(),
            file: None,
            root: true,
        };
        let engine = layers.read().expect("a configuration").0.engine;
        let EngineAddress::Sockets(sockets) = engine else {
            panic!("the tests' engine is reached by a socket");
        };
        let socket = sockets.into_iter().find(|path| path.exists());
        let socket = socket.expect("an engine");
        let stage = Self {
            place,
            project,
            socket,
        };
        stage.build();
        Some(stage)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.arg("--host");
        command.arg(format!("unix://{}", self.socket.display()));
        // The classic builder is in every engine, the other needs a plugin of the command's.
        command.args(words).env("DOCKER_BUILDKIT", "0");
        command
    }

    fn says(&self, words: &[&str]) -> Result<String, String> {
        let done = self.command(words).output().expect("docker runs");
        let said = text(&done.stdout).trim().to_owned();
        match done.status.success() {
            true => Ok(said),
            false => Err(format!("{words:?}: {said} {}", text(&done.stderr).trim())),
        }
    }

    fn docker(&self, words: &[&str]) -> String {
        self.says(words).unwrap_or_else(|why| panic!("{why}"))
    }

    fn image(&self) -> String {
        format!("{}-image", self.project)
    }

    /// The image, as its file says. The program of the tests may need libraries: then they, and nothing else, are its base.
    fn build(&self) {
        let context = self.place.path().join("context");
        fs::create_dir_all(context.join("state")).expect("a directory");
        fs::set_permissions(context.join("state"), fs::Permissions::from_mode(0o700))
            .expect("chmod");
        let program = env!("CARGO_BIN_EXE_sandboxd");
        fs::copy(packaging("Dockerfile"), context.join("Dockerfile")).expect("a copy");
        let copied = Command::new("cp")
            .arg(program)
            .arg(context.join("sandboxd"))
            .status();
        assert!(copied.expect("cp").success(), "a copy of the command");
        let listed = Command::new("ldd").arg(program).output().expect("ldd runs");
        let listed = text(&listed.stdout);
        let libraries: Vec<&str> = listed
            .split_whitespace()
            .filter_map(|word| word.strip_prefix('/'))
            .collect();
        let mut base = "scratch".to_owned();
        if !libraries.is_empty() {
            base = format!("{}-libraries", self.project);
            let mut tar = Command::new("tar");
            tar.args(["-C", "/", "-c", "--dereference"]).args(libraries);
            let mut packing = tar.stdout(Stdio::piped()).spawn().expect("tar runs");
            let packed = packing.stdout.take().expect("its output");
            let imported = self.command(&["import", "-", &base]).stdin(packed).output();
            let imported = imported.expect("docker runs");
            assert!(packing.wait().expect("wait").success() && imported.status.success());
        }
        let (image, base) = (self.image(), format!("BASE={base}"));
        let context = context.to_str().expect("a plain path");
        self.docker(&[
            "build",
            "--quiet",
            "--build-arg",
            &base,
            "--tag",
            &image,
            context,
        ]);
    }

    /// What the Compose file says, with its token made for it.
    fn composed(&self) -> Composed {
        let token = self.place.path().join("token");
        fs::write(&token, format!("{TOKEN}\n")).expect("a file");
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).expect("chmod");
        let variables = BTreeMap::from([
            ("SANDBOXD_IMAGE", self.image()),
            ("SANDBOXD_TOKEN_FILE", token.display().to_string()),
            ("DOCKER_SOCKET", self.socket.display().to_string()),
        ]);
        composed(&packaging("compose.yaml"), &self.project, &variables)
            .unwrap_or_else(|why| panic!("compose.yaml: {why}"))
    }

    /// Starts a container of the service's with these words, and gives its name.
    fn start(&self, words: &[String]) -> String {
        let name = format!("{}-service", self.project);
        let mut all = vec!["run", "--detach", "--name", &name];
        // The image's probe, only sooner.
        all.push("--health-interval=500ms");
        all.extend(words.iter().map(String::as_str));
        self.docker(&all);
        name
    }

    /// Waits until the image's own probe says that the service lives.
    fn until_healthy(&self, name: &str) {
        let state = || {
            let format = "--format={{.State.Status}} {{.State.Health.Status}}";
            self.docker(&["inspect", format, name])
        };
        let until = Instant::now() + HEALTHY_WITHIN;
        loop {
            let state = state();
            if state == "running healthy" {
                return;
            }
            let goes_on = state.starts_with("running") && Instant::now() < until;
            assert!(goes_on, "{state}: {}", self.logs(name));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn logs(&self, name: &str) -> String {
        let done = self.command(&["logs", name]).output().expect("docker runs");
        text(&done.stdout) + &text(&done.stderr)
    }

    /// The service in a container, at the address that it has on its network.
    fn service(&self, name: &str) -> Service {
        let format = "--format={{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        let address = self.docker(&["inspect", format, name]);
        Service::new(&format!("http://{address}:8080"), TOKEN).expect("an address")
    }

    /// Where the engine keeps a volume on its host.
    fn lies(&self, volume: &str) -> PathBuf {
        let format = "--format={{.Mountpoint}}";
        PathBuf::from(self.docker(&["volume", "inspect", format, volume]))
    }

    /// Containers of the sandboxes of the service whose state this volume has, running ones and others.
    fn sandboxes(&self, state: &str) -> Vec<String> {
        let name = fs::read_to_string(self.lies(state).join("engine-state"));
        let filter = format!("label=sandboxd.state={}", name.expect("its name"));
        let found = self.docker(&["ps", "--all", "--quiet", "--filter", &filter]);
        found.lines().map(str::to_owned).collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let service = format!("{}-service", self.project);
        // In order, so that it takes away what it has on the engine.
        let _ = self.says(&["stop", &service]);
        let _ = self.says(&["rm", "--force", &service]);
        for (list, remove) in [
            (["volume", "ls", "--quiet"], ["volume", "rm"]),
            (["network", "ls", "--quiet"], ["network", "rm"]),
        ] {
            let filter = format!("name={}", self.project);
            let found = self.says(&[&list[..], &["--filter", &filter]].concat());
            for name in found.iter().flat_map(|found| found.lines()) {
                let _ = self.says(&[&remove[..], &[name]].concat());
            }
        }
        let _ = self.says(&["image", "rm", "--force", &self.image()]);
        let _ = self.says(&["image", "rm", &format!("{}-libraries", self.project)]);
    }
}

async fn said(sandbox: &sandboxd_client::Sandbox, line: &str) -> String {
    let output = sandbox.run(&Ask::shell(line)).await.expect("it runs");
    assert_eq!(output.exit_code, 0, "{output:?}");
    output.stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_compose_file_gives_a_service_whose_sessions_outlive_its_container() {
    let Some(stage) = Stage::set() else { return };
    let composed = stage.composed();
    for (network, words) in &composed.networks {
        let mut all = vec!["network", "create"];
        all.extend(words.iter().map(String::as_str));
        all.push(network);
        stage.docker(&all);
    }
    let name = stage.start(&composed.run);
    stage.until_healthy(&name);
    let ports = stage.docker(&["port", &name]);
    assert_eq!(ports, "", "nothing is published");
    let id = format!("{}-session", stage.project);
    let open = |service: &Service| {
        let builder = service.sandbox().name(&id).runtime(RUNTIME);
        builder.build().expect("a sandbox")
    };
    let sandbox = open(&stage.service(&name));
    let wrote = "mkdir -p deep/er && echo kept > deep/er/file && chmod 700 deep && pwd";
    assert_eq!(said(&sandbox, wrote).await, "/workspace\n");

    // The sandbox has the very directory that the service writes to: the volume's, by its real place.
    let volume = |inside: &str| {
        let found = composed.volumes.iter().find(|(_, at)| at == inside);
        let (name, _) = found.expect("it lies on a volume");
        name.as_str()
    };
    let (workspaces, state) = (volume("/srv/sandboxd"), volume("/var/lib/sandboxd"));
    assert_eq!(stage.sandboxes(state).len(), 1);
    let place = stage.lies(workspaces);
    let stored = place.join(&id).join("workspace");
    let read = || fs::read_to_string(stored.join("deep/er/file"));
    assert_eq!(read().expect("it is on the volume"), "kept\n");
    let place = place.to_str().expect("a plain path");
    assert!(stage.logs(&name).contains(place), "the log says where");

    // It sleeps: its container goes, and wakes as another one.
    sandbox.hibernate().await.expect("it sleeps");
    assert!(stage.sandboxes(state).is_empty());
    assert_eq!(said(&sandbox, "cat deep/er/file").await, "kept\n");

    // Another container of the service's takes over what the last one had.
    stage.docker(&["rm", "--force", &name]);
    let name = stage.start(&composed.run);
    stage.until_healthy(&name);
    let service = stage.service(&name);
    let sessions = service.sessions(false).await.expect("a list").sessions;
    assert!(
        sessions.iter().any(|session| session.session_id == id),
        "{sessions:?}"
    );
    let sandbox = open(&service);
    assert_eq!(said(&sandbox, "cat deep/er/file").await, "kept\n");
    // And in order: what runs is ended by the service itself.
    stage.docker(&["restart", &name]);
    stage.until_healthy(&name);
    let sandbox = open(&stage.service(&name));
    assert_eq!(said(&sandbox, "cat deep/er/file").await, "kept\n");
    assert_eq!(stage.sandboxes(state).len(), 1);
    sandbox.purge().await.expect("it goes");
    assert!(!stored.exists(), "the files went with it");
    stage.docker(&["stop", &name]);
    assert!(stage.sandboxes(state).is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_nobody_special_where_the_group_of_the_socket_lets_it_in() {
    let Some(stage) = Stage::set() else { return };
    let group = fs::metadata(&stage.socket).expect("the socket").gid();
    let socket = stage.socket.display();
    let base = [
        format!("--volume={socket}:/var/run/docker.sock"),
        format!("--env=SANDBOXD_TOKEN={TOKEN}"),
        format!("--env=SANDBOXD_RUNTIMES={RUNTIMES}"),
        "--cap-drop=ALL".to_owned(),
        "--security-opt=no-new-privileges:true".to_owned(),
        "--read-only".to_owned(),
        format!("--volume={}_state:/var/lib/sandboxd", stage.project),
    ];
    let mut words = base.to_vec();
    words.push(format!("--group-add={group}"));
    words.push(stage.image());
    let name = stage.start(&words);
    stage.until_healthy(&name);
    let user = stage.docker(&["inspect", "--format={{.Config.User}}", &name]);
    assert_eq!(user, "65532:65532");
    let sandbox = stage.service(&name).sandbox().runtime(RUNTIME);
    let sandbox = sandbox.build().expect("a sandbox");
    assert_eq!(said(&sandbox, "echo $((6 * 7))").await, "42\n");
    sandbox.purge().await.expect("it goes");
    // What a service in a container cannot do it refuses, with the reason.
    for (runtime, why) in [
        ("out", "the service runs in a container"),
        ("little", "disk cannot be enforced here"),
    ] {
        let sandbox = stage.service(&name).sandbox().runtime(runtime);
        let sandbox = sandbox.build().expect("a sandbox");
        let refusal = sandbox.start().await.expect_err("it is refused");
        assert!(format!("{refusal:?}").contains(why), "{refusal:?}");
    }
    stage.docker(&["rm", "--force", &name]);

    // Without the group it has nothing to say to the engine, and says that.
    let mut words = base.to_vec();
    words.push(stage.image());
    refused(&stage, &words, "/var/run/docker.sock");
}

#[test]
fn workspaces_that_the_engine_cannot_mount_are_refused_at_the_start() {
    let Some(stage) = Stage::set() else { return };
    let composed = stage.composed();
    // As the Compose file has it, but for the volume.
    let mut words: Vec<String> = composed.run;
    words.retain(|word| {
        !word.ends_with(":/srv/sandboxd")
            && !word.starts_with("--network")
            && !word.starts_with("--restart")
            && word != "--read-only"
    });
    refused(
        &stage,
        &words,
        "mount a volume or a directory of the host there",
    );
}

/// A start that fails with one line that has this in it.
fn refused(stage: &Stage, words: &[String], part: &str) {
    let name = stage.start(words);
    let code = stage.docker(&["wait", &name]);
    let logs = stage.logs(&name);
    assert_eq!(code, "1", "{logs}");
    let last = logs.lines().find(|line| line.starts_with("sandboxd: "));
    assert!(last.is_some_and(|line| line.contains(part)), "{logs}");
    stage.docker(&["rm", &name]);
}
