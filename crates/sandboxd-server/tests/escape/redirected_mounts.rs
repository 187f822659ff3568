//! Root filesystems in which the places where a sandbox's own mounts go are links to what must not be reached.

use crate::ordinary::is_root;
use crate::place::{Place, none_works};
use crate::rented::{House, host, small_root};
use sandboxd_server::backends::{PreparedImage, Start};
use sandboxd_server::id::SandboxId;
use std::os::unix::fs::symlink;
use std::path::Path;

/// An image with one trap, and whether a sandbox may start from it all the same: then its own mount is in place of the
/// trap.
type Trap = (&'static str, &'static str, bool);

const TRAPS: &[Trap] = &[
    ("proc", "/sys", false),
    ("proc", "../../../proc/sys", false),
    ("dev", "/proc/sys/kernel", false),
    ("tmp", "/usr", false),
    ("sys", "/proc", false),
    ("workspace", "/etc", false),
    ("etc", "/usr", false),
    // What lies below these is covered by a file system of the sandbox's own.
    ("dev/null", "/proc/sys/kernel/core_pattern", true),
    ("dev/console", "/proc/sysrq-trigger", true),
    ("dev/pts", "/proc/self/fd", true),
    ("dev/shm", "/proc", true),
    // Files that are written take the place of a link.
    ("etc/hosts", "/proc/sysrq-trigger", true),
    ("etc/resolv.conf", "../../../../../../../../etc/passwd", true),
    ("etc/hostname", "/proc/sys/kernel/hostname", true),
];

fn image(at: &Path, trap: &Trap) {
    small_root(at);
    let path = at.join(trap.0);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).unwrap();
    }
    if trap.0 == "etc" {
        std::fs::remove_dir_all(&path).unwrap();
    }
    symlink(trap.1, path).unwrap();
}

pub(crate) async fn a_root_full_of_links_leads_nowhere() {
    let house = House::new().await;
    let before = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    let (mut started, mut refused) = (0, 0);
    for trap in TRAPS {
        let root = tempfile::tempdir().unwrap();
        image(root.path(), trap);
        let mut spec = host();
        spec.image = PreparedImage::Rootfs {
            path: root.path().to_owned(),
            key: trap.0.to_owned(),
        };
        match house.try_rent(&SandboxId::generate(), &spec, Start::Fresh).await {
            Err(error) => {
                assert!(!trap.2, "{trap:?}: {error}");
                refused += 1;
            }
            Ok(sandbox) => {
                // Where it starts at all, the walls are where they belong.
                let did = sandbox
                    .sh("test ! -L /proc && test ! -L /dev && test ! -L /dev/null && test ! -L /etc/hosts && \
                         test ! -L /etc/resolv.conf && test ! -L /etc/hostname && ls -ld /dev/pts /dev/shm && \
                         read x < /proc/1/stat && stat -f -c %T /proc && echo gone > /dev/null")
                    .await;
                assert!(trap.2, "{trap:?}: {did:?}");
                assert_eq!(did.exit.code, 0, "{trap:?}: {did:?}");
                assert!(did.out.ends_with("proc\n"), "{trap:?}: {did:?}");
                for script in [
                    "echo x > /proc/sys/kernel/core_pattern",
                    "echo h > /proc/sysrq-trigger",
                    "cat /proc/kcore | read x",
                ] {
                    assert_ne!(sandbox.sh(script).await.exit.code, 0, "{trap:?}: {script}");
                }
                sandbox.end().await;
                started += 1;
            }
        }
    }
    assert!(started > 4 && refused > 4, "{started} {refused}");
    let after = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    assert_eq!(before, after);
    house.close().await;
}

pub(crate) async fn a_kept_layer_full_of_links_leads_nowhere() {
    let house = House::new().await;
    let id = SandboxId::generate();
    let mut spec = host();
    spec.keep_layer = true;
    let sandbox = house.try_rent(&id, &spec, Start::Fresh).await.unwrap();
    // What the next start writes or mounts on, as far as a program inside can take it away.
    sandbox
        .says("rm -f /etc/hosts /etc/hostname; ln -s /proc/sys/kernel/core_pattern /etc/hosts; \
               ln -s /proc/sysrq-trigger /etc/hostname; rmdir /home/agent /mnt 2>/dev/null; ln -s /proc/sys /mnt; \
               rm -rf /var/tmp; ln -s /usr /var/tmp; rm -rf /root; ln -s /etc /root; true")
        .await;
    sandbox.sleep().await;
    let woken = house.try_rent(&id, &spec, Start::KeptLayer).await;
    // It wakes as it was, or is refused by name; nothing outside was touched.
    if let Ok(sandbox) = woken {
        assert_eq!(sandbox.says("readlink /etc/hosts").await, "/proc/sys/kernel/core_pattern");
        assert_ne!(sandbox.sh("echo x > /etc/hosts").await.exit.code, 0);
        sandbox.end().await;
    }
    house.backend.destroy(&id).await.unwrap();
    house.close().await;
}

pub(crate) async fn settings_of_the_kernel_cannot_be_written() {
    let place = Place::open().await;
    place.session("a").await;
    let before = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    none_works(
        &place,
        "a",
        &[
            "echo '|/workspace/x' > /proc/sys/kernel/core_pattern",
            "echo x > /proc/self/root/proc/sys/kernel/core_pattern",
            "echo x > /proc/thread-self/root/proc/sys/kernel/modprobe",
            "echo x > /proc/self/task/$$/root/proc/sysrq-trigger",
            "chmod u+w /proc/sys/kernel/core_pattern && echo x > /proc/sys/kernel/core_pattern",
            "chroot /proc/self/root sh -c 'echo x > /proc/sys/kernel/core_pattern'",
            "mkdir /tmp/r && mount -t proc none /tmp/r",
            "mount --bind /proc/self/ns /tmp",
            "dd if=/proc/kcore of=/dev/null count=1 2>&1 | grep -q '512 bytes'",
        ],
    )
    .await;
    let said = place
        .python_says(
            "a",
            r"
import os
tried, written = 0, []
for top in ('/proc/sys', '/proc/irq', '/proc/bus', '/proc/fs', '/sys', '/proc/sysrq-trigger', '/proc/acpi', '/proc/pressure'):
    paths = [top] + [os.path.join(d, n) for d, _, names in os.walk(top) for n in names]
    for path in paths:
        if not os.path.isfile(path): continue
        tried += 1
        try: os.close(os.open(path, os.O_WRONLY)); written.append(path)
        except OSError: pass
assert not written, written
print(tried)
",
        )
        .await;
    assert!(said.parse::<u32>().unwrap() > 500, "{said}");
    assert_eq!(std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap(), before);
    // The twin: what is its own can be written.
    assert_eq!(place.says("a", "echo 900 > /proc/self/oom_score_adj; cat /proc/self/oom_score_adj").await, "900");
    if is_root() {
        assert_eq!(place.says("a", "echo named > /proc/self/comm; cat /proc/self/comm").await, "cat");
    }
    place.close().await;
}
