//! Whose files are whose, on disk and inside.

use crate::rented::{House, host, is_root};
use sandboxd_server::backends::HostWorkspace;
use sandboxd_server::backends::Start;
use sandboxd_server::id::SandboxId;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const STORAGE_FIRST: u32 = 0x7000_0000;

fn owner(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().uid()
}

#[tokio::test]
async fn a_managed_workspace_belongs_to_the_storage_range_and_looks_like_roots_own() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let session = root.path().join("s-1");
    let path = session.join("workspace");
    std::fs::create_dir_all(path.join("old/deep")).unwrap();
    std::fs::write(path.join("old/deep/file"), "kept").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
    let passwd = owner(Path::new("/etc/passwd"));
    std::os::unix::fs::chown(path.join("old"), Some(1000), Some(1000)).unwrap();
    let house = House::new().await;
    let mut spec = host();
    spec.workspace = Some(HostWorkspace {
        path: path.clone(),
        managed: true,
    });
    let sandbox = house.rent(&spec).await;
    assert_eq!(
        sandbox
            .says("stat -c %u:%n . old old/deep old/deep/file link; cat old/deep/file")
            .await,
        "0:.\n1000:old\n0:old/deep\n0:old/deep/file\n0:link\nkept"
    );
    sandbox.says("touch new; touch other; chown 33 other").await;
    // Planted by the host while the sandbox runs.
    std::fs::create_dir_all(path.join("planted/deep")).unwrap();
    std::fs::write(path.join("planted/deep/file"), "by root").unwrap();
    assert_eq!(
        sandbox
            .says("cat planted/deep/file; rm -r planted; ls planted || true")
            .await,
        "by root"
    );
    sandbox.end().await;
    assert_eq!(owner(&path), STORAGE_FIRST);
    assert_eq!(owner(&path.join("new")), STORAGE_FIRST);
    assert_eq!(owner(&path.join("other")), STORAGE_FIRST + 33);
    assert_eq!(owner(&path.join("old")), STORAGE_FIRST + 1000);
    assert_eq!(owner(&path.join("link")), STORAGE_FIRST);
    // A link was given away, not what it points to; and nobody else gets here.
    assert_eq!(owner(Path::new("/etc/passwd")), passwd);
    assert_eq!(session.metadata().unwrap().permissions().mode() & 0o077, 0);
    // Another sandbox, of another range, sees the same.
    let other = house.rent(&host()).await;
    let sandbox = house.rent(&spec).await;
    assert_eq!(sandbox.says("stat -c %u new other").await, "0\n33");
    sandbox.end().await;
    other.end().await;
    house.close().await;
}

#[tokio::test]
async fn with_a_user_the_workspace_is_that_users() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("s-1/workspace");
    std::fs::create_dir_all(&path).unwrap();
    let house = House::new().await;
    let mut spec = host();
    spec.user = Some(1000);
    spec.workspace = Some(HostWorkspace {
        path: path.clone(),
        managed: true,
    });
    let sandbox = house.rent(&spec).await;
    assert_eq!(
        sandbox.says("touch mine; stat -c %u . mine").await,
        "1000\n1000"
    );
    sandbox.end().await;
    assert_eq!(owner(&path.join("mine")), STORAGE_FIRST + 1000);
    house.close().await;
}

#[tokio::test]
async fn a_users_own_directory_stays_that_users() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("roots"), "x").unwrap();
    std::os::unix::fs::chown(directory.path(), Some(4321), Some(4322)).unwrap();
    let house = House::new().await;
    for user in [None, Some(1000)] {
        let mut spec = host();
        spec.user = user;
        spec.workspace = Some(HostWorkspace {
            path: directory.path().to_owned(),
            managed: false,
        });
        let sandbox = house.rent(&spec).await;
        let name = format!("by-{}", user.unwrap_or(0));
        sandbox.says(&format!("touch {name}")).await;
        // What belongs to somebody else on the host cannot be taken.
        assert_ne!(sandbox.sh("chown 0 roots").await.exit.code, 0);
        sandbox.end().await;
        let made = directory.path().join(name).metadata().unwrap();
        assert_eq!((made.uid(), made.gid()), (4321, 4322));
    }
    assert_eq!(owner(directory.path()), 4321);
    assert_eq!(owner(&directory.path().join("roots")), 0);
    assert_eq!(directory.path().read_dir().unwrap().count(), 3);
    house.close().await;
}

