//! What a session left, looked for by a hundred that come after it.

use crate::place::{Place, on_docker};

const MARK: &str = "remains-9f86d081884c7d65";

pub(crate) async fn nothing_of_one_is_found_by_the_next() {
    let place = Place::open_with(&[("SANDBOXD_MAX_SESSIONS", "8")]).await;
    let leave = format!(
        r"
import ctypes, ctypes.util, mmap, os, socket
mark = '{MARK}'
for directory in ('/tmp', '/dev/shm', '/var/tmp', '/run', '/root', '/home', '/workspace', '/var/cache', '/etc', '/mnt', '/var/lib', '/var/log'):
    try: open(os.path.join(directory, mark), 'w').write(mark)
    except OSError: pass
libc = ctypes.CDLL(None, use_errno=True)
key = 0x5d41
libc.shmat.restype = ctypes.c_void_p
shared = libc.shmget(key, 4096, 0o1666); address = libc.shmat(shared, None, 0)
ctypes.memmove(address, mark.encode(), len(mark))
libc.semget(key, 4, 0o1666); libc.msgget(key, 0o1666)
queue = libc.mq_open(b'/' + mark.encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
s = socket.socket(socket.AF_UNIX); s.bind('\0' + mark); s.listen()
held = os.memfd_create(mark); os.write(held, mark.encode())
# Memory that the kernel hands on to whoever asks next.
pages = mmap.mmap(-1, 64 << 20); pages.write(mark.encode().ljust(4096, b'.') * (64 << 8))
open('/proc/self/comm', 'w').write(mark[:15])
print('left')
"
    );
    place.session("a").await;
    assert_eq!(place.python_says("a", &leave).await, "left");
    place.says("a", &format!("bash -c 'exec -a {MARK} sleep 100' >/dev/null 2>&1 & true")).await;
    place.purge("a").await;
    let look = format!(
        r"
import ctypes, mmap, os
mark = '{MARK}'[3:]
found = []
for top, directories, names in os.walk('/'):
    if top.startswith(('/proc', '/usr', '/nix')): directories[:] = []; continue
    for name in directories + names:
        if mark in name: found.append(os.path.join(top, name))
        path = os.path.join(top, name)
        try:
            if os.path.isfile(path) and not os.path.islink(path) and mark in open(path, errors='replace').read(1 << 16): found.append(path)
        except OSError: pass
for name in ('net/unix', 'sysvipc/shm', 'sysvipc/msg', 'sysvipc/sem', 'self/mountinfo'):
    text = open('/proc/' + name).read()
    if mark in text or (name.startswith('sysvipc') and len(text.splitlines()) > 1): found.append(name)
for pid in filter(str.isdigit, os.listdir('/proc')):
    for name in ('comm', 'cmdline'):
        try: text = open(f'/proc/{{pid}}/{{name}}').read()
        except OSError: continue
        if mark[:9] in text and int(pid) != os.getpid(): found.append((pid, name))
libc = ctypes.CDLL(None, use_errno=True)
if libc.shmget(0x5d41, 4096, 0) != -1 or libc.semget(0x5d41, 4, 0) != -1 or libc.msgget(0x5d41, 0) != -1: found.append('ipc')
if libc.mq_open(b'/' + ('rem' + mark).encode(), os.O_RDONLY) != -1: found.append('mq')
pages = mmap.mmap(-1, 8 << 20)
if mark.encode() in pages[:]: found.append('memory')
assert not found, found
print('nothing')
"
    );
    std::fs::write(place.home().join("look.py"), &look).unwrap();
    // The twin: the search finds what is there.
    place.session("twin").await;
    place.says("twin", &format!("echo {MARK} > /tmp/x")).await;
    assert!(!place.python("twin", &look).await.worked());
    place.purge("twin").await;
    // A container takes its time to be made, a hundred in a row take minutes: there, some at a time.
    let together = if on_docker() { 5 } else { 1 };
    for first in (0..100).step_by(together) {
        let some = (first..100).take(together).map(|number| looks_around(&place, number, &look));
        futures::future::join_all(some).await;
    }
    place.close().await;
}

async fn looks_around(place: &Place, number: u32, look: &str) {
    // The same name, too, and the ids on the host that were given back.
    let id = if number.is_multiple_of(10) { "a".to_owned() } else { format!("b{number}") };
    place.session(&id).await;
    // Every fifth looks everywhere; all look where something could lie.
    if number.is_multiple_of(5) {
        assert_eq!(place.python_says(&id, look).await, "nothing", "{id}");
    } else {
        let places = format!(
            "ls -A /tmp /dev/shm /var/tmp /run /root /home /workspace /mnt | grep {MARK}; grep {MARK} /proc/net/unix; \
             grep -rl {MARK} /etc /tmp /dev/shm /workspace 2>/dev/null; tail -n +2 -q /proc/sysvipc/*; ls /dev/mqueue"
        );
        let did = place.sh(&id, &places).await;
        assert_eq!(did.out, "", "{id}: {did:?}");
    }
    place.purge(&id).await;
}
