//! Programs that the kernel starts on the host, as root, because of something that happens anywhere.

use crate::place::{Place, none_works};

pub(crate) async fn none_is_named_and_none_is_started() {
    let place = Place::open().await;
    place.session("a").await;
    let settings = ["kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/poweroff_cmd"];
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/{name}")).unwrap_or_default();
    let before: Vec<String> = settings.iter().map(|name| read(name)).collect();
    for name in settings {
        none_works(&place, "a", &[&format!("echo '|/workspace/x %p' > /proc/sys/{name}")]).await;
    }
    none_works(
        &place,
        "a",
        &[
            "mkdir -p /tmp/b; mount -t binfmt_misc none /tmp/b",
            "echo ':x:M::\\x7fELF::/workspace/x:' > /proc/sys/fs/binfmt_misc/register",
            "echo /workspace/x > /sys/kernel/uevent_helper",
            "echo add > /sys/class/mem/null/uevent",
            "cat /proc/sys/fs/binfmt_misc/register",
        ],
    )
    .await;
    let after: Vec<String> = settings.iter().map(|name| read(name)).collect();
    assert_eq!(before, after);
    // A crash that asks for as large a core as there can be: none, inside or out, and no limit that would let one be made.
    let said = place
        .python_says(
            "a",
            r"
import os, resource, signal
for wanted in ((0, 0), (resource.RLIM_INFINITY,) * 2, (1 << 30, 1 << 30)):
    try: resource.setrlimit(resource.RLIMIT_CORE, wanted)
    except (OSError, ValueError): pass
    assert resource.getrlimit(resource.RLIMIT_CORE)[1] in (0, 1), resource.getrlimit(resource.RLIMIT_CORE)
child = os.fork()
if child == 0:
    os.chdir('/workspace'); os.kill(os.getpid(), signal.SIGSEGV); os._exit(0)
_, status = os.waitpid(child, 0)
assert os.WIFSIGNALED(status) and not os.WCOREDUMP(status), status
assert not [n for n in os.listdir('/workspace') if n.startswith('core')]
# A kind of program that no kernel has, for which it would ask a helper to load something.
open('/tmp/odd', 'wb').write(bytes([0x13, 0x37, 0x80, 0xff]) + b'odd' * 60); os.chmod('/tmp/odd', 0o755)
try: os.execv('/tmp/odd', ['odd'])
except OSError as error: assert error.errno == 8, error
print('none')
",
        )
        .await;
    assert_eq!(said, "none");
    place.close().await;
}
