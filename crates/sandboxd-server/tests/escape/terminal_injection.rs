//! Terminals: bytes put into another's input, and sequences that a terminal obeys.

use crate::place::Place;
use crate::wire::{Request, TOKEN};
use serde_json::json;

pub(crate) async fn nothing_is_typed_for_somebody_else() {
    let place = Place::open().await;
    place.session("a").await;
    let said = place
        .python_says(
            "a",
            r"
import errno, fcntl, os, pty, termios
main, other = pty.openpty()
def refused(request, argument, *errnos):
    try: fcntl.ioctl(other, request, argument)
    except OSError as error: assert error.errno in errnos, (hex(request), error)
    else: raise AssertionError(hex(request))
# TIOCSTI, TIOCLINUX, TIOCSETD: by the filter. TIOCCONS, TIOCVHANGUP: for want of a capability.
for request, argument in ((0x5412, b'x'), (0x541c, b'\x02x'), (0x5423, b'\x00\x00\x00\x00'), (0x541d, 0), (0x5437, 0)):
    refused(request, argument, errno.EPERM)
# A terminal of the host's is nowhere to be had.
for path in ('/dev/console', '/dev/tty0', '/dev/tty1', '/dev/ttyS0', '/dev/vcs', '/dev/pts/99'):
    assert not os.path.exists(path), path
# The twin: its own terminal works, and is its own.
child = os.fork()
if child == 0:
    os.setsid(); fcntl.ioctl(other, termios.TIOCSCTTY, 0)
    os.write(os.open('/dev/tty', os.O_RDWR), b'own\n'); os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert os.read(main, 16) == b'own\r\n'
print('own')
",
        )
        .await;
    assert_eq!(said, "own");
    place.close().await;
}

pub(crate) async fn sequences_come_back_as_text_and_nothing_else() {
    let place = Place::open().await;
    place.session("a").await;
    // Clipboard, title report, DECRQSS, device attributes, a hyperlink, and a carriage return that hides a line.
    let hostile = "\\033]52;c;aGk=\\007\\033[21t\\033P$q\"p\\033\\\\\\033[c\\033]8;;http://x\\007\\rhidden\\233";
    let body = json!({
        "argv": ["/usr/bin/printf", hostile], "run_id": place.run_id(),
    });
    let reply = place.post("/sessions/a/run", body).await;
    assert_eq!(reply.ok()["exit_code"], 0);
    assert!(reply.json()["stdout"].as_str().unwrap().contains('\u{1b}'));
    assert!(!reply.body.contains(&0x1b) && !reply.body.contains(&b'\r'), "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    // Names, too: in listings, in errors, in the log of what was done.
    place.says("a", "touch \"$(printf 'x\\033]0;title\\007')\"").await;
    let escape = "\u{1b}]0;title\u{7}";
    for (path, body) in [
        ("/workspaces/a/ls".to_owned(), json!({"path": "."})),
        ("/sessions/a/files/list".to_owned(), json!({"path": "/workspace"})),
        ("/sessions/a/files/read".to_owned(), json!({"path": format!("/workspace/none{escape}")})),
        ("/sessions/a/read".to_owned(), json!({"path": format!("none{escape}")})),
        ("/sessions".to_owned(), json!({"session_id": "c", "runtime": escape})),
        ("/sessions".to_owned(), json!({"session_id": escape})),
    ] {
        let reply = place.post(&path, body).await;
        assert!(!reply.body.contains(&0x1b), "{path}: {}", reply.text());
    }
    let events = Request::new(place.addr, "GET", "/sessions/a/events").token(TOKEN).send().await;
    assert_eq!(events.status, 200);
    assert!(!events.body.contains(&0x1b), "{}", events.text());
    place.close().await;
}
