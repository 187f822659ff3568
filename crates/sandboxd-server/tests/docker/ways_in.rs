//! Ways to an engine: TCP with TLS, SSH, and Podman's socket; and what is said where there is none that can be used.

use crate::own::{OwnEngine, SMALL};
use crate::place::{Home, allow, has_engine, until};
use crate::rented::{House, host};
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::Programs;
use sandboxd_server::backends::{Ceiling, SandboxSpec};
use sandboxd_server::config::EngineAddress;
use sandboxd_server::egress::Egress;
use sandboxd_server::runtimes::build::BuildSettings;
use sandboxd_server::runtimes::images::{Settings, Untold, Watcher};
use sandboxd_server::runtimes::recipe::Recipe;
use sandboxd_server::runtimes::{Runtime, Source};
use std::path::Path;
use std::process::{Command, Stdio};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;

/// Why the backend does not start with this engine.
async fn refused(state: &Path, engine: &EngineAddress) -> String {
    let programs = Programs::embedded().unwrap();
    match Docker::start(state, programs, engine).await {
        Ok(_) => panic!("it starts"),
        Err(error) => error.to_string(),
    }
}

/// An authority, and what it has signed: `ca.pem`, `server-*.pem`, and a client's `cert.pem` and `key.pem`.
fn certificates(at: &Path) {
    let script = r#"
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=authority" -keyout ca-key.pem -out ca.pem
        for who in server client; do
            openssl req -newkey rsa:2048 -nodes -subj "/CN=$who" -keyout $who-key.pem -out $who.csr
            printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=%sAuth\n' $who > $who.ext
            openssl x509 -req -days 2 -in $who.csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -extfile $who.ext -out $who-cert.pem
        done
        mv client-cert.pem cert.pem; mv client-key.pem key.pem
    "#;
    std::fs::create_dir_all(at).unwrap();
    let done = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test]
async fn over_tcp_both_sides_show_who_they_are() {
    if !has_engine() {
        return;
    }
    let home = Home::new();
    let (ours, theirs) = (home.dir.path().join("ours"), home.dir.path().join("theirs"));
    certificates(&ours);
    certificates(&theirs);
    let port = free_port();
    let file = |name: &str| ours.join(name).display().to_string();
    let engine = OwnEngine::docker(&[
        format!("--host=tcp://127.0.0.1:{port}"),
        "--tlsverify".to_owned(),
        format!("--tlscacert={}", file("ca.pem")),
        format!("--tlscert={}", file("server-cert.pem")),
        format!("--tlskey={}", file("server-key.pem")),
    ])
    .await;
    let with = |certificates: Option<&Path>| EngineAddress::Tcp {
        address: format!("127.0.0.1:{port}"),
        certificates: certificates.map(Path::to_owned),
    };
    let place = home
        .service_at(&with(Some(&ours)), |service| {
            allow(service, SMALL);
            service.workspace_root = None;
        })
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    assert_eq!(place.out(&id, "echo here").await, "here\n");
    place.close().await;
    // A stranger's authority, and nothing to show at all.
    let state = home.state();
    let why = refused(&state, &with(Some(&theirs))).await;
    assert!(
        why.contains("127.0.0.1") && why.contains("ertificate"),
        "{why}"
    );
    let why = refused(&state, &with(None)).await;
    assert!(why.contains("no container engine answers"), "{why}");
    let why = refused(&state, &with(Some(&home.dir.path().join("nowhere")))).await;
    assert!(why.contains("nowhere"), "{why}");
    drop(engine);
}

