//! Archives that parsers disagree about.

use super::super::made::Tar;
use super::*;

fn heads(tar: &[u8]) -> Result<Vec<Head>, EntryError> {
    let mut archive = Archive::new(tar);
    let mut entries = Entries::of(&mut archive)?;
    let mut heads = Vec::new();
    while let Some((head, _)) = entries.next()? {
        heads.push(head);
    }
    Ok(heads)
}

fn refusal(tar: Tar) -> &'static str {
    match heads(&tar.bytes()) {
        Err(EntryError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn extensions_change_the_entry_after_them_and_no_other() {
    let long = [b'n'; 300];
    let tar = Tar::new()
        .pax(&[
            ("path", &long),
            ("mtime", b"12.5"),
            ("uid", b"5"),
            ("comment", b"x"),
        ])
        .file("short")
        .file("next");
    let heads = heads(&tar.bytes()).unwrap();
    assert_eq!((heads[0].path.as_slice(), heads[0].uid), (&long[..], 5));
    assert_eq!(heads[0].modified, (12, 500_000_000));
    assert_eq!(heads[1].path, b"next");
    assert_eq!(heads[1].modified, (1_000_000_000, 0));
}

#[test]
fn an_old_archives_directory_is_one() {
    let tar = Tar::new().add(EntryType::Regular, "d/", "", b"");
    assert_eq!(heads(&tar.bytes()).unwrap()[0].kind, Kind::Directory);
    assert_eq!(
        refusal(Tar::new().file("d/")),
        "it is a directory with content"
    );
}

#[test]
fn a_size_that_is_said_twice_hides_nothing() {
    // What one parser takes for the content of a file, another takes for entries.
    let inner = Tar::new().file("hidden").bytes();
    let size = inner.len().to_string();
    let smuggled = Tar::new()
        .pax(&[("size", size.as_bytes())])
        .add(EntryType::Regular, "outer", "", b"")
        .file("hidden");
    assert_eq!(
        refusal(smuggled),
        "its size is one in its header and another in an extension"
    );
    let smuggled = Tar::new()
        .pax(&[("size", b"0")])
        .add(EntryType::Regular, "outer", "", &inner);
    assert_eq!(
        refusal(smuggled),
        "its size is one in its header and another in an extension"
    );
    let honest = Tar::new().pax(&[("size", b"7")]).file("file");
    assert_eq!(heads(&honest.bytes()).unwrap()[0].size, 7);
}

#[test]
fn a_name_that_is_said_twice_is_refused() {
    let twice = "its name is said twice";
    let long = |tar: Tar, kind, name: &[u8]| tar.add(kind, "././@LongLink", "", name);
    let gnu = EntryType::GNULongName;
    assert_eq!(
        refusal(long(Tar::new().pax(&[("path", b"a")]), gnu, b"b\0").file("x")),
        twice
    );
    assert_eq!(
        refusal(
            long(Tar::new(), gnu, b"b\0")
                .pax(&[("path", b"a")])
                .file("x")
        ),
        twice
    );
    let two = long(long(Tar::new(), gnu, b"a\0"), gnu, b"b\0").file("x");
    assert_eq!(refusal(two), twice);
    let two = Tar::new()
        .pax(&[("path", b"a")])
        .pax(&[("path", b"b")])
        .file("x");
    assert_eq!(refusal(two), twice);
    let two = Tar::new().pax(&[("path", b"a"), ("path", b"b")]).file("x");
    assert_eq!(refusal(two), "an extension says the same thing twice");
    // A name and a target are two things.
    let both = long(
        long(Tar::new(), gnu, b"a\0"),
        EntryType::GNULongLink,
        b"b\0",
    );
    let head = &heads(&both.symlink("x", "y").bytes()).unwrap()[0];
    assert_eq!((&*head.path, &*head.link), (&b"a"[..], &b"b"[..]));
}

#[test]
fn sparse_files_and_headers_for_all_are_refused() {
    for (record, value) in [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.realsize", "10995116277760"),
    ] {
        let tar = Tar::new().pax(&[(record, value.as_bytes())]).file("x");
        assert_eq!(refusal(tar), "it is a sparse file", "{record}");
    }
    let old = Tar::new().add(EntryType::GNUSparse, "x", "", b"");
    assert_eq!(refusal(old), "it is a sparse file");
    let global = |record: &[u8]| {
        Tar::new()
            .add(EntryType::XGlobalHeader, "g", "", record)
            .file("x")
    };
    assert_eq!(
        refusal(global(b"15 path=hidden\n")),
        "a header changes all entries after it"
    );
    assert_eq!(heads(&global(b"13 comment=x\n").bytes()).unwrap().len(), 1);
}

#[test]
fn malformed_extensions_are_refused() {
    for record in [
        &b"x"[..],
        b"5 a=b",
        b"99 a=b\n",
        b"2 a\n",
        b"6 a=bc\n",
        b" a=b\n",
        b"-6 a=b\n",
        b"8 uid=x\n",
    ] {
        let tar = Tar::new()
            .add(EntryType::XHeader, "x", "", record)
            .file("y");
        assert!(
            heads(&tar.bytes()).is_err(),
            "{}",
            String::from_utf8_lossy(record)
        );
    }
    let alone = Tar::new().pax(&[("path", b"a")]);
    assert_eq!(
        refusal(alone),
        "an extension at the end belongs to no entry"
    );
    let large = vec![b'a'; 1 << 21];
    let tar = Tar::new()
        .add(EntryType::GNULongName, "x", "", &large)
        .file("y");
    assert_eq!(refusal(tar), "its name or its attributes are too long");
}

#[test]
fn unknown_kinds_and_content_where_none_belongs_are_refused() {
    let unknown = Tar::new().add(EntryType::new(b'V'), "x", "", b"");
    assert_eq!(refusal(unknown), "it is of an unknown kind");
    for kind in [
        EntryType::Directory,
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Fifo,
    ] {
        let tar = Tar::new().add(kind, "x", "y", b"content");
        assert_eq!(refusal(tar), "it has content and is no file");
    }
}
