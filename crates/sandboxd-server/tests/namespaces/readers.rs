//! What our reader of tar files finds is what GNU's and BSD's find, or it refuses the archive.

use crate::registry::store;
use sandboxd_server::runtimes::images::digest::Digest;
use sandboxd_server::runtimes::images::{Cancel, ImageError, Images, Untold, import};
use serde_json::json;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Command;
use tar::{EntryType, Header};

/// The paths that a tar becomes as a layer; nothing where it is refused.
fn ours(tar: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let (images, home) = store();
    let saved = home.path().join("saved");
    std::fs::create_dir_all(&saved).unwrap();
    let config = json!({"rootfs": {"diff_ids": [Digest::of(tar).to_string()]}});
    let manifest = json!([{"Config": "config", "RepoTags": ["a:1"], "Layers": ["layer"]}]);
    std::fs::write(saved.join("manifest.json"), manifest.to_string()).unwrap();
    std::fs::write(saved.join("config"), config.to_string()).unwrap();
    std::fs::write(saved.join("layer"), tar).unwrap();
    match import(&images, &saved, None, &Cancel::default(), &Untold) {
        Ok(imported) => Some(paths_in(&images, &imported[0].id)),
        Err(ImageError::Layer { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

fn paths_in(images: &Images, id: &Digest) -> BTreeSet<Vec<u8>> {
    paths_below(&images.open(id).unwrap().unwrap().layers[0])
}

fn paths_below(top: &Path) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            found.insert(
                path.strip_prefix(top)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            );
            if entry.file_type().unwrap().is_dir() {
                waiting.push(path);
            }
        }
    }
    found
}

/// The paths that another program unpacks a tar to; nothing where it complains. In a list, a name with a line break could
/// not be told from two.
fn theirs(program: &str, tar: &[u8]) -> Option<BTreeSet<Vec<u8>>> {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("archive.tar");
    std::fs::write(&file, tar).unwrap();
    let place = home.path().join("place");
    std::fs::create_dir(&place).unwrap();
    let unpacked = Command::new(program)
        .env("LC_ALL", "C.UTF-8")
        .args(["--no-same-owner", "-C"])
        .arg(&place)
        .arg("-xf")
        .arg(&file)
        .output()
        .unwrap();
    unpacked.status.success().then(|| paths_below(&place))
}

fn readers() -> Vec<&'static str> {
    let there = |program: &&str| Command::new(program).arg("--version").output().is_ok();
    let found: Vec<&str> = ["tar", "bsdtar"].into_iter().filter(there).collect();
    assert!(
        found.len() == 2 || !rustix::process::geteuid().is_root(),
        "bsdtar is missing; cargo xtask test installs it"
    );
    found
}

/// A tree with names that formats say in different ways.
fn tree(at: &Path) {
    let long = "n".repeat(180);
    let deep = vec!["d".repeat(90); 3].join("/");
    std::fs::create_dir_all(at.join(&deep)).unwrap();
    std::fs::create_dir(at.join("empty")).unwrap();
    for name in [
        "plain",
        "a b",
        "größe",
        "line\nbreak",
        "-dash",
        &long,
        &format!("{deep}/{long}"),
    ] {
        std::fs::write(at.join(name), name).unwrap();
    }
    std::os::unix::fs::symlink(format!("{deep}/{long}"), at.join("long-link")).unwrap();
    std::fs::hard_link(at.join("plain"), at.join("same")).unwrap();
    std::fs::hard_link(at.join(format!("{deep}/{long}")), at.join("same-long")).unwrap();
}

#[test]
fn archives_of_every_format_are_read_as_others_read_them() {
    let readers = readers();
    let home = tempfile::tempdir().unwrap();
    let top = home.path().join("tree");
    tree(&top);
    let mut tried = 0;
    for (program, format) in [
        ("tar", "gnu"),
        ("tar", "oldgnu"),
        ("tar", "posix"),
        ("bsdtar", "pax"),
        ("bsdtar", "gnutar"),
    ] {
        if !readers.contains(&program) {
            continue;
        }
        let packed = Command::new(program)
            .env("LC_ALL", "C.UTF-8")
            .arg(format!("--format={format}"))
            .arg("-C")
            .arg(&top)
            .args(["-cf", "-", "."])
            .output()
            .unwrap();
        assert!(packed.status.success(), "{program} {format}");
        let found = ours(&packed.stdout).expect("an honest archive is read");
        assert_eq!(found.len(), 14, "{program} {format}");
        for reader in &readers {
            let theirs = theirs(reader, &packed.stdout);
            assert!(
                theirs.as_ref() == Some(&found),
                "{reader} of {program} {format}"
            );
        }
        tried += 1;
    }
    assert!(tried >= 3);
}

