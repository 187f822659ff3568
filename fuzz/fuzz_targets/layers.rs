//! Tars of strangers, unpacked as layers of images: what is refused and what is not, nothing lands beside the directory, no
//! file lends its owner's rights, and no device but the mark of what is hidden comes to be.

#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

// The rooms that read them, without the service that they are in, whose build takes long.
#[expect(dead_code, reason = "the service uses more of it")]
#[path = "../../crates/sandboxd-server/src/limits.rs"]
mod limits;
#[expect(dead_code, reason = "the service uses more of it")]
#[path = "../../crates/sandboxd-server/src/runtimes/images"]
mod images {
    mod entries;
    mod place;
    pub(crate) mod unpack;

    use std::path::Path;
    use unpack::{Bounds, Rules};

    pub(crate) fn unpack(tar: &[u8], root: &Path, owners: bool) {
        let bounds = Bounds {
            entries: 64,
            bytes: 64 * 1024,
            depth: 16,
        };
        let rules = Rules {
            owners,
            whiteouts: true,
            bounds,
        };
        let _ = unpack::unpack(tar, root, &rules);
    }
}

const CANARY: &str = "canary-5d41402abc4b2a76";

/// A directory with `outside/canary` in it.
fn place() -> &'static Path {
    static PLACE: OnceLock<PathBuf> = OnceLock::new();
    PLACE.get_or_init(|| {
        let place = std::env::temp_dir().join(format!("layers-{}", std::process::id()));
        let _ = fs::remove_dir_all(&place);
        fs::create_dir_all(place.join("outside")).expect("a directory");
        fs::write(place.join("outside/canary"), CANARY).expect("a file");
        place
    })
}

/// Makes the sums of its headers right, without which no reader looks at the rest.
fn summed(input: &[u8]) -> Vec<u8> {
    let mut tar = input.to_vec();
    let mut at = 0;
    while let Some(header) = tar.get_mut(at..at + 512) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = std::str::from_utf8(&header[124..136]).unwrap_or("");
        let size = usize::from_str_radix(digits.trim_matches(['\0', ' ']), 8).unwrap_or(0);
        at += 512 + size.min(1 << 20).next_multiple_of(512);
    }
    tar
}

fn look(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let status = path.symlink_metadata().expect("it is there");
        let kind = status.file_type();
        if kind.is_dir() {
            look(&path);
            continue;
        }
        assert!(
            !kind.is_fifo() && !kind.is_socket() && !kind.is_block_device(),
            "{path:?}"
        );
        assert!(!kind.is_char_device() || status.rdev() == 0, "{path:?}");
        assert!(
            kind.is_symlink() || status.mode() & 0o6000 == 0,
            "{path:?} {:o}",
            status.mode()
        );
    }
}

fuzz_target!(|input: &[u8]| {
    let inside = place().join("inside");
    // As root with the owners that the tar names; by others with their own.
    let is_root = fs::metadata(place()).expect("it is there").uid() == 0;
    images::unpack(&summed(input), &inside, is_root);
    look(&inside);
    let mut canary = String::new();
    let file = fs::File::open(place().join("outside/canary"));
    file.and_then(|mut file| file.read_to_string(&mut canary))
        .expect("untouched");
    assert_eq!(canary, CANARY);
    for (at, most) in [(place().to_owned(), 2), (place().join("outside"), 1)] {
        assert!(fs::read_dir(at).expect("a directory").count() <= most);
    }
    // Closed to its owner, and of another's, it has to go all the same.
    sandboxd_jail::remains::remove_tree(&inside).expect("it goes");
});
