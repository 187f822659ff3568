//! Keys that the kernel keeps for others: of whoever started the service, of its launcher, of the sandbox beside.
//!
//! Two walls hold them, and the second of them has a test of its own beside its code (`steps/keyring.rs` of the jail): the
//! filter refuses every call on keys, and a sandbox begins with a session keyring that is new and empty.

use crate::place::Place;
use std::process::Command;

/// Calls on keys, by the table of this machine.
const CALLS: &str = r"
import ctypes, errno, platform, sys
libc = ctypes.CDLL(None, use_errno=True)
keyctl, add_key, request_key = (250, 248, 249) if platform.machine() == 'x86_64' else (219, 217, 218)
def call(*words):
    ctypes.set_errno(0)
    done = libc.syscall(*words)
    return done, errno.errorcode.get(ctypes.get_errno(), '')
";

/// Makes a key that everybody may read, write and link: says which.
const MAKE: &str = r"
serial, why = call(add_key, b'user', b'sandboxd-canary', b'of the host', 11, -4)
if serial > 0: call(keyctl, 5, serial, 0x3f3f3f3f)
print(serial, why)
";

/// Tries everything with the keys named: reads, describes, links, searches, changes who may, and takes them away.
const TRY: &str = r"
room = ctypes.create_string_buffer(64)
for serial in map(int, sys.argv[1:]):
    tries = {
        'read': (11, serial, room, 64), 'describe': (6, serial, room, 64), 'link': (8, serial, -3), 'join': (1, b'_ses'),
        'search': (10, serial, b'user', b'sandboxd-canary', 0), 'open up': (5, serial, 0x3f3f3f3f),
        'own': (0, -3, 0), 'parent': (18,), 'persistent': (22, -1, -3),
    }
    for name, words in tries.items():
        done, why = call(keyctl, *words)
        print(name, why if done < 0 else 'worked', room.value[:11].decode('utf-8', 'replace') if name == 'read' else '')
print('request', call(request_key, b'user', b'sandboxd-canary', 0, -3)[1] or 'worked')
print('add', call(add_key, b'user', b'own', b'x', 1, -3)[1] or 'worked')
";

/// On the host, by the user who runs the test.
fn outside(program: &str, words: &[String]) -> String {
    let done = Command::new("/usr/bin/python3")
        .args(["-c", &format!("{CALLS}{program}")])
        .args(words)
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap()
}

/// Every key that the host shows to the user who runs the test: of all sandboxes, where they run as that user.
fn shown() -> Vec<String> {
    let list = std::fs::read_to_string("/proc/keys").unwrap_or_default();
    let serials = list.lines().filter_map(|line| line.split(' ').next());
    serials
        .filter_map(|hex| Some(u32::from_str_radix(hex, 16).ok()?.to_string()))
        .collect()
}

pub(crate) async fn none_is_read_linked_or_asked_for() {
    let place = Place::open().await;
    for id in ["a", "b"] {
        place.session(id).await;
    }
    let made = outside(MAKE, &[]);
    let canary = made.split(' ').next().unwrap().to_owned();
    if canary == "-1" {
        println!("this host keeps no keys for its users: {made}");
        place.close().await;
        return;
    }
    let mut serials = shown();
    assert!(serials.contains(&canary), "{serials:?}");
    // The longest list that a command line should have, the canary in it.
    serials.truncate(40);
    serials.push(canary.clone());
    let program = format!("{CALLS}{TRY}");
    let mut words = vec!["/usr/bin/python3", "-c", &program];
    words.extend(serials.iter().map(String::as_str));
    let did = place.run("a", &words, serde_json::json!({})).await;
    assert!(did.worked(), "{did:?}");
    let lines: Vec<&str> = did.out.lines().map(str::trim_end).collect();
    assert_eq!(lines.len(), serials.len() * 9 + 2);
    for line in lines {
        // What is documented: the filter refuses them all, whatever the key.
        assert!(line.ends_with("EPERM"), "{line}");
    }
    assert_eq!(place.says("a", "cat /proc/keys /proc/key-users").await, "");
    // The twin: without the walls the same program reads it, links it and searches.
    let twin = outside(TRY, std::slice::from_ref(&canary));
    for wanted in ["read worked of the host", "describe worked", "link worked", "add worked"] {
        assert!(twin.contains(wanted), "{wanted}: {twin}");
    }
    outside("call(keyctl, 21, int(sys.argv[1]))", &[canary]);
    place.close().await;
}
