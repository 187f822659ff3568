//! Descriptors of the host that a program inside inherits, and the paths that lead through them.

use crate::place::Place;
use serde_json::json;

pub(crate) async fn a_run_has_its_three_streams_and_nothing_else() {
    let place = Place::open().await;
    place.session("a").await;
    let program = r"
import os
open_ = sorted(int(n) for n in os.listdir('/proc/self/fd'))
# The fourth is the listing itself.
assert open_[:3] == [0, 1, 2] and len(open_) == 4, open_
for n in (0, 1, 2):
    target = os.readlink(f'/proc/self/fd/{n}')
    assert target == '/dev/null' or target.startswith('pipe:'), target
for n in range(3, 1024):
    try: os.fstat(n)
    except OSError: continue
    raise AssertionError(n)
here = os.getcwd()
assert here == '/workspace' and not here.startswith('(unreachable)'), here
assert os.readlink('/proc/self/root') == '/'
print('three')
";
    // 200 at once, so that a descriptor that is open only for a moment is met by somebody.
    let all = (0..200).map(|_| place.python_says("a", program));
    let mut done = 0;
    for said in futures_all(all).await {
        assert_eq!(said, "three");
        done += 1;
    }
    assert_eq!(done, 200);
    // And 200 at the very same time, of a program so small that they are all there together.
    let all = (0..200).map(|_| place.says("a", "ls /proc/self/fd; pwd -P; sleep 0.1"));
    for said in futures::future::join_all(all).await {
        assert_eq!(said, "0\n1\n2\n3\n/workspace");
    }
    place.close().await;
}

/// Some at a time.
async fn futures_all<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    use futures::StreamExt as _;
    futures::stream::iter(all).buffer_unordered(20).collect().await
}

pub(crate) async fn no_path_through_a_descriptor_leads_out() {
    let place = Place::open().await;
    place.session("a").await;
    for number in (0..70).chain([127, 220, 221, 222, 255, 256, 1023]) {
        let through = format!("/proc/self/fd/{number}");
        for path in [
            through.clone(),
            format!("{through}/bin/sh"),
            format!("{through}/../../../../bin/sh"),
            format!("/proc/1/fd/{number}"),
            format!("/dev/fd/{number}/../../../../../etc/shadow"),
        ] {
            let did = place.run("a", &[&path, "-c", "id; ls /"], json!({})).await;
            assert!(!did.worked(), "{path}: {did:?}");
        }
        let read = place.post("/sessions/a/read", json!({"path": format!("{through}/../../../../../../etc/shadow")})).await;
        assert!(!read.text().contains("root:"), "{}", read.text());
        let native = json!({"path": format!("/proc/self/fd/{number}/etc/hostname")});
        let reply = place.post("/sessions/a/files/read", native).await;
        assert_ne!(reply.status, 200, "{number}");
    }
    // Every number that there can be, for a program that goes there itself.
    let program = r"
import os
went = 0
for n in range(1024):
    for path in (f'/proc/self/fd/{n}', f'/proc/1/fd/{n}', f'/dev/fd/{n}'):
        os.chdir('/workspace')
        try: os.chdir(path)
        except OSError: continue
        went += 1
        here = os.getcwd()
        assert not here.startswith('(unreachable)') and not os.path.exists('etc/shadow') and not os.path.exists('../etc/shadow'), (path, here)
# The twin: to a directory of its own it does go.
mine = os.open('/tmp', os.O_RDONLY)
os.chdir(f'/proc/self/fd/{mine}'); assert os.getcwd() == '/tmp'
print(went)
";
    assert_eq!(place.python_says("a", program).await, "0");
    // A shell that goes there stays inside.
    for number in 0..16 {
        let script = format!("cd /proc/self/fd/{number} 2>/dev/null || exit 0; /bin/pwd; ls -A . ..; cat etc/shadow ../etc/shadow");
        let did = place.sh("a", &script).await;
        assert!(!did.out.contains("unreachable") && !did.out.contains("root:"), "{did:?}");
    }
    assert_eq!(place.says("a", "cd /tmp; pwd").await, "/tmp");
    place.close().await;
}
