//! Hostile and ordinary archives.

use super::super::made::Tar;
use super::super::place;
use super::*;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use tar::EntryType;

const SMALL: Bounds = Bounds {
    entries: 100,
    bytes: 1_000_000,
    depth: 20,
};

fn rules() -> Rules {
    Rules {
        owners: rustix::process::geteuid().is_root(),
        whiteouts: true,
        bounds: SMALL,
    }
}

/// The root, what was said of it, and the directory around it.
fn unpacked(bytes: &[u8]) -> (PathBuf, Result<Unpacked, UnpackError>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let outcome = unpack(bytes, &root, &rules());
    let around: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(around.len(), 1, "something lies outside");
    (root, outcome, directory)
}

fn good(tar: Tar) -> (PathBuf, Unpacked, tempfile::TempDir) {
    let (root, outcome, directory) = unpacked(&tar.bytes());
    (root, outcome.unwrap(), directory)
}

fn refused(tar: Tar) -> &'static str {
    match unpacked(&tar.bytes()).1 {
        Err(UnpackError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn an_ordinary_archive_becomes_a_root() {
    let (root, done, _directory) = good(
        Tar::new()
            .directory("./")
            .directory("usr/bin/")
            .file("usr/bin/program")
            .symlink("bin", "usr/bin")
            .symlink("usr/absolute", "/etc/passwd")
            .hard_link("usr/bin/same", "usr/bin/program")
            .file("without/parents/file")
            .file("usr/bin/program"),
    );
    let read = |name: &str| std::fs::read(root.join(name)).unwrap();
    assert_eq!(read("usr/bin/program"), b"content");
    assert_eq!(read("usr/bin/same"), b"content");
    assert_eq!(
        std::fs::read_link(root.join("bin")).unwrap(),
        Path::new("usr/bin")
    );
    assert!(root.join("without/parents/file").is_file());
    let implied = ["usr", "without", "without/parents"].map(PathBuf::from);
    assert_eq!(done.implied, BTreeSet::from(implied));
    assert_eq!((done.entries, done.bytes), (8, 21));
}

#[test]
fn times_and_bits_are_kept_but_for_those_that_lend_rights() {
    let (root, _, _kept) = good(
        Tar::new()
            .mode(0o6755)
            .file("program")
            .mode(0o3775)
            .directory("d")
            .mode(0o000)
            .directory("closed")
            .mode(0o640)
            .file("closed/file")
            .symlink("link", "x"),
    );
    let mode = |name: &str| std::fs::metadata(root.join(name)).unwrap().mode() & 0o7777;
    assert_eq!(
        (mode("program"), mode("d"), mode("closed")),
        (0o755, 0o3775, 0)
    );
    for name in ["program", "d", "closed", "link"] {
        let found = std::fs::symlink_metadata(root.join(name)).unwrap();
        assert_eq!(found.mtime(), 1_000_000_000, "{name}");
    }
    // So that what made it can remove it.
    let open = std::fs::Permissions::from_mode(0o700);
    std::fs::set_permissions(root.join("closed"), open).unwrap();
}

#[test]
fn owners_are_those_of_the_archive_where_that_can_be() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (root, _, _kept) = good(
        Tar::new()
            .owner(3, 4)
            .file("file")
            .directory("d")
            .symlink("link", "x"),
    );
    for name in ["file", "d", "link"] {
        let found = std::fs::symlink_metadata(root.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (3, 4), "{name}");
    }
    let far = Tar::new().owner(70_000, 0).file("file");
    assert_eq!(refused(far), "its owner is no id below 65536");
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
    let long = Tar::new().pax(&[("path", b"../evil")]).file("good");
    assert_eq!(refused(long), "it lies outside the image");
    // No separator here, so a name like any other.
    let (root, _, _kept) = good(Tar::new().file("C:\\windows\\evil"));
    assert!(root.join("C:\\windows\\evil").is_file());
}

#[test]
fn what_goes_through_a_link_is_refused() {
    for target in ["/", "..", "/etc", "a"] {
        let tar = || Tar::new().directory("a/").symlink("link", target);
        for tar in [
            tar().file("link/evil"),
            tar().directory("link/"),
            tar().directory("link/deeper/"),
            tar().symlink("link/evil", "x"),
            tar().hard_link("link/evil", "a"),
            tar().file("a/file").hard_link("link/evil", "a/file"),
            tar().file("link/.wh.evil"),
            tar().file("link/.wh..wh..opq"),
        ] {
            let why = refused(tar);
            assert!(
                ["it goes through a link", "it links to what is no file"].contains(&why),
                "{target}: {why}"
            );
        }
    }
}

#[test]
fn a_file_takes_the_place_of_a_link_and_does_not_follow_it() {
    let (root, _, directory) = good(Tar::new().symlink("file", "../../../escaped").file("file"));
    assert!(root.join("file").symlink_metadata().unwrap().is_file());
    assert!(!directory.path().join("escaped").exists());
    let instead = Tar::new().directory("d").file("d");
    assert_eq!(refused(instead), "it would take the place of a directory");
}

#[test]
fn hard_links_stay_inside_their_layer() {
    let outside = "it links to something outside the image";
    let missing = "it links to what this layer does not have";
    for (target, why) in [
        ("/etc/passwd", outside),
        ("../../etc/passwd", outside),
        ("", outside),
        (".", outside),
        ("etc/passwd", missing),
        ("nothing", missing),
    ] {
        assert_eq!(
            refused(Tar::new().hard_link("passwd", target)),
            why,
            "{target}"
        );
    }
    let through = Tar::new()
        .symlink("etc", "/etc")
        .hard_link("passwd", "etc/passwd");
    assert_eq!(refused(through), "it goes through a link");
    // A link to itself leaves the file.
    let (root, _, _kept) = good(Tar::new().file("file").hard_link("file", "file"));
    assert!(root.join("file").is_file());
}

#[test]
fn devices_and_fifos_are_refused_but_for_those_in_dev() {
    for kind in [EntryType::Block, EntryType::Fifo, EntryType::Char] {
        let device = Tar::new().add(kind, "disk", "", b"");
        assert_eq!(refused(device), "it is a device or a FIFO");
    }
    let (root, _, _kept) = good(Tar::new().add(EntryType::Char, "dev/null", "", b""));
    assert!(!root.join("dev/null").exists());
}

#[test]
fn whiteouts_hide_what_is_below_and_not_what_is_beside_them() {
    let (root, _, _kept) = good(
        Tar::new()
            .file(".wh.gone")
            .file("etc/.wh.passwd")
            // In both orders, what the layer has itself stays.
            .file("etc/.wh.hosts")
            .file("etc/hosts")
            .file("etc/group")
            .file("etc/.wh.group")
            // A directory that was there before is replaced as a whole.
            .file(".wh.new")
            .directory("new/")
            .file("new/file")
            .directory("old/")
            .file("old/.wh..wh..opq")
            .file("old/file")
            .directory("third/")
            .file(".wh.third")
            .file(".wh..wh.plnk"),
    );
    let hidden = |name: &str| {
        let found = root.join(name).symlink_metadata().unwrap();
        found.mode() & 0o170_000 == 0o020_000 && found.rdev() == 0
    };
    assert!(hidden("gone") && hidden("etc/passwd"));
    for name in ["etc/hosts", "etc/group", "new/file", "old/file"] {
        assert!(root.join(name).is_file(), "{name}");
    }
    let opaque = |directory: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(root.join(directory), place::OPAQUE, &mut value[..]) == Ok(1)
    };
    assert!(opaque("new") && opaque("old") && opaque("third") && !opaque("etc"));
    assert!(!root.join(".wh..wh.plnk").exists());
    for name in [".wh.", ".wh..", ".wh..."] {
        assert_eq!(refused(Tar::new().file(name)), "it hides no name", "{name}");
    }
}