#[tokio::test]
async fn two_sandboxes_share_no_user() {
    if !is_root() {
        return;
    }
    let house = House::new().await;
    let one = house.rent(&host()).await;
    let other = house.rent(&host()).await;
    let map = "cat /proc/self/uid_map";
    let (ours, theirs) = (one.says(map).await, other.says(map).await);
    assert_ne!(ours, theirs);
    let first = |map: &str| -> u32 { map.split_whitespace().nth(1).unwrap().parse().unwrap() };
    assert!(first(&ours).abs_diff(first(&theirs)) >= 65_536);
    one.end().await;
    other.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_missing_workspace_and_a_bad_work_directory_are_named() {
    if !is_root() {
        return;
    }
    use sandboxd_server::backends::Start;
    use sandboxd_server::id::SandboxId;
    let house = House::new().await;
    let mut spec = host();
    spec.workspace = Some(HostWorkspace {
        path: "/no/such/directory".into(),
        managed: true,
    });
    let id = SandboxId::generate();
    let error = house
        .try_rent(&id, &spec, Start::Fresh)
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
    for bad in ["/", "relative", "/a/../b", "/proc/x", "/dev", "/sys/a"] {
        let mut spec = host();
        spec.work_dir = bad.to_owned();
        let error = house
            .try_rent(&id, &spec, Start::Fresh)
            .await
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("work directory"),
            "{bad}: {error}"
        );
    }
    assert!(house.backend.list().await.unwrap().is_empty());
    house.close().await;
}

#[tokio::test]
async fn nothing_left_in_a_users_own_directory_lends_that_users_rights() {
    if !is_root() {
        return;
    }
    let own = tempfile::tempdir().unwrap();
    let house = House::new().await;
    let mut spec = host();
    spec.workspace = Some(HostWorkspace {
        path: own.path().to_owned(),
        managed: false,
    });
    let sandbox = house.rent(&spec).await;
    let program = r#"
import ctypes, os, struct
def attempt(name, make):
    try: make()
    except OSError: return
    print(name)
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*arguments) < 0: raise OSError(ctypes.get_errno(), "")
open("f", "w").close()
attempt("chmod", lambda: os.chmod("f", 0o4755))
attempt("setgid", lambda: os.chmod("f", 0o2755))
attempt("fchmod", lambda: os.fchmod(os.open("f", os.O_RDONLY), 0o4755))
attempt("open", lambda: os.open("o", os.O_CREAT | os.O_WRONLY, 0o4755))
attempt("tmpfile", lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY, 0o4755))
attempt("mknod", lambda: os.mknod("n", 0o104755))
attempt("fchmodat2", lambda: call(452, -100, b"f", 0o4755, 0))
how = struct.pack("QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
attempt("openat2", lambda: call(437, -100, b"p", how, len(how)))
caps = struct.pack("<IIIII", 0x02000001, 1 << 21, 0, 0, 0)
attempt("setcap", lambda: os.setxattr("f", "security.capability", caps))
os.chmod("f", 0o1755)
os.mkdir("d", 0o755)
print("done")
"#;
    let did = sandbox.python(program).await;
    assert_eq!(did.out, "done\n", "{did:?}");
    sandbox.end().await;
    for entry in std::fs::read_dir(own.path()).unwrap().flatten() {
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{entry:?}");
    }
    house.close().await;
}

#[tokio::test]
async fn a_user_that_no_sandbox_has_is_refused_by_its_number() {
    if !is_root() {
        return;
    }
    let own = tempfile::tempdir().unwrap();
    let house = House::new().await;
    let mut spec = host();
    spec.workspace = Some(HostWorkspace {
        path: own.path().to_owned(),
        managed: false,
    });
    for user in [65_536, u32::MAX] {
        spec.user = Some(user);
        let id = SandboxId::generate();
        let made = house.try_rent(&id, &spec, Start::Fresh).await;
        let text = made.err().expect("refused").to_string();
        assert!(text.contains(&user.to_string()), "{text}");
    }
    house.close().await;
}
