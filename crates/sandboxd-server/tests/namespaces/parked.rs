//! Sandboxes that were made before anybody asked: each is one session's, and just like one that was made for it.

use crate::leftovers::{cgroups, eventually, instances};
use crate::rented::{House, Rented, as_ordinary_user, host, is_root, small_root};
use sandboxd_server::backends::{Asked, HostWorkspace, Kind, PreparedImage, SandboxSpec, Start};
use sandboxd_server::id::SandboxId;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// What is parked here is of this kind, unless a test says otherwise.
fn kind(spec: &SandboxSpec, count: usize) -> Kind {
    Kind {
        name: "host".to_owned(),
        spec: spec.kind(),
        count,
    }
}

fn in_workspace(path: &Path, spec: SandboxSpec) -> SandboxSpec {
    SandboxSpec {
        workspace: Some(HostWorkspace {
            path: path.to_owned(),
            managed: true,
        }),
        ..spec
    }
}

async fn park(house: &House, spec: &SandboxSpec, count: usize) {
    let pool = house.backend.pool().unwrap();
    for _ in 0..count {
        pool.park(&kind(spec, count)).await.unwrap();
    }
    assert_eq!(ready(house), count);
}

fn ready(house: &House) -> usize {
    house.backend.pool().unwrap().ready().values().sum()
}

