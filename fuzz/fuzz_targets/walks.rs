//! Reads and changes of a stored workspace that is full of traps: whatever is asked for, nothing beside it is read, made
//! or removed, and nothing waits for a queue that nobody writes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sandboxd_files::{Files, NewFiles};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

const CANARY: &str = "canary-5d41402abc4b2a76";

/// A directory with `outside/canary` in it, and `inside` with links to it.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = std::env::temp_dir().join(format!("walks-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(place.join("outside")).expect("a directory");
        std::fs::write(place.join("outside/canary"), CANARY).expect("a file");
        place
    })
}

/// The traps, set anew where one is gone.
fn set(inside: &Path) {
    let outside = place().join("outside");
    let _ = std::fs::create_dir_all(inside.join("d/e"));
    for (at, to) in [
        ("l", outside.as_path()),
        ("c", &outside.join("canary")),
        ("u", Path::new("../outside/canary")),
        ("d/p", Path::new("../..")),
        ("o", Path::new("o")),
        ("n", &outside.join("new")),
    ] {
        let _ = symlink(to, inside.join(at));
    }
    if !inside.join("f").exists() {
        let _ = std::fs::write(inside.join("f"), "inside");
    }
    if !inside.join("q").exists() {
        let _ = std::process::Command::new("mkfifo")
            .arg(inside.join("q"))
            .status();
    }
}

fuzz_target!(|input: (u8, &[u8], &[u8])| {
    let (op, path, other) = input;
    let inside = place().join("inside");
    set(&inside);
    let files = Files::beneath_path(&inside, NewFiles::default()).expect("it is there");
    match op % 10 {
        0 => {
            if let Ok(mut reading) = files.read(path, 4096)
                && let Ok(content) = reading.rest()
            {
                let text = String::from_utf8_lossy(&content);
                assert!(!text.contains(CANARY), "{path:?}");
            }
        }
        1 => drop(files.stat(path)),
        2 => drop(files.list(path, 64)),
        3 => {
            if let Ok(real) = files.real_path(path) {
                let real = String::from_utf8_lossy(&real).into_owned();
                assert!(!real.split('/').any(|name| name == ".."), "{real}");
            }
        }
        4 => drop(files.entries(path, 64)),
        5 => drop(files.make_dir(path)),
        6 => drop(files.remove(path).map(|removal| removal.finish())),
        7 => drop(files.rename(path, other)),
        _ => {
            if let Ok(mut writing) = files.write(path, 0o644, op % 2 == 0, 64)
                && writing.push(&other[..other.len().min(64)]).is_ok()
            {
                drop(writing.finish());
            }
        }
    }
    let outside = place().join("outside");
    let left = std::fs::read_to_string(outside.join("canary"));
    assert_eq!(left.ok().as_deref(), Some(CANARY), "{op} {path:?}");
    assert_eq!(std::fs::read_dir(outside).expect("it is there").count(), 1);
});
