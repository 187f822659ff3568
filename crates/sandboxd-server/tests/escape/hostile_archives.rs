//! Tar files that unpack to somewhere else, to something else, or to more than there is room for.

use crate::place::Place;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Writes one archive per trap into a directory, by the name of the trap.
const MAKE: &str = r"
import io, os, sys, tarfile
place, outside = sys.argv[1], sys.argv[2]
def make(name, *entries):
    with tarfile.open(os.path.join(place, name + '.tar'), 'w', format=tarfile.GNU_FORMAT) as tar:
        for entry in entries:
            content = b'planted' if entry.isreg() else None
            if content: entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content) if content else None)
def entry(name, kind=tarfile.REGTYPE, link='', mode=0o644, **more):
    info = tarfile.TarInfo(name); info.type, info.linkname, info.mode = kind, link, mode
    for key, value in more.items(): setattr(info, key, value)
    return info
up = '../' * 12
make('upward', entry(up + outside + '/planted'))
make('absolute', entry(outside + '/planted'))
make('link-then-file', entry('l', tarfile.SYMTYPE, outside), entry('l/planted'))
make('link-chain', entry('a', tarfile.SYMTYPE, 'b'), entry('b', tarfile.SYMTYPE, up + outside), entry('a/planted'))
make('link-to-root', entry('r', tarfile.SYMTYPE, '/'), entry('r' + outside + '/planted'))
make('hard-link-out', entry('h', tarfile.LNKTYPE, outside + '/canary'))
make('hard-link-up', entry('h', tarfile.LNKTYPE, up + outside + '/canary'), entry('h'))
make('link-replaced', entry('d', tarfile.DIRTYPE), entry('d', tarfile.SYMTYPE, outside), entry('d/planted'))
make('device', entry('disk', tarfile.BLKTYPE, devmajor=8, devminor=0))
make('memory', entry('mem', tarfile.CHRTYPE, devmajor=1, devminor=1))
make('queue', entry('q', tarfile.FIFOTYPE))
make('dots', entry('a/../../../..' + outside + '/planted'))
make('long-name', entry('n' * 4097))
make('deep', entry('d/' * 3000 + 'x'))
# More than there is: ten terabytes of nothing, by the header alone.
with open(os.path.join(place, 'huge.tar'), 'wb') as file:
    info = entry('huge'); info.size = 10 << 40
    file.write(info.tobuf(tarfile.GNU_FORMAT)); file.write(b'x' * 512)
with open(os.path.join(place, 'sparse.tar'), 'wb') as file:
    info = entry('sparse'); header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b'S'; header[124:136] = b'\x80' + (0).to_bytes(11, 'big')
    header[483:495] = b'\x80' + (10 << 40).to_bytes(11, 'big')
    header[148:156] = b' ' * 8; header[148:156] = ('%06o\0 ' % sum(header)).encode()
    file.write(header); file.write(b'\0' * 1024)
usr = entry('usr', tarfile.DIRTYPE, mode=0o755)
make('inside-backslash', usr, entry('..\\..\\planted-name'), entry('C:\\planted-name'))
make('inside-odd-names', usr, entry('new\nline'), entry('\x1b]0;t\x07'))
make('inside-file-over-link', usr, entry('f', tarfile.SYMTYPE, outside + '/planted'), entry('f'))
make('inside-hard-link-to-link', usr, entry('s', tarfile.SYMTYPE, outside + '/canary'), entry('h', tarfile.LNKTYPE, 's'))
make('inside-twice', usr, entry('f'), entry('f'))
# Sizes that two readers take from different places: what one skips, the other unpacks. Such an archive is refused.
inner = io.BytesIO()
with tarfile.open(fileobj=inner, mode='w') as tar: tar.addfile(entry('etc/smuggled'))
body = inner.getvalue()[:1024]
for name, first, second in (('pax-size-first', len(body), 0), ('pax-size-second', 0, len(body))):
    with open(os.path.join(place, name + '.tar'), 'wb') as file:
        file.write(usr.tobuf(tarfile.GNU_FORMAT))
        info = entry('carrier'); info.size = second; info.pax_headers = {'size': str(first)}
        file.write(info.tobuf(tarfile.PAX_FORMAT)); file.write(body); file.write(b'\0' * 1024)
with open(os.path.join(place, 'cut-short.tar'), 'wb') as file: file.write(entry('x').tobuf()[:300])
with open(os.path.join(place, 'no-archive.tar'), 'wb') as file: file.write(os.urandom(4096))
";