/// A directory for workspaces, which the service keeps to itself.
fn workspaces() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn workspace(all: &tempfile::TempDir, name: &str) -> std::path::PathBuf {
    let path = all.path().join(name).join("workspace");
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// Everything about a sandbox that a program in it can tell, but for what is its own.
const LOOK: &str = r#"
pwd; hostname; id; ulimit -a; env | sort; cat /etc/passwd /etc/hosts /etc/hostname /etc/resolv.conf
sed -e 's/^[0-9]* [0-9]* [0-9:]* //' -e 's/sandboxd[^ ]*//g' /proc/self/mountinfo | cut -d' ' -f2,3 | sort
grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups|Cpus_allowed:)' /proc/self/status | grep -v Cpus_allowed
ls -la / /dev /workspace | grep -v '^total' | awk '{print $1,$3,$4,$9}'; cat /proc/net/dev | cut -d: -f1
"#;

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_parked_is_just_like_one_that_was_made_for_its_session() {
    if !is_root() {
        return;
    }
    let (house, all) = (House::new().await, workspaces());
    let spec = |name: &str| in_workspace(&workspace(&all, name), host());
    park(&house, &spec(""), 1).await;
    assert!(
        house.backend.list().await.unwrap().is_empty(),
        "it is nobody's"
    );
    let id = SandboxId::generate();
    let parked = house.take(&id, &spec("a")).await.expect("one is ready");
    assert_eq!(ready(&house), 0);
    assert_eq!(house.backend.list().await.unwrap().len(), 1);
    let fresh = house.rent(&spec("b")).await;
    assert_eq!(parked.says(LOOK).await, fresh.says(LOOK).await);
    assert_eq!(parked.enforced, fresh.enforced);
    // Its files are where the session's are, with the owner that all stored files have.
    parked.says("echo mine > f; mkdir d").await;
    fresh.says("echo mine > f; mkdir d").await;
    let stored = |name: &str| all.path().join(name).join("workspace/f");
    assert_eq!(std::fs::read_to_string(stored("a")).unwrap(), "mine\n");
    let owner = |name: &str| std::fs::metadata(stored(name)).unwrap().uid();
    assert_eq!(owner("a"), owner("b"));
    // Its ceilings are there, and it is found by the session's id.
    let usage = house
        .backend
        .usage(std::slice::from_ref(&id))
        .await
        .remove(0)
        .unwrap();
    assert_eq!(usage.memory_limit_bytes, Some(256 << 20));
    assert!(usage.pids.unwrap() >= 1, "{usage:?}");
    let names = instances(&house.state);
    let both = cgroups(&names).len();
    parked.end().await;
    assert!(cgroups(&names).len() < both || both == 0);
    fresh.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_were_parked_share_nothing() {
    if !is_root() {
        return;
    }
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let (house, all) = (House::new().await, workspaces());
    let on_image = |spec: SandboxSpec| SandboxSpec {
        image: PreparedImage::Rootfs {
            path: image.path().to_owned(),
            key: "small".to_owned(),
        },
        ..spec
    };
    for whole in [false, true] {
        let spec = |name: &str| {
            let spec = in_workspace(&workspace(&all, name), host());
            if whole { on_image(spec) } else { spec }
        };
        park(&house, &spec(""), 2).await;
        let one = house
            .take(&SandboxId::generate(), &spec("a"))
            .await
            .unwrap();
        let other = house
            .take(&SandboxId::generate(), &spec("b"))
            .await
            .unwrap();
        assert_eq!(ready(&house), 0);
        assert!(
            house
                .take(&SandboxId::generate(), &spec("c"))
                .await
                .is_none(),
            "one session each"
        );
        let range = |sandbox: Rented| async {
            let map = sandbox.says("cat /proc/self/uid_map").await;
            (sandbox, map.split_whitespace().nth(1).unwrap().to_owned())
        };
        let ((one, first), (other, second)) = (range(one).await, range(other).await);
        assert_ne!(first, second, "each has user ids of its own");
        let places = "/tmp /dev/shm /workspace /root /etc";
        one.says(&format!(
            "for d in {places}; do echo secret > $d/of-one; done"
        ))
        .await;
        let seen = other
            .says(&format!(
                "for d in {places}; do ls $d; done; cat /proc/[0-9]*/cmdline"
            ))
            .await;
        assert!(!seen.contains("of-one"), "{seen}");
        for kind in ["mnt", "net", "ipc", "uts", "pid", "user"] {
            let look = format!("ls -l /proc/self/ns/{kind}");
            let (one, other) = (one.says(&look).await, other.says(&look).await);
            let number = |text: &str| text.rsplit('[').next().map(str::to_owned);
            assert_ne!(number(&one), number(&other), "{kind}");
        }
        one.end().await;
        other.end().await;
        for instance in instances(&house.state) {
            let layers = house.state.join("instances").join(instance).join("layers");
            let left: Vec<_> = std::fs::read_dir(layers).unwrap().flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
    house.close().await;
}

/// The cgroups of a sandbox, as the host sees them, and every ceiling in them.
async fn walls_of_cgroups(sandbox: &Rented, mark: &str) -> (Vec<String>, Vec<(String, String)>) {
    sandbox
        .says(&format!("sleep {mark} >/dev/null 2>&1 & echo"))
        .await;
    let of_run = |pid: &str| {
        std::fs::read(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line == format!("sleep\0{mark}\0").as_bytes())
    };
    let found = std::cell::RefCell::new(None);
    eventually("the run is seen from outside", || {
        let pids = std::fs::read_dir("/proc").unwrap().flatten();
        let mut names = pids.filter_map(|entry| entry.file_name().into_string().ok());
        *found.borrow_mut() = names.find(|name| of_run(name));
        found.borrow().is_some()
    });
    let pid = found.into_inner().unwrap();
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let (mut places, mut ceilings) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.ends_with(":/")) {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next().unwrap(), fields.next().unwrap());
        places.push(format!("{controllers}:{path}"));
        // The run's own directory, and the sandbox's above it.
        for place in [Path::new(path), Path::new(path).parent().unwrap()] {
            let place = place.strip_prefix("/").unwrap();
            let mount = Path::new("/sys/fs/cgroup").join(controllers);
            for name in CEILINGS {
                let read = std::fs::read_to_string(mount.join(place).join(name));
                ceilings.extend(read.ok().map(|value| ((*name).to_owned(), value)));
            }
        }
    }
    (places, ceilings)
}

/// What says how much a cgroup may have, in both versions.
const CEILINGS: &[&str] = &[
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.max",
    "memory.swap.max",
    "memory.oom.group",
    "pids.max",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpu.shares",
    "cpu.max",
    "cpu.weight",
];

#[tokio::test(flavor = "multi_thread")]
async fn each_has_cgroups_of_its_own_with_the_ceilings_of_one_that_was_made_for_its_session() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    park(&house, &host(), 2).await;
    let one = house.take(&SandboxId::generate(), &host()).await.unwrap();
    let other = house.take(&SandboxId::generate(), &host()).await.unwrap();
    let fresh = house.rent(&host()).await;
    let mark = |number: u32| format!("{}.{number}", 7_000_000 + std::process::id());
    let (places, ceilings) = walls_of_cgroups(&one, &mark(1)).await;
    let (others, other_ceilings) = walls_of_cgroups(&other, &mark(2)).await;
    let (freshs, fresh_ceilings) = walls_of_cgroups(&fresh, &mark(3)).await;
    assert!(!places.is_empty() && !ceilings.is_empty(), "{places:?}");
    for place in &places {
        assert!(
            !others.contains(place) && !freshs.contains(place),
            "{place}"
        );
    }
    assert!(others.iter().all(|place| !freshs.contains(place)));
    assert_eq!(ceilings, fresh_ceilings);
    assert_eq!(other_ceilings, fresh_ceilings);
    // What fills one is not the other's: a bomb of processes ends at its own ceiling.
    let bomb = "i=0; while [ $i -lt 400 ]; do sleep 20 & i=$((i+1)); done; echo all";
    let did = one.sh(bomb).await;
    assert!(!did.out.contains("all"), "{did:?}");
    let many = "i=0; while [ $i -lt 60 ]; do sleep 0 & i=$((i+1)); done; wait; echo all";
    assert_eq!(other.says(many).await, "all");
    for sandbox in [one, other, fresh] {
        sandbox.end().await;
    }
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_says_of_itself_is_not_heard_by_the_other() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    park(&house, &host(), 2).await;
    let one = house.take(&SandboxId::generate(), &host()).await.unwrap();
    let other = house.take(&SandboxId::generate(), &host()).await.unwrap();
    let leave = r#"
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
assert libc.shmget(0x5d41, 4096, 0o1666) >= 0 and libc.semget(0x5d41, 4, 0o1666) >= 0 and libc.msgget(0x5d41, 0o1666) >= 0
assert libc.mq_open(b'/mine', os.O_CREAT | os.O_RDWR, 0o666, None) >= 0
libc.sethostname(b'renamed', 7)
s = socket.socket(socket.AF_UNIX); s.bind('\0mine'); s.listen()
t = socket.socket(); t.bind(('127.0.0.1', 8123)); t.listen()
if os.fork() == 0:
    os.setsid(); null = os.open('/dev/null', os.O_RDWR)
    for number in range(3): os.dup2(null, number)
    import time; time.sleep(1000)
print('left')
"#;
    let look = r#"
import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x5d41, 4096, 0), libc.semget(0x5d41, 4, 0), libc.msgget(0x5d41, 0), libc.mq_open(b'/mine', os.O_RDONLY))
print([len(open('/proc/sysvipc/' + name).read().splitlines()) for name in ('shm', 'sem', 'msg')])
print(socket.gethostname())
for family, address in ((socket.AF_UNIX, '\0mine'), (socket.AF_INET, ('127.0.0.1', 8123))):
    try: socket.socket(family).connect(address); print('reached')
    except ConnectionRefusedError: print('refused')