#[tokio::test]
async fn podmans_socket_leads_to_the_same() {
    if !has_engine() {
        return;
    }
    let engine = OwnEngine::podman().await;
    let home = Home::new();
    let place = home
        .service_at(&engine.address(), |service| {
            allow(service, SMALL);
            service.persist_containers = true;
        })
        .await;
    assert!(!place.backend.capabilities().await.buildkit);
    let id = home.id("a");
    place.open(&id).await.unwrap();
    place.out(&id, "echo kept > f; echo inside > /made").await;
    let status = place.out(&id, "cat /proc/1/status /proc/self/status").await;
    let all = |line: &str| status.lines().filter(|one| one.starts_with(line)).count();
    assert_eq!(all("NoNewPrivs:\t1"), 2, "{status}");
    assert_eq!(all("Seccomp:\t2"), 2, "{status}");
    place.put_to_sleep(&id).await;
    assert_eq!(place.out(&id, "cat f /made").await, "kept\ninside\n");
    place.purge(&id).await;
    place.close().await;
    assert_eq!(engine.docker_says(&["ps", "--all", "--quiet"]), "");
}

#[tokio::test]
async fn podman_builds_recipes_in_its_hosts_network_where_that_is_accepted() {
    if !has_engine() {
        return;
    }
    let engine = OwnEngine::podman().await;
    let state = tempfile::tempdir().unwrap();
    let builds = BuildSettings {
        allow_unenforced: vec![Ceiling::Network],
        ..BuildSettings::default()
    };
    let recipe = |words: &str| {
        let recipe = Recipe {
            setup_commands: vec![format!("echo '{words}' > /made")],
            ..Recipe::of("small-and-made", SMALL)
        };
        Runtime::plain("x", &recipe.label(), Source::Recipe(recipe))
    };
    let watcher: Watcher = Untold::watcher();
    let strict = Docker::start(
        &state.path().join("strict"),
        Programs::embedded().unwrap(),
        &engine.address(),
    )
    .await
    .unwrap();
    let why = strict.prepare(&recipe("one"), &watcher).await.unwrap_err();
    assert!(why.to_string().contains("build_network"), "{why}");
    strict.shutdown().await;
    let address = engine.address();
    let backend = Docker::start_with(
        state.path(),
        Programs::embedded().unwrap(),
        &address,
        None,
        Egress::default(),
        (Settings::default(), builds),
    );
    let house = House::of(backend.await.unwrap(), state.path());
    assert!(!house.backend.capabilities().await.buildkit);
    let built = || {
        let filter = "label=sandboxd.recipe=small-and-made";
        let shown = engine.docker_says(&["images", "--quiet", "--filter", filter]);
        shown.lines().count()
    };
    for words in ["one", "two"] {
        let image = house
            .backend
            .prepare(&recipe(words), &watcher)
            .await
            .unwrap();
        let spec = SandboxSpec { image, ..host() };
        let sandbox = house.rent(&spec).await;
        let made = sandbox.says("cat /made").await;
        assert_eq!(made, words);
        sandbox.end().await;
        // The one before goes, since nothing uses it.
        assert_eq!(built(), 1);
    }
    let broken = Recipe {
        setup_commands: vec!["echo complaint >&2; exit 7".to_owned()],
        ..Recipe::of("small-and-made", SMALL)
    };
    let broken = Runtime::plain("x", &broken.label(), Source::Recipe(broken));
    let why = house.backend.prepare(&broken, &watcher).await.unwrap_err();
    assert!(why.to_string().contains("complaint"), "{why}");
    house.close().await;
}

/// Says to a process of this test that it is the one with files of its own at `/root`.
const APART: &str = "SANDBOXD_TEST_SSH";

#[expect(
    clippy::disallowed_methods,
    reason = "a test that started itself again is told so where its arguments are the harness's"
)]
fn is_apart() -> bool {
    std::env::var_os(APART).is_some()
}

