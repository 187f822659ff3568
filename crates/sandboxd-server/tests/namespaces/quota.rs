//! What is stored, limited by project quotas of a file system that each test makes for itself.
//!
//! A kernel without quotas of the second format cannot mount such a file system, so these run where one can:
//! `cargo xtask vm quota`.

use crate::rented::{House, Rented, host, is_root, small_root};
use sandboxd_jail::projects::{Project, project, set_project};
use sandboxd_protocol::message::Ended;
use sandboxd_server::backends::namespaces::{
    Namespaces, Programs, Settings, project_quotas, stored_below,
};
use sandboxd_server::backends::{
    Asked, Ceiling, Enforcement, HostWorkspace, Kind, PreparedImage, ProjectIds, SandboxSpec, Start,
};
use sandboxd_server::id::SandboxId;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// A file system in a file, mounted as long as this lives.
struct Disk {
    at: PathBuf,
    _home: tempfile::TempDir,
}

impl Disk {
    fn new(make: &[&str], options: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (image, at) = (home.path().join("image"), home.path().join("disk"));
        File::create(&image).unwrap().set_len(320 * MIB).unwrap();
        fs::create_dir(&at).unwrap();
        let did = |command: &mut Command| {
            let output = command.output().unwrap();
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{command:?}: {text}");
        };
        did(Command::new(make[0]).args(&make[1..]).arg(&image));
        did(Command::new("mount")
            .args(["-o", &format!("loop,{options}")])
            .args([&image, &at]));
        Self { at, _home: home }
    }

    fn ext4() -> Self {
        Self::new(
            &["mkfs.ext4", "-q", "-F", "-O", "project,quota"],
            "prjquota",
        )
    }

    fn xfs() -> Self {
        Self::new(&["mkfs.xfs", "-q"], "prjquota")
    }