fn header(kind: EntryType, name: &str, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(size.try_into().unwrap());
    header.set_mode(0o755);
    header.set_mtime(0);
    header.set_uid(rustix::process::geteuid().as_raw().into());
    header.set_gid(rustix::process::getegid().as_raw().into());
    header.set_cksum();
    header
}

/// A tar of these entries, each with its content.
fn tar_of(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (kind, name, content) in entries {
        builder
            .append(&header(*kind, name, content.len()), *content)
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn record(key: &str, value: &str) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let length = (rest..)
        .find(|length| rest + length.to_string().len() == *length)
        .unwrap();
    format!("{length} {key}={value}\n").into_bytes()
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of archives")]
fn what_readers_disagree_about_is_refused_and_never_read_in_a_third_way() {
    let readers = readers();
    let inner = tar_of(&[(EntryType::Regular, "smuggled", b"x")]);
    let inner = &inner[..1024];
    let path = |name: &str| record("path", name);
    let size = |bytes: usize| record("size", &bytes.to_string());
    let (x, l, file) = (
        EntryType::XHeader,
        EntryType::GNULongName,
        EntryType::Regular,
    );
    let refused = [
        (
            "a size that hides entries",
            tar_of(&[
                (x, "x", &size(1024)),
                (file, "outer", b""),
                (file, "hidden", b"y"),
            ]),
        ),
        (
            "a size that shows content as entries",
            tar_of(&[(x, "x", &size(0)), (file, "outer", inner)]),
        ),
        (
            "a size for a long name's header",
            tar_of(&[
                (x, "x", &size(0)),
                (l, "l", b"other\0"),
                (file, "outer", inner),
            ]),
        ),
        (
            "a path, then a long name",
            tar_of(&[
                (x, "x", &path("one")),
                (l, "l", b"two\0"),
                (file, "three", b"y"),
            ]),
        ),
        (
            "a long name, then a path",
            tar_of(&[
                (l, "l", b"two\0"),
                (x, "x", &path("one")),
                (file, "three", b"y"),
            ]),
        ),
        (
            "two long names",
            tar_of(&[
                (l, "l", b"one\0"),
                (l, "l", b"two\0"),
                (file, "three", b"y"),
            ]),
        ),
        (
            "two extensions",
            tar_of(&[
                (x, "x", &path("one")),
                (x, "x", &path("two")),
                (file, "three", b"y"),
            ]),
        ),
        (
            "two paths",
            tar_of(&[
                (x, "x", &[path("one"), path("two")].concat()),
                (file, "three", b"y"),
            ]),
        ),
        (
            "a path for all",
            tar_of(&[
                (EntryType::XGlobalHeader, "g", &path("one")),
                (file, "a", b"y"),
                (file, "b", b"z"),
            ]),
        ),
        (
            "a sparse file",
            tar_of(&[(EntryType::GNUSparse, "sparse", b"")]),
        ),
        (
            "a sparse file of the newer kind",
            tar_of(&[
                (x, "x", &record("GNU.sparse.name", "real")),
                (file, "GNUSparseFile.0/real", b"y"),
            ]),
        ),
        (
            "content of a directory",
            tar_of(&[(EntryType::Directory, "d/", inner)]),
        ),
        (
            "content of a link",
            tar_of(&[(EntryType::Link, "h", inner)]),
        ),
        (
            "an unknown kind",
            tar_of(&[(EntryType::new(b'X'), "odd", inner)]),
        ),
    ];
    for (what, tar) in &refused {
        assert_eq!(ours(tar), None, "{what}");
    }
    let agreed = [
        (
            "names twice",
            tar_of(&[
                (file, "f", b"1"),
                (file, "f", b"22"),
                (EntryType::Directory, "d/", b""),
                (EntryType::Directory, "d/", b""),
            ]),
        ),
        (
            "a directory of the oldest kind",
            tar_of(&[(file, "d/", b""), (file, "d/f", b"x")]),
        ),
        (
            "a long path and another entry",
            tar_of(&[
                (x, "x", &path(&"p".repeat(200))),
                (file, "short", b"x"),
                (file, "next", b"y"),
            ]),
        ),
        (
            "a comment for all",
            tar_of(&[
                (EntryType::XGlobalHeader, "g", &record("comment", "words")),
                (file, "a", b"y"),
            ]),
        ),
    ];
    for (what, tar) in &agreed {
        let found = ours(tar);
        assert!(found.is_some(), "{what}");
        for reader in &readers {
            assert_eq!(theirs(reader, tar), found, "{reader}: {what}");
        }
    }
}
