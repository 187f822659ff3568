//! Two sessions side by side: what one can do to the other, and what both leave for the host's own users.

use crate::ordinary::is_root;
use crate::place::{Place, none_works};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

pub(crate) async fn one_cannot_see_signal_or_trace_the_other() {
    let place = Place::open().await;
    for id in ["a", "b"] {
        place.session(id).await;
    }
    place.says("b", "echo mine > file; setsid sleep 77 > /dev/null 2>&1 & sleep 0.1").await;
    let said = place
        .python_says(
            "a",
            r"
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
seen = [pid for pid in map(int, filter(str.isdigit, os.listdir('/proc'))) if b'sleep\x0077' in open(f'/proc/{pid}/cmdline', 'rb').read()]
assert not seen, seen
mine = set(map(int, filter(str.isdigit, os.listdir('/proc'))))
for pid in list(range(2, 4096)) + [1 << 20, (1 << 22) - 1]:
    if pid in mine: continue
    try: os.kill(pid, 0)
    except ProcessLookupError: pass
    else:
        # It may be one of this sandbox's own that was born meanwhile.
        assert os.path.exists(f'/proc/{pid}'), pid
    assert libc.ptrace(16, pid, 0, 0) == -1
assert libc.ptrace(16, 1, 0, 0) == -1 and libc.ptrace(0x4206, 1, 0, 0) == -1
print('alone')
",
        )
        .await;
    assert_eq!(said, "alone");
    none_works(
        &place,
        "a",
        &["cat /workspace/../b/workspace/file", "ls /proc/*/root/workspace/file", "cat /workspace/file"],
    )
    .await;
    assert_eq!(place.says("b", "cat file; pgrep -c sleep").await, "mine\n1");
    place.close().await;
}

pub(crate) async fn what_is_left_in_a_workspace_lends_a_host_user_nothing() {
    let place = Place::open().await;
    place.session("a").await;
    place.compile("a", "who", "int main(void) { return 0; }");
    let script = "cp who lent; chown 0:0 lent 2>/dev/null; chmod 6777 lent 2>/dev/null; chmod 0777 .; cp /bin/sh shell; chmod 4777 shell 2>/dev/null; \
                  setfacl -m u:1000:rwx lent 2>/dev/null; setcap cap_setuid+ep lent 2>/dev/null; ls";
    assert!(place.says("a", script).await.contains("lent"));
    let stored = place.stored("a");
    // Nobody but the service's own user gets as far as the directory.
    for directory in [stored.parent().unwrap(), stored.parent().unwrap().parent().unwrap()] {
        let mode = directory.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o700, "{directory:?}");
    }
    if is_root() {
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.home(), open).unwrap();
        for name in ["lent", "shell", "who", ""] {
            let path = stored.join(name);
            let refused = Command::new(&path).uid(65_534).gid(65_534).output();
            assert!(refused.is_err(), "{path:?}");
        }
        // And if they did: whose rights it lends is nobody's on this host.
        let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
        for name in ["lent", "shell"] {
            let owner = stored.join(name).metadata().unwrap().uid();
            assert_ne!(owner, 0, "{name}");
            assert!(!accounts.lines().any(|line| line.split(':').nth(2) == Some(&owner.to_string())), "{owner}");
        }
    } else {
        // Files of the service's user: what they would lend is its own rights, so they lend none.
        for name in ["lent", "shell"] {
            let status = stored.join(name).metadata().unwrap();
            assert_eq!(status.uid(), rustix::process::geteuid().as_raw());
        }
    }
    place.close().await;
}