#[test]
fn extended_attributes_are_kept_where_they_are_the_files_own() {
    let capability =
        b"\x01\x00\x00\x02\x00\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00";
    let (root, _, _kept) = good(
        Tar::new()
            .pax(&[
                ("SCHILY.xattr.user.note", b"with\na newline"),
                ("SCHILY.xattr.security.capability", capability),
                ("SCHILY.xattr.security.selinux", b"x"),
            ])
            .file("file"),
    );
    let get = |name: &str| {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(root.join("file"), name, &mut value[..]).ok()?;
        Some(value[..length].to_vec())
    };
    assert_eq!(get("user.note").unwrap(), b"with\na newline");
    if rustix::process::geteuid().is_root() {
        assert_eq!(get("security.capability").unwrap(), capability);
    }
    assert_eq!(get("security.selinux"), None);
    for name in [
        "trusted.overlay.redirect",
        "trusted.overlay.metacopy",
        "user.overlay.opaque",
    ] {
        let record = format!("SCHILY.xattr.{name}");
        let tar = Tar::new().pax(&[(&record, b"/")]).file("file");
        assert!(
            refused(tar).contains("belongs to the file system"),
            "{name}"
        );
    }
}

#[test]
fn more_than_the_bounds_allow_is_refused() {
    let mut many = Tar::new();
    for number in 0..=SMALL.entries {
        many = many.file(&format!("file-{number}"));
    }
    assert_eq!(refused(many), "there are too many");
    let large = vec![0; 600_000];
    let much = Tar::new().add(EntryType::Regular, "a", "", &large).add(
        EntryType::Regular,
        "b",
        "",
        &large,
    );
    assert_eq!(refused(much), "there is too much in them");
    let deep = "d/".repeat(21);
    assert_eq!(
        refused(Tar::new().file(&format!("{deep}f"))),
        "it lies too deep"
    );
    let long = vec![b'x'; 4_097];
    let tar = Tar::new().pax(&[("path", &long)]).file("x");
    assert_eq!(refused(tar), "its name is too long");
    // One component that no file system takes is an error of that entry.
    let tar = Tar::new().pax(&[("path", &long[..300])]).file("x");
    assert!(matches!(
        unpacked(&tar.bytes()).1,
        Err(UnpackError::Entry { .. })
    ));
}

#[test]
fn an_archive_that_ends_early_is_an_error() {
    let whole = Tar::new().file("a").file("b").bytes();
    for length in [1, 511, 512 + 3, 1024 + 512 + 3, 1024 + 300] {
        assert!(unpacked(&whole[..length]).1.is_err(), "{length}");
    }
    // Without its last, empty blocks it is whole.
    assert!(unpacked(&whole[..2048]).1.is_ok());
    let mut wrong = whole;
    wrong[0] ^= 1;
    assert!(unpacked(&wrong).1.is_err());
}

#[test]
fn names_may_hold_any_byte() {
    let name = b"a\nb\xff\xfe";
    let (root, _, _kept) = good(Tar::new().pax(&[("path", name)]).file("x"));
    assert!(root.join(OsStr::from_bytes(name)).is_file());
    let nul = Tar::new().pax(&[("path", b"a\0b")]).file("x");
    assert_eq!(refused(nul), "its name has a NUL byte");
}