/// The names in an archive as GNU tar reads it, or nothing where it complains.
fn listed_by_gnu(tar: &Path) -> Option<Vec<String>> {
    let output = Command::new("tar").arg("-tf").arg(tar).output().ok()?;
    let names = String::from_utf8_lossy(&output.stdout);
    output
        .status
        .success()
        .then(|| names.lines().map(str::to_owned).collect())
}

pub(crate) async fn none_unpacks_to_anywhere_else() {
    let traps = tempfile::tempdir().unwrap();
    let outside = traps.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("canary"), crate::place::CANARY).unwrap();
    let made = Command::new("/usr/bin/python3")
        .args(["-c", MAKE])
        .arg(traps.path())
        .arg(&outside)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // The twin: an image that unpacks, and runs.
    let root = traps.path().join("root");
    crate::rented::small_root(&root);
    let packed = Command::new("tar")
        .arg("-C")
        .arg(&root)
        .arg("-cf")
        .arg(traps.path().join("plain.tar"))
        .arg(".")
        .status()
        .unwrap();
    assert!(packed.success());
    let mut names: Vec<String> = std::fs::read_dir(traps.path())
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.strip_suffix(".tar").map(str::to_owned))
        .collect();
    names.sort();
    assert!(names.len() > 20, "{names:?}");
    let images: Vec<String> = names
        .iter()
        .map(|name| format!("{name}={}", traps.path().join(format!("{name}.tar")).display()))
        .collect();
    let runtimes: Vec<String> = names.iter().map(|name| format!("{name}={name}")).collect();
    let place = Place::open_with(&[
        ("SANDBOXD_IMAGES", &images.join(",")),
        ("SANDBOXD_RUNTIMES", &runtimes.join(",")),
        ("SANDBOXD_PREWARM", "false"),
        ("SANDBOXD_MAX_SESSIONS", "40"),
    ])
    .await;
    let mut refused = 0;
    for name in &names {
        let begin = Instant::now();
        let body = serde_json::json!({"session_id": name, "runtime": name});
        let reply = place.post("/sessions", body).await;
        assert!(begin.elapsed() < Duration::from_secs(30), "{name}");
        let harmless = name == "plain" || name.starts_with("inside-");
        assert_eq!(reply.status == 200, harmless, "{name}: {}", reply.text());
        if harmless {
            same_names(&place, name, &traps.path().join(format!("{name}.tar"))).await;
        } else {
            assert_eq!(reply.status, 502, "{name}: {}", reply.text());
            assert!(!reply.body.contains(&0x1b), "{name}: {}", reply.text());
            refused += 1;
        }
        let left: Vec<_> = std::fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["canary"], "{name}");
        assert_eq!(std::fs::read_to_string(outside.join("canary")).unwrap(), crate::place::CANARY);
        assert!(!Path::new("/planted").exists());
    }
    assert!(refused > 15, "{refused}");
    assert_eq!(place.says("plain", "cat /etc/release").await, "small");
    // Half-unpacked images are none, and take no room.
    for path in walk(&place.home().join("state")) {
        let text = path.display().to_string();
        assert!(!text.ends_with("/planted") && !text.contains("/making/"), "{text}");
    }
    place.close().await;
}

/// What the sandbox has at the top and in `etc` is what GNU tar reads in the archive: neither reader finds what the other
/// does not.
async fn same_names(place: &Place, name: &str, tar: &Path) {
    let gnu = listed_by_gnu(tar).expect("GNU tar reads it");
    for smuggled in ["etc/smuggled", "carrier", "f", "h"] {
        let (directory, last) = smuggled.rsplit_once('/').unwrap_or(("", smuggled));
        let body = serde_json::json!({"path": format!("/{directory}")});
        let listed = place.post(&format!("/sessions/{name}/ls"), body).await.text();
        assert_eq!(
            // A link is listed with where it points.
            listed.contains(&format!("\"{last}\"")) || listed.contains(&format!("\"{last} -> ")),
            gnu.iter().any(|found| found == smuggled),
            "{name}, {smuggled}: {listed} {gnu:?}"
        );
    }
}

fn walk(top: &Path) -> Vec<std::path::PathBuf> {
    let mut all = Vec::new();
    let mut todo = vec![top.to_owned()];
    while let Some(directory) = todo.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                todo.push(entry.path());
            }
            all.push(entry.path());
        }
    }
    all
}