"#;
    let python = async |sandbox: &Rented, program: &str| {
        let did = sandbox.python(program).await;
        assert_eq!(did.exit.code, 0, "{did:?}");
        did.out
    };
    assert_eq!(
        python(&one, leave).await,
        "left
"
    );
    let alone = "-1 -1 -1 -1
[1, 1, 1]
sandbox
refused
refused
";
    assert_eq!(python(&other, look).await, alone);
    // The twin: where it was left it is found.
    let found = python(&one, look).await;
    assert!(
        found.contains("[2, 2, 2]") && found.matches("reached").count() == 2,
        "{found}"
    );
    one.end().await;
    other.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_very_same_is_taken() {
    if !is_root() {
        return;
    }
    let (house, all) = (House::new().await, workspaces());
    let spec = in_workspace(&workspace(&all, "a"), host());
    park(&house, &spec, 1).await;
    let more = Some(Asked {
        value: 512 << 20,
        explicit: false,
    });
    let others = [
        SandboxSpec {
            memory_bytes: more,
            ..spec.clone()
        },
        SandboxSpec {
            workspace: None,
            ..spec.clone()
        },
        SandboxSpec {
            user: Some(1000),
            ..spec.clone()
        },
        SandboxSpec {
            tmpfs_bytes: None,
            ..spec.clone()
        },
        SandboxSpec {
            env: [("A".to_owned(), "b".to_owned())].into(),
            ..spec.clone()
        },
        SandboxSpec {
            keep_layer: true,
            ..spec.clone()
        },
        SandboxSpec {
            hostname: "other".to_owned(),
            ..spec.clone()
        },
        SandboxSpec {
            image: PreparedImage::Rootfs {
                path: "/x".into(),
                key: "x".to_owned(),
            },
            ..spec.clone()
        },
    ];
    for other in &others {
        assert!(
            house.take(&SandboxId::generate(), other).await.is_none(),
            "{other:?}"
        );
    }
    assert_eq!(ready(&house), 1);
    let pool = house.backend.pool().unwrap();
    pool.retain(&[kind(&others[0], 1)]).await;
    assert_eq!(ready(&house), 0, "of a kind that nobody wants any more");
    park(&house, &spec, 2).await;
    pool.retain(&[kind(&spec, 1)]).await;
    assert_eq!(ready(&house), 1, "one too many");
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_files_cannot_be_had_costs_the_others_nothing() {
    if !is_root() {
        return;
    }
    let (house, all) = (House::new().await, workspaces());
    park(&house, &in_workspace(all.path(), host()), 1).await;
    let missing = in_workspace(&all.path().join("nowhere"), host());
    let id = SandboxId::generate();
    assert!(house.take(&id, &missing).await.is_none());
    assert_eq!(ready(&house), 1);
    let spec = in_workspace(&workspace(&all, "a"), host());
    let sandbox = house
        .take(&id, &spec)
        .await
        .expect("it is as good as before");
    assert_eq!(sandbox.says("echo mine > f; cat f").await, "mine");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_died_is_never_handed_out() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    park(&house, &host(), 1).await;
    let names = instances(&house.state);
    let first = |path: &Path| {
        let text = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        text.lines()
            .next()
            .and_then(|line| line.parse::<i32>().ok())
    };
    let found = cgroups(&names).iter().find_map(|path| first(path));
    let Some(pid) = found.and_then(rustix::process::Pid::from_raw) else {
        return house.close().await;
    };
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("its death is seen", || ready(&house) == 0);
    assert!(house.take(&SandboxId::generate(), &host()).await.is_none());
    house
        .backend
        .pool()
        .unwrap()
        .retain(&[kind(&host(), 1)])
        .await;
    let sandbox = house.rent(&host()).await;
    sandbox.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_layer_is_the_sessions_from_then_on() {
    if !is_root() {
        return;
    }
    let (house, all) = (House::new().await, workspaces());
    let spec = SandboxSpec {
        keep_layer: true,
        ..in_workspace(&workspace(&all, "a"), host())
    };
    park(&house, &spec, 2).await;
    assert!(
        house.backend.list().await.unwrap().is_empty(),
        "no layer is kept for nobody"
    );
    let id = SandboxId::generate();
    let sandbox = house.take(&id, &spec).await.unwrap();
    sandbox
        .says("echo installed > /usr-of-mine; echo x > f")
        .await;
    sandbox.sleep().await;
    let woken = house.try_rent(&id, &spec, Start::KeptLayer).await.unwrap();
    assert_eq!(woken.says("cat /usr-of-mine f").await, "installed\nx");
    woken.end().await;
    house.backend.destroy(&id).await.unwrap();
    assert!(house.backend.list().await.unwrap().is_empty());
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_parked_is_given_up_before_a_session_is_refused() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    park(&house, &host(), 2).await;
    let impossible = SandboxSpec {
        image: PreparedImage::Rootfs {
            path: "/no/such/image".into(),
            key: "missing".to_owned(),
        },
        ..host()
    };
    let refused = house
        .try_rent(&SandboxId::generate(), &impossible, Start::Fresh)
        .await;
    assert!(refused.is_err());
    assert_eq!(ready(&house), 0);
    // Once: what was none the better for it does not cost the others what is ready again and again.
    park(&house, &host(), 2).await;
    for _ in 0..3 {
        let refused = house
            .try_rent(&SandboxId::generate(), &impossible, Start::Fresh)
            .await;
        assert!(refused.is_err());
    }
    assert_eq!(ready(&house), 2);
    // Another kind has its own chance.
    let other = SandboxSpec {
        hostname: "other".to_owned(),
        ..impossible
    };
    let refused = house
        .try_rent(&SandboxId::generate(), &other, Start::Fresh)
        .await;
    assert!(refused.is_err());
    assert_eq!(ready(&house), 0);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taking_that_nobody_waits_for_any_more_leaves_nothing() {
    if !is_root() {
        return;
    }
    let (house, all) = (House::new().await, workspaces());
    let spec = SandboxSpec {
        keep_layer: true,
        ..in_workspace(&workspace(&all, "a"), host())
    };
    let layers = house.state.join("layers");
    let kept = || std::fs::read_dir(&layers).unwrap().count();
    // Given up later and later, until it comes to its end in time.
    for tenths in 0.. {
        park(&house, &spec, 1).await;
        let id = SandboxId::generate();
        let patience = std::time::Duration::from_micros(tenths * 100);
        let taken = tokio::time::timeout(patience, house.take(&id, &spec)).await;
        if let Ok(Some(sandbox)) = taken {
            assert_eq!(sandbox.says("echo mine > f; cat f").await, "mine");
            assert_eq!(kept(), 1);
            sandbox.end().await;
            house.backend.destroy(&id).await.unwrap();
            break;
        }
        let pool = house.backend.pool().unwrap();
        pool.retain(&[]).await;
        // Its session's sandbox can be made once all of what was given up has gone, and not before.
        let mut again = house.try_rent(&id, &host(), Start::Fresh).await;
        let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while let Err(error) = &again {
            assert!(error.to_string().contains("being removed"), "{error}");
            assert!(std::time::Instant::now() < end, "{error}");
            again = house.try_rent(&id, &host(), Start::Fresh).await;
        }
        again.unwrap().end().await;
        assert_eq!(kept(), 0);
        assert!(house.backend.list().await.unwrap().is_empty());
    }
    assert_eq!(kept(), 0);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ordinary_user_has_a_pool_of_sandboxes_without_stored_files() {
    if !as_ordinary_user("parked::an_ordinary_user_has_a_pool_of_sandboxes_without_stored_files") {
        return;
    }
    let (house, all) = (House::new().await, workspaces());
    park(&house, &host(), 1).await;
    let sandbox = house.take(&SandboxId::generate(), &host()).await.unwrap();
    assert_eq!(
        sandbox.says("echo x > f; cat f; pwd").await,
        "x\n/workspace"
    );
    sandbox.end().await;
    let with_files = in_workspace(&workspace(&all, "a"), host());
    let refused = house
        .backend
        .pool()
        .unwrap()
        .park(&kind(&with_files, 1))
        .await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("runs as root"), "{text}");
    house.close().await;
}
