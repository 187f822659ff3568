//! Hostile and ordinary archives.

use super::*;
use tar::{EntryType, Header};

struct Tar {
    builder: tar::Builder<Vec<u8>>,
}

impl Tar {
    fn new() -> Self {
        Self {
            builder: tar::Builder::new(Vec::new()),
        }
    }

    /// An entry whose name goes into the archive as it is.
    fn add(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o755);
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.builder.append(&header, content).unwrap();
        self
    }

    fn file(self, name: &str) -> Self {
        self.add(EntryType::Regular, name, "", b"content")
    }

    fn link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, target, b"")
    }

    fn unpack(self) -> (Result<PathBuf, UnpackError>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let tar = directory.path().join("image.tar");
        std::fs::write(&tar, self.builder.into_inner().unwrap()).unwrap();
        let store = directory.path().join("images");
        let outcome = unpacked(&tar, &store).map(|(root, _)| root);
        (outcome, directory)
    }
}

fn refused(tar: Tar) -> &'static str {
    let (outcome, directory) = tar.unpack();
    let left: Vec<_> = std::fs::read_dir(directory.path().join("images"))
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| !name.to_string_lossy().ends_with(".lock"))
        .collect();
    assert!(left.is_empty(), "a part of the image is left: {left:?}");
    let mut outside: Vec<_> = std::fs::read_dir(directory.path())
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    outside.sort();
    assert_eq!(outside, ["image.tar", "images"]);
    match outcome {
        Err(UnpackError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_ordinary_archive_becomes_a_root() {
    let tar = Tar::new()
        .add(EntryType::Directory, "./", "", b"")
        .add(EntryType::Directory, "usr/bin/", "", b"")
        .file("usr/bin/program")
        .link("bin", "usr/bin")
        .link("usr/absolute", "/etc/passwd")
        .add(EntryType::Link, "usr/bin/same", "usr/bin/program", b"")
        .file("without/parents/file")
        .file("usr/bin/program");
    let (outcome, _directory) = tar.unpack();
    let root = outcome.unwrap();
    assert_eq!(
        std::fs::read(root.join("usr/bin/program")).unwrap(),
        b"content"
    );
    assert_eq!(
        std::fs::read(root.join("usr/bin/same")).unwrap(),
        b"content"
    );
    assert_eq!(
        std::fs::read_link(root.join("bin")).unwrap(),
        Path::new("usr/bin")
    );
    assert!(root.join("without/parents/file").is_file());
}

#[test]
fn what_would_land_outside_is_refused() {
    for name in ["../evil", "/etc/evil", "a/../../evil", "..", "a/.."] {
        assert_eq!(
            refused(Tar::new().file(name)),
            "it lies outside the image",
            "{name}"
        );
    }
}

#[test]
fn what_goes_through_a_link_is_refused() {
    for target in ["/", "..", "/etc", "a"] {
        let tar = Tar::new()
            .add(EntryType::Directory, "a/", "", b"")
            .link("link", target)
            .file("link/evil");
        assert_eq!(refused(tar), "it goes through a link", "{target}");
        let tar = Tar::new()
            .add(EntryType::Directory, "a/", "", b"")
            .link("link", target)
            .add(EntryType::Directory, "link/", "", b"");
        assert_eq!(refused(tar), "it goes through a link", "{target}");
    }
}

#[test]
fn a_file_takes_the_place_of_a_link_and_does_not_follow_it() {
    let (outcome, directory) = Tar::new()
        .link("file", "../../../escaped")
        .file("file")
        .unpack();
    let root = outcome.unwrap();
    assert!(root.join("file").symlink_metadata().unwrap().is_file());
    assert!(!directory.path().join("escaped").exists());
}

#[test]
fn hard_links_stay_inside() {
    let outside = Tar::new().add(EntryType::Link, "passwd", "/etc/passwd", b"");
    assert_eq!(refused(outside), "it links to something outside the image");
    let up = Tar::new().add(EntryType::Link, "passwd", "../../etc/passwd", b"");
    assert_eq!(refused(up), "it links to something outside the image");
    let through = Tar::new()
        .link("etc", "/etc")
        .add(EntryType::Link, "passwd", "etc/passwd", b"");
    assert_eq!(refused(through), "it goes through a link");
}

#[test]
fn devices_and_fifos_are_refused_but_for_those_in_dev() {
    for kind in [EntryType::Block, EntryType::Fifo, EntryType::Char] {
        assert_eq!(
            refused(Tar::new().add(kind, "disk", "", b"")),
            "it is a device, a FIFO or something unknown"
        );
    }
    let (outcome, _directory) = Tar::new()
        .add(EntryType::Char, "dev/null", "", b"")
        .unpack();
    assert!(!outcome.unwrap().join("dev/null").exists());
}

#[test]
fn a_truncated_archive_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let tar = directory.path().join("image.tar");
    let mut bytes = Tar::new().file("a").file("b").builder.into_inner().unwrap();
    bytes.truncate(512 + 512 + 512 + 3);
    std::fs::write(&tar, bytes).unwrap();
    let store = directory.path().join("images");
    assert!(unpacked(&tar, &store).is_err());
    let made = std::fs::read_dir(&store).unwrap().flatten();
    assert!(
        made.map(|entry| entry.file_name())
            .all(|name| name.to_string_lossy().ends_with(".lock"))
    );
}