    /// A directory in it that is there.
    fn directory(&self, name: &str) -> PathBuf {
        let path = self.at.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

fn limited(bytes: u64, files: u64) -> SandboxSpec {
    let asked = |value| {
        Some(Asked {
            value,
            explicit: true,
        })
    };
    SandboxSpec {
        disk_bytes: asked(bytes),
        disk_files: asked(files),
        ..host()
    }
}

fn with_workspace(path: &Path, spec: SandboxSpec) -> SandboxSpec {
    SandboxSpec {
        workspace: Some(HostWorkspace {
            path: path.to_owned(),
            managed: true,
        }),
        ..spec
    }
}

fn over(image: &Path, spec: SandboxSpec) -> SandboxSpec {
    SandboxSpec {
        image: PreparedImage::Rootfs {
            path: image.to_owned(),
            key: "small".to_owned(),
        },
        ..spec
    }
}

fn how(sandbox: &Rented) -> &str {
    match sandbox.enforced.get(&Ceiling::Disk) {
        Some(Enforcement::Enforced(how)) => how,
        other => panic!("{other:?}"),
    }
}

fn id_of(path: &Path) -> u32 {
    project(File::open(path).unwrap().as_fd()).unwrap().id
}

/// What is in a file that is written when others have been removed. XFS gives their room back a moment later.
async fn once_gone(sandbox: &Rented, gone: &str, then: &str) -> String {
    let script = format!(
        "rm -f {gone}; for i in 1 2 3 4 5 6 7 8 9; do (echo fits > {then}) 2>/dev/null && break; sleep 1; done; cat {then}"
    );
    sandbox.says(&script).await
}

/// What holds on either file system.
async fn over_it_is_refused_at_once(disk: &Disk) {
    assert_eq!(project_quotas(&disk.at), Ok(()));
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let house = House::at(&disk.directory("state")).await;
    let path = disk.directory("all/a/workspace");
    let spec = over(image.path(), with_workspace(&path, limited(8 * MIB, 200)));
    let sandbox = house.rent(&spec).await;
    assert_eq!(
        how(&sandbox),
        "the write layer by project quota, the workspace by project quota"
    );

    // Bytes: a write fails, in the workspace and in the layer, and the run says why.
    let did = sandbox.sh("exec cat /dev/zero > /workspace/big").await;
    assert_eq!((did.exit.code, did.exit.ended), (1, Ended::Disk), "{did:?}");
    let big = fs::metadata(path.join("big")).unwrap().len();
    assert!((6 * MIB..8 * MIB).contains(&big), "{big}");
    let did = sandbox.sh("cat /dev/zero > /etc/more").await;
    assert_ne!(did.exit.code, 0, "{did:?}");
    assert_eq!(did.exit.ended, Ended::Disk, "{did:?}");
    let usage = house.backend.usage(std::slice::from_ref(&sandbox.id)).await;
    let usage = usage[0].as_ref().unwrap();
    let stored = usage.disk_bytes.unwrap();
    assert!((7 * MIB..=8 * MIB).contains(&stored), "{usage:?}");
    assert!(
        usage.disk_files.is_some_and(|files| files < 20),
        "{usage:?}"
    );
    // With room again, everything goes on.
    assert_eq!(
        once_gone(&sandbox, "/workspace/big /etc/more", "/etc/fits").await,
        "fits"
    );

    // Deleted files that are still open: counting sees nothing of them, the quota does.
    let hidden = r"
exec 3> /workspace/hidden; rm /workspace/hidden
cat /dev/zero >&3
cat /dev/zero > /workspace/more
stat -c %s /workspace/more 2>/dev/null || echo 0";
    let did = sandbox.sh(hidden).await;
    let more: u64 = did.out.trim().parse().unwrap();
    assert!(more < MIB, "{did:?}");
    let seen = stored_below(File::open(&path).unwrap().as_fd()).bytes;
    assert!(seen < MIB, "{seen}");
    assert_eq!(
        once_gone(&sandbox, "/workspace/more", "/workspace/fits").await,
        "fits"
    );

    // Files.
    let did = sandbox
        .sh("i=0; while : > /workspace/f$i; do i=$((i+1)); done; exit 3")
        .await;
    assert_eq!(did.exit.ended, Ended::Disk, "{did:?}");
    let made = fs::read_dir(&path).unwrap().count();
    assert!((150..200).contains(&made), "{made}");
    assert_eq!(
        once_gone(&sandbox, "/workspace/f*", "/etc/fits").await,
        "fits"
    );
    sandbox.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn over_the_quota_of_ext4_is_refused_at_once() {
    if is_root() {
        over_it_is_refused_at_once(&Disk::ext4()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn over_the_quota_of_xfs_is_refused_at_once() {
    if is_root() {
        over_it_is_refused_at_once(&Disk::xfs()).await;
    }
}

/// Tries to leave a project, and to stop handing it on, by each of the calls that could; then what anybody may do with them.
const LEAVE: &str = r#"
import fcntl, os, struct
os.mkdir("/workspace/d")
open("/workspace/f", "w").close()
def tried(what):
    try:
        what()
        return "done"
    except OSError as error:
        return str(error.errno)
def attributes(path, change):
    fd = os.open(path, os.O_RDONLY)
    fields = list(struct.unpack("5I8s", fcntl.ioctl(fd, 0x801c581f, bytes(28))))
    change(fields)
    fcntl.ioctl(fd, 0x401c5820, struct.pack("5I8s", *fields))
def flags(path, change):
    fd = os.open(path, os.O_RDONLY)
    now = struct.unpack("L", fcntl.ioctl(fd, 0x80086601, bytes(8)))[0]
    fcntl.ioctl(fd, 0x40086602, struct.pack("L", change(now)))
def to(id):
    def change(fields): fields[3] = id
    return change
def keep(fields): fields[0] &= ~0x200
def no_dump(fields): fields[0] |= 0x80
for path in ["/workspace", "/workspace/d", "/workspace/f"]:
    for id in [0, 7]:
        print(tried(lambda: attributes(path, to(id))))
for path in ["/workspace", "/workspace/d"]:
    print(tried(lambda: attributes(path, keep)))
    print(tried(lambda: flags(path, lambda now: now & ~0x20000000)))
print("twin", tried(lambda: attributes("/workspace/d", no_dump)))
print("twin", tried(lambda: flags("/workspace/d", lambda now: now | 0x40)))
"#;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn a_project_cannot_be_left_from_inside() {
    if !is_root() {
        return;
    }
    for disk in [Disk::ext4(), Disk::xfs()] {
        let house = House::at(&disk.directory("state")).await;
        let path = disk.directory("all/a/workspace");
        let sandbox = house
            .rent(&with_workspace(&path, limited(8 * MIB, 200)))
            .await;
        let did = sandbox.python(LEAVE).await;
        let lines: Vec<&str> = did.out.lines().collect();
        assert_eq!(lines.len(), 12, "{did:?}");
        for line in &lines[..10] {
            assert!(["22", "1"].contains(line), "{did:?}");
        }
        assert_eq!(lines[10..], ["twin done", "twin done"], "{did:?}");
        let id = id_of(&path);
        assert!(ProjectIds::default().has(id), "{id}");
        for name in ["d", "f"] {
            assert_eq!(id_of(&path.join(name)), id, "{name}");
        }
        sandbox.end().await;
        house.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn a_session_keeps_its_project_asleep_and_over_a_restart() {
    if !is_root() {
        return;
    }
    let disk = Disk::ext4();
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let (state, path) = (disk.directory("state"), disk.directory("all/a/workspace"));
    // It was there before there were quotas, and is more than will be allowed.
    fs::create_dir_all(path.join("old/deep")).unwrap();
    fs::write(path.join("old/deep/file"), vec![1; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("/etc", path.join("old/link")).unwrap();
    let mut spec = over(image.path(), with_workspace(&path, limited(2 * MIB, 200)));
    spec.keep_layer = true;
    let id = SandboxId::generate();
    let house = House::at(&state).await;
    let sandbox = house.try_rent(&id, &spec, Start::Fresh).await.unwrap();
    let project = id_of(&path);
    assert_eq!(id_of(&path.join("old/deep/file")), project);
    assert_eq!(id_of(&path.join("old/deep")), project);
    let did = sandbox.sh("echo x > /etc/x").await;
    assert_ne!(did.exit.code, 0, "{did:?}");
    assert_eq!(
        sandbox
            .says("rm -r /workspace/old; echo x > /etc/x; cat /etc/x")
            .await,
        "x"
    );
    sandbox.sleep().await;
    // Asleep: what the service writes is under it as well.
    let root_may = fs::write(path.join("more"), vec![1; 1 << 20]);
    root_may.unwrap();
    assert_eq!(id_of(&path.join("more")), project);
    house.close().await;

    // Another daemon, and another limit.
    let house = House::at(&state).await;
    spec.disk_bytes.as_mut().unwrap().value = 4 * MIB;
    let sandbox = house.try_rent(&id, &spec, Start::KeptLayer).await.unwrap();
    assert_eq!(id_of(&path), project);
    assert!(how(&sandbox).contains("the write layer by project quota"));
    let did = sandbox.sh("exec cat /dev/zero > /etc/big").await;
    assert_eq!(did.exit.code, 1, "{did:?}");
    let big: u64 = sandbox.says("stat -c %s /etc/big").await.parse().unwrap();
    assert!((2 * MIB..3 * MIB).contains(&big), "{big}");
    sandbox.end().await;

    // Without a limit it has none, also where it had one.
    spec.disk_bytes = None;
    spec.disk_files = None;
    let sandbox = house.rent(&spec).await;
    assert_eq!(
        sandbox.says("cat /workspace/more /workspace/more /workspace/more /workspace/more /workspace/more > /workspace/all; stat -c %s /workspace/all").await,
        (5 * MIB).to_string()
    );
    sandbox.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn a_number_is_used_again_only_when_no_file_bears_it() {
    if !is_root() {
        return;
    }
    for disk in [Disk::ext4(), Disk::xfs()] {
        let state = disk.directory("state");
        let settings = Settings {
            project_ids: Some("500-502".parse().unwrap()),
            ..Settings::default()
        };
        let programs = Programs::embedded().unwrap();
        let backend = Namespaces::start_with(&state, programs, settings.clone()).await;
        let house = House::of(backend.unwrap(), &state);
        let mut used = Vec::new();
        for name in ["a", "b"] {
            let path = disk.directory(&format!("all/{name}/workspace"));
            let spec = with_workspace(&path, limited(8 * MIB, 200));
            house.rent(&spec).await.end().await;
            used.push(id_of(&path));
        }
        assert_eq!(used, [500, 501]);
        // The workspace of the first goes, but for a file that somebody has open.
        let open = File::create(disk.at.join("all/a/workspace/open")).unwrap();
        fs::remove_dir_all(disk.at.join("all/a")).unwrap();
        let third = disk.directory("all/c/workspace");
        let spec = with_workspace(&third, limited(8 * MIB, 200));
        house.rent(&spec).await.end().await;
        assert_eq!(id_of(&third), 502);
        // All are borne: what is stored is counted, and that is said.
        let fourth = disk.directory("all/d/workspace");
        let spec = with_workspace(&fourth, limited(8 * MIB, 200));
        let sandbox = house.rent(&spec).await;
        assert!(
            how(&sandbox).contains("the workspace by counting"),
            "{}",
            how(&sandbox)
        );
        assert_eq!(id_of(&fourth), 0);
        sandbox.end().await;
        drop(open);
        // Another daemon, as after a crash, with nothing in mind but what the file system says.
        house.close().await;
        let programs = Programs::embedded().unwrap();
        let backend = Namespaces::start_with(&state, programs, settings).await;
        let house = House::of(backend.unwrap(), &state);
        let mut sandbox = house.rent(&spec).await;
        for _ in 0..30 {
            if how(&sandbox).contains("the workspace by project quota") {
                break;
            }
            // XFS removes what nobody has open any more a moment later.
            tokio::time::sleep(Duration::from_millis(500)).await;
            sandbox.end().await;
            sandbox = house.rent(&spec).await;
        }
        assert_eq!(id_of(&fourth), 500);
        sandbox.end().await;
        house.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn a_parked_sandbox_gets_the_project_of_its_workspace() {
    if !is_root() {
        return;
    }
    let disk = Disk::ext4();
    let image = tempfile::tempdir().unwrap();
    small_root(image.path());
    let house = House::at(&disk.directory("state")).await;
    let path = disk.directory("all/a/workspace");
    let spec = over(image.path(), with_workspace(&path, limited(4 * MIB, 200)));
    // One that the workspace has from before.
    house.rent(&spec).await.end().await;
    let before = id_of(&path);
    let kind = Kind {
        name: "small".to_owned(),
        spec: spec.kind(),
        count: 1,
    };
    let pool = house.backend.pool().unwrap();
    pool.park(&kind).await.unwrap();
    let sandbox = house.take(&SandboxId::generate(), &spec).await.unwrap();
    assert_eq!(id_of(&path), before);
    assert_eq!(
        how(&sandbox),
        "the write layer by project quota, the workspace by project quota"
    );
    // One limit for both.
    let did = sandbox.sh("exec cat /dev/zero > /workspace/big").await;
    assert_eq!((did.exit.code, did.exit.ended), (1, Ended::Disk), "{did:?}");
    let did = sandbox
        .sh("cat /dev/zero > /etc/big; stat -c %s /etc/big || echo 0")
        .await;
    let more: u64 = did.out.trim().parse().unwrap();
    assert!(more < MIB, "{did:?}");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a kernel with project quotas: cargo xtask vm"]
async fn where_a_quota_does_not_reach_it_is_counted_and_said_so() {
    if !is_root() {
        return;
    }
    let disk = Disk::ext4();
    let (image, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    small_root(image.path());
    // The layer is elsewhere.
    let house = House::at(state.path()).await;
    let path = disk.directory("all/a/workspace");
    let spec = over(image.path(), with_workspace(&path, limited(8 * MIB, 200)));
    let sandbox = house.rent(&spec).await;
    assert_eq!(
        how(&sandbox),
        "the write layer by counting, the workspace by project quota"
    );
    sandbox.end().await;
    // Somebody else's project stays theirs, and holds.
    let path = disk.directory("all/b/workspace");
    let theirs = Project {
        id: 42,
        handed_on: true,
    };
    set_project(File::open(&path).unwrap().as_fd(), theirs).unwrap();
    let spec = with_workspace(&path, limited(8 * MIB, 200));
    let sandbox = house.rent(&spec).await;
    assert!(how(&sandbox).contains("the workspace by counting"));
    assert_eq!(id_of(&path), 42);
    sandbox.end().await;
    house.close().await;
    // A file system that counts, and is not asked to keep limits.
    let disk = Disk::new(&["mkfs.ext4", "-q", "-F", "-O", "project,quota"], "rw");
    assert!(project_quotas(&disk.at).unwrap_err().contains("prjquota"));
    let house = House::at(&disk.directory("state")).await;
    let path = disk.directory("all/a/workspace");
    let spec = with_workspace(&path, limited(8 * MIB, 200));
    let sandbox = house.rent(&spec).await;
    assert!(how(&sandbox).contains("the workspace by counting"));
    sandbox.end().await;
    house.close().await;
}