/// An SSH server on loopback that lets one key in, and that key for root's own `ssh`, in this mount namespace.
fn ssh_server(at: &Path, port: u16, docker_host: &str) -> std::process::Child {
    let script = format!(
        r#"
        mkdir -p -m 700 /root/.ssh
        ssh-keygen -q -t ed25519 -N '' -f host
        ssh-keygen -q -t ed25519 -N '' -f /root/.ssh/id_ed25519
        cp /root/.ssh/id_ed25519.pub authorized
        echo "[127.0.0.1]:{port} $(cut -d' ' -f1,2 host.pub)" > /root/.ssh/known_hosts
        printf 'Host engine.test\nHostName 127.0.0.1\nPort {port}\n' > /root/.ssh/config
        cat > config <<END
ListenAddress 127.0.0.1:{port}
HostKey $PWD/host
AuthorizedKeysFile $PWD/authorized
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
SetEnv DOCKER_HOST={docker_host}
END
    "#
    );
    let made = Command::new("sh")
        .args(["-ec", &script])
        .current_dir(at)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    Command::new("setpriv")
        .args(["--pdeathsig", "TERM", "/usr/sbin/sshd", "-D", "-e", "-f"])
        .arg(at.join("config"))
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(at.join("log")).unwrap())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn over_ssh_the_other_ends_docker_leads_on() {
    if !has_engine() {
        return;
    }
    if !is_apart() {
        let again = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "sh", "-c"])
            .args(["mount -t tmpfs none /root && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "ways_in::over_ssh_the_other_ends_docker_leads_on",
            ])
            .args(["--nocapture", "--test-threads=1"])
            .env(APART, "yes")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&again.stdout).into_owned();
        assert!(
            again.status.success() && said.contains("1 passed"),
            "{again:?}"
        );
        return;
    }
    let home = Home::new();
    let at = home.dir.path().join("ssh");
    std::fs::create_dir(&at).unwrap();
    let port = free_port();
    let host = format!("unix://{}", crate::place::socket().display());
    // Where the server goes without its power.
    let empty = Path::new("/run/sshd");
    let had_it = empty.exists();
    std::fs::create_dir_all(empty).unwrap();
    let mut server = ssh_server(&at, port, &host);
    until("it listens", async || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    })
    .await;
    let engine = EngineAddress::Ssh("root@engine.test".to_owned());
    let place = home
        .service_at(&engine, |service| service.workspace_root = None)
        .await;
    let id = home.id("a");
    place.open(&id).await.unwrap();
    assert_eq!(place.out(&id, "echo here").await, "here\n");
    let much = place
        .out(&id, "head -c 3000000 /dev/zero | tr '\\0' x")
        .await;
    assert_eq!(much.len(), 3_000_000);
    place.close().await;
    // A host that shows another key than the one that is known is not spoken to.
    let another = std::fs::read_to_string("/root/.ssh/id_ed25519.pub").unwrap();
    std::fs::write(
        "/root/.ssh/known_hosts",
        format!("[127.0.0.1]:{port} {another}"),
    )
    .unwrap();
    let why = refused(&home.state(), &engine).await;
    assert!(why.contains("engine.test"), "{why}");
    server.kill().unwrap();
    server.wait().unwrap();
    if !had_it {
        std::fs::remove_dir(empty).unwrap();
    }
}

/// Answers everything that is asked with this status and text.
async fn pretending(path: &Path, status: &'static str, body: &'static str) {
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 4096];
            let _ = stream.read(&mut asked).await;
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
}

#[tokio::test]
async fn an_engine_that_cannot_be_used_is_told_why() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        (
            "200 OK",
            r#"{"Version":"18.09.1","ApiVersion":"1.39","MinAPIVersion":"1.12"}"#,
            "speaks API version 1.39; at least 1.41",
        ),
        (
            "403 Forbidden",
            r#"{"message":"authorization denied by plugin gate: not you"}"#,
            "authorization denied by plugin gate: not you",
        ),
        (
            "200 OK",
            "<html>a page</html>",
            "no container engine answers",
        ),
        (
            "503 Service Unavailable",
            r#"{"message":"starting"}"#,
            "starting",
        ),
    ];
    for (number, (status, body, wanted)) in cases.into_iter().enumerate() {
        let path = home.path().join(format!("{number}.sock"));
        pretending(&path, status, body).await;
        let engine = EngineAddress::Sockets(vec![path.clone()]);
        let why = refused(&home.path().join("state"), &engine).await;
        assert!(why.contains(wanted), "{why}");
        assert!(why.contains(&path.display().to_string()), "{why}");
    }
    assert!(!home.path().join("state").exists(), "nothing was begun");
}
