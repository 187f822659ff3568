//! One table for the native rule, as the HTTP contract has it, and the cases that a table cannot say.

use super::*;
use rustix::fs::{FileType, mknodat};
use sandboxd_protocol::message::{Entry, HandBack, Kind};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tempfile::TempDir;

/// A work directory with one of everything, beside a canary that must never be touched.
struct Place {
    dir: TempDir,
}

const LONG: &str = "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn\
nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn";

fn place() -> Place {
    let dir = TempDir::new().expect("directory");
    let work = dir.path().join("work");
    fs::create_dir(&work).expect("made");
    fs::write(dir.path().join("canary"), "canary").expect("written");
    fs::create_dir_all(work.join("d/sub")).expect("made");
    fs::write(work.join("f"), "0123456789").expect("written");
    fs::write(work.join("d/f"), "in d").expect("written");
    symlink("f", work.join("l")).expect("linked");
    symlink("d", work.join("ld")).expect("linked");
    symlink("../canary", work.join("out")).expect("linked");
    symlink("gone", work.join("dangling")).expect("linked");
    fs::create_dir(work.join("withlink")).expect("made");
    symlink("x", work.join("withlink/l")).expect("linked");
    fs::create_dir(work.join("withfifo")).expect("made");
    for fifo in ["p", "withfifo/p"] {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, work.join(fifo), FileType::Fifo, mode, 0).expect("made");
    }
    Place { dir }
}

impl Place {
    fn work(&self) -> std::path::PathBuf {
        self.dir.path().join("work")
    }

    fn files(&self) -> Files {
        Files::beneath_path(&self.work(), NewFiles::default()).expect("opened")
    }

    /// The same operation under [`Rule::Follow`] takes this path.
    fn absolute(&self, path: &str) -> Vec<u8> {
        let path = self.work().join(path);
        path.to_str().expect("text").as_bytes().to_vec()
    }
}

fn everywhere() -> Files {
    Files::everywhere(NewFiles::default()).expect("opened")
}

fn write(files: &Files, path: &[u8], content: &[u8], limit: u64) -> Result<(), FileError> {
    let mut writing = files.write(path, 0o666, true, limit)?;
    writing.push(content)?;
    writing.finish()
}

fn read(files: &Files, path: &[u8], limit: u64) -> Result<Vec<u8>, FileError> {
    files.read(path, limit)?.rest()
}

fn remove(files: &Files, path: &[u8]) -> Result<(), FileError> {
    files.remove(path)?.finish()
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Read,
    Write,
    Stat,
    List,
    Mkdir,
    Remove,
    Realpath,
}

use Op::{List, Mkdir, Read, Realpath, Remove, Stat, Write};

/// What one operation on one path says, on a fresh place.
fn said(op: Op, path: &str) -> Result<(), FileError> {
    let place = place();
    let files = place.files();
    let path = path.as_bytes();
    let said = match op {
        Read => read(&files, path, 10).map(drop),
        Write => write(&files, path, b"new", 10),
        Stat => files.stat(path).map(drop),
        List => files.list(path, 1000).map(drop),
        Mkdir => files.make_dir(path),
        Remove => remove(&files, path),
        Realpath => files.real_path(path).map(drop),
    };
    let canary = fs::read_to_string(place.dir.path().join("canary"));
    assert_eq!(canary.expect("untouched"), "canary");
    let beside = fs::read_dir(place.dir.path()).expect("read").count();
    assert_eq!(beside, 2, "{op:?} made something outside");
    said
}

fn back(why: HandBack) -> Result<(), FileError> {
    Err(FileError::HandBack(why))
}

#[test]
fn the_native_rule_says_what_the_contract_says() {
    let long = LONG.to_owned();
    let longest = "n".repeat(255);
    let over = "n".repeat(256);
    let all = [Read, Write, Stat, List, Mkdir, Remove, Realpath];
    let mut table: Vec<(&[Op], &str, Result<(), FileError>)> = vec![
        // Plain ones.
        (&[Read, Write, Stat, Remove, Realpath], "f", Ok(())),
        (&[Read, Write, Stat, Remove, Realpath], "d/f", Ok(())),
        (&[Read, Stat, Realpath], "d//f/", Ok(())),
        (&[Stat, List, Mkdir, Remove, Realpath], "d", Ok(())),
        (&[Stat, Mkdir, Realpath], "", Ok(())),
        (&[Write, Mkdir, Realpath], "new/deep/x", Ok(())),
        // Outside, dots, links, special files: handed back.
        (&[Read, Stat, Realpath], "l/x", back(HandBack::Link)),
        (&[List], "withlink", back(HandBack::Link)),
        (&[List], "withfifo", back(HandBack::Special)),
        (&[List], "", back(HandBack::Link)),
        (&[Read, Write, Stat], "p", back(HandBack::Special)),
        // Special files where they do no harm.
        (&[Remove, Realpath], "p", Ok(())),
        (&[Remove], "l", Ok(())),
        (&[Remove], "dangling", Ok(())),
        (&[Remove], "withlink", Ok(())),
        (&[Remove], "withfifo", Ok(())),
        // Missing.
        (&[Read, Stat, List, Remove], "no", Err(FileError::NotFound)),
        (
            &[Read, Stat, List, Remove],
            "no/x",
            Err(FileError::NotFound),
        ),
        (&[Realpath], "no/x", Ok(())),
        (&[Realpath], "f/x", Ok(())),
        // Wrong kinds.
        (&[Read, Write], "d", Err(FileError::IsADirectory)),
        (&[Read, Write], "", Err(FileError::IsADirectory)),
        (&[List], "f", Err(FileError::NotADirectory)),
        (&[List], "p", Err(FileError::NotADirectory)),
        (
            &[Read, Write, Stat, List, Mkdir, Remove],
            "f/x",
            Err(FileError::NotADirectory),
        ),
        (&[Mkdir], "f", Err(FileError::Exists)),
        (&[Mkdir], "p", Err(FileError::Exists)),
        // Names too long.
        (&[Write], &long, back(HandBack::NameTooLong)),
        (&[Mkdir], &longest, Ok(())),
        (
            &[Read, Write, Stat, List, Mkdir, Remove],
            &over,
            back(HandBack::NameTooLong),
        ),
    ];
    for path in ["../canary", "d/../f", "d/.", "./f", ".", ".."] {
        table.push((&all, path, back(HandBack::Outside)));
    }
    for path in ["l", "out", "dangling", "ld"] {
        let ops = &[Read, Write, Stat, List, Mkdir, Realpath];
        table.push((ops, path, back(HandBack::Link)));
    }
    table.push((&all, "ld/f", back(HandBack::Link)));
    for (ops, path, expected) in table {
        for op in ops {
            assert_eq!(said(*op, path), expected, "{op:?} {path:?}");
        }
    }
    for op in all {
        assert!(
            matches!(said(op, "a\0b"), Err(FileError::Invalid(_))),
            "{op:?}"
        );
        assert!(
            matches!(said(op, "/f"), Err(FileError::Invalid(_))),
            "{op:?}"
        );
    }
    assert!(matches!(said(Remove, ""), Err(FileError::Invalid(_))));
}

#[test]
fn paths_of_the_contract_are_judged_by_their_words() {
    let judged = |path: &str| path::in_work_dir(b"/workspace", path.as_bytes());
    assert_eq!(judged("/workspace"), Ok(Vec::new()));
    assert_eq!(judged("/workspace/"), Ok(Vec::new()));
    assert_eq!(judged("//workspace//a///b/"), Ok(b"a/b".to_vec()));
    for path in ["", "a", "workspace/a", "/workspace/a\0b"] {
        assert!(
            matches!(judged(path), Err(FileError::Invalid(_))),
            "{path:?}"
        );
    }
    let outside = [
        "/",
        "/etc/passwd",
        "/workspacex/a",
        "/work",
        "/workspace/../etc",
        "/workspace/./a",
        "/workspace/a/.",
        "/workspace/a/..",
    ];
    for path in outside {
        assert_eq!(judged(path), Err(HandBack::Outside.into()), "{path:?}");
    }
    let at_root = path::in_work_dir(b"/", b"/a/b");
    assert_eq!(at_root, Ok(b"a/b".to_vec()));
}

#[test]
fn sizes_are_bounded_while_reading_and_writing() {
    let place = place();
    let files = place.files();
    assert_eq!(read(&files, b"f", 10), Ok(b"0123456789".to_vec()));
    let over = Err(FileError::HandBack(HandBack::TooLarge));
    assert_eq!(read(&files, b"f", 9), over);
    let mut growing = files.read(b"f", 12).expect("opened");
    fs::write(place.work().join("f"), "0123456789abcdef").expect("written");
    assert_eq!(growing.rest(), over);
    let over = Err(FileError::HandBack(HandBack::TooLarge));
    assert_eq!(write(&files, b"f", b"0123", 3), over);
    assert_eq!(read(&files, b"f", 99).map(|bytes| bytes.len()), Ok(16));
    let path = place.absolute("f");
    let size = 16;
    let limit = 4;
    assert_eq!(
        read(&everywhere(), &path, 4),
        Err(FileError::TooLarge { size, limit })
    );
    // A file that says 0 and has more.
    assert!(
        read(&everywhere(), b"/proc/self/status", 1 << 20).is_ok_and(|bytes| !bytes.is_empty())
    );
    let huge = read(&everywhere(), b"/proc/self/status", 10);
    assert!(matches!(huge, Err(FileError::TooLarge { .. })));
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("read");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("read")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn writes_are_all_or_nothing() {
    let place = place();
    let files = place.files();
    let before = names(&place.work());
    let mut writing = files.write(b"f", 0o666, false, 100).expect("begun");
    writing.push(b"half").expect("pushed");
    let temporary: Vec<String> = names(&place.work())
        .into_iter()
        .filter(|name| !before.contains(name))
        .collect();
    let [temporary] = &temporary[..] else {
        panic!("{temporary:?}")
    };
    let hex = temporary
        .strip_prefix(".f.")
        .and_then(|rest| rest.strip_suffix(".tmp"))
        .expect("the agreed name");
    assert!(hex.len() == 12 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!(read(&files, b"f", 10), Ok(b"0123456789".to_vec()));
    drop(writing);
    assert_eq!(names(&place.work()), before);
    assert_eq!(read(&files, b"f", 10), Ok(b"0123456789".to_vec()));
}

#[test]
fn a_write_keeps_mode_and_owner_and_detaches_hard_links() {
    let place = place();
    let files = place.files();
    let path = place.work().join("f");
    fs::set_permissions(&path, PermissionsExt::from_mode(0o4751)).expect("mode");
    fs::hard_link(&path, place.work().join("hard")).expect("linked");
    write(&files, b"f", b"new", 10).expect("written");
    let data = fs::metadata(&path).expect("there");
    assert_eq!(data.mode() & 0o7777, 0o751, "mode kept, without set-uid");
    assert_eq!(read(&files, b"hard", 10), Ok(b"0123456789".to_vec()));
    write(&files, b"fresh/g", b"new", 10).expect("written");
    let data = fs::metadata(place.work().join("fresh/g")).expect("there");
    assert_eq!(data.mode() & 0o7777, 0o644);
    let data = fs::metadata(place.work().join("fresh")).expect("there");
    assert_eq!(data.mode() & 0o7777, 0o755);
    assert_eq!(
        files.write(b"nowhere/g", 0o666, false, 1).err(),
        Some(FileError::NotFound)
    );
}

#[test]
fn new_files_get_the_owner_they_were_promised() {
    let place = place();
    let owner = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let new = NewFiles {
        owner: Some(owner),
        umask: 0o077,
    };
    let files = Files::beneath_path(&place.work(), new).expect("opened");
    write(&files, b"x/y", b"", 0).expect("written");
    for (path, mode) in [("x", 0o700), ("x/y", 0o600)] {
        let data = fs::metadata(place.work().join(path)).expect("there");
        assert_eq!((data.uid(), data.gid()), owner);
        assert_eq!(data.mode() & 0o7777, mode);
    }
}

#[test]
fn listings_are_sorted_bounded_and_can_show_everything() {
    let place = place();
    let files = place.files();
    for name in ["b", "a", ".hidden", "Z", "é"] {
        fs::write(place.work().join("d").join(name), name).expect("written");
    }
    let list = files.list(b"d", 7).expect("listed");
    let names: Vec<&[u8]> = list.iter().map(|entry| &entry.name[..]).collect();
    let expected = [
        &b".hidden"[..],
        b"Z",
        b"a",
        b"b",
        b"f",
        b"sub",
        "é".as_bytes(),
    ];
    assert_eq!(names, expected);
    assert_eq!(files.list(b"d", 6), Err(FileError::TooMany(6)));
    let all = files.entries(b"", 100).expect("listed");
    let kind = |name: &[u8]| {
        let found = all.iter().find(|entry| entry.name == name);
        found.map(|entry| (entry.kind, entry.target.clone()))
    };
    assert_eq!(kind(b"l"), Some((Kind::Link, None)));
    assert_eq!(kind(b"p"), Some((Kind::Special, None)));
    let seen = everywhere().list(&place.absolute(""), 100).expect("listed");
    let link = seen.iter().find(|entry| entry.name == b"out");
    let target = link.and_then(|entry| entry.target.clone());
    assert_eq!(target, Some(b"../canary".to_vec()));
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"\xff");
    fs::write(place.work().join("d").join(odd), "").expect("written");
    assert_eq!(files.list(b"d", 100), Err(HandBack::Os.into()));
}

#[test]
fn a_part_is_read_only_as_far_as_wanted() {
    let place = place();
    let dir = place.work().join("many");
    fs::create_dir(&dir).expect("made");
    for number in 0..2_000 {
        fs::write(dir.join(format!("f{number}")), "").expect("written");
    }
    let part = |path: &[u8], entries, names| {
        let part = place.files().part(path, Wanted { entries, names });
        part.expect("listed")
    };
    let one = part(b"many", 1, 10_000);
    assert_eq!((one.entries.len(), one.more, one.names), (1, true, 2));
    let none = part(b"many", 0, 10_000);
    assert_eq!((none.entries.len(), none.more, none.names), (0, true, 1));
    let exact = part(b"many", 2_000, 2_000);
    assert_eq!((exact.entries.len(), exact.more), (2_000, false));
    assert!(exact.entries.is_sorted_by_key(|entry| &entry.name));
    let few_names = part(b"many", 2_000, 7);
    let counts = (few_names.entries.len(), few_names.more, few_names.names);
    assert_eq!(counts, (7, true, 7));

    // Links and special files are passed over, and cost a name each.
    let mixed = part(b"", 100, 100);
    let names: Vec<&[u8]> = mixed.entries.iter().map(|entry| &entry.name[..]).collect();
    assert_eq!(names, [&b"d"[..], b"f", b"many", b"withfifo", b"withlink"]);
    assert_eq!((mixed.more, mixed.names), (false, 10));

    for (path, error) in [
        (&b"f"[..], FileError::NotADirectory),
        (b"gone", FileError::NotFound),
        (b"ld", HandBack::Link.into()),
    ] {
        let wanted = Wanted {
            entries: 1,
            names: 1,
        };
        assert_eq!(place.files().part(path, wanted), Err(error));
    }
}

#[test]
fn an_entry_says_what_the_file_is() {
    let place = place();
    let Entry {
        name,
        kind,
        size,
        mode,
        modified_nanos,
        target,
    } = place.files().stat(b"d/f").expect("there");
    assert_eq!(
        (&name[..], kind, size, mode, target),
        (&b"f"[..], Kind::File, 4, 0o644, None)
    );
    let data = fs::metadata(place.work().join("d/f")).expect("there");
    assert_eq!(
        modified_nanos,
        data.mtime() * 1_000_000_000 + data.mtime_nsec()
    );
}

#[test]
fn links_resolve_where_the_rule_says_so() {
    let place = place();
    let files = everywhere();
    let at = |path: &str| place.absolute(path);
    assert_eq!(read(&files, &at("l"), 10), Ok(b"0123456789".to_vec()));
    assert_eq!(read(&files, &at("ld/../ld/f"), 10), Ok(b"in d".to_vec()));
    assert_eq!(
        files.stat(&at("ld")).map(|entry| entry.kind),
        Ok(Kind::Directory)
    );
    assert_eq!(files.stat(&at("dangling")), Err(FileError::NotFound));
    // A write goes through the link, and the link stays one.
    assert_eq!(write(&files, &at("l"), b"through", 10), Ok(()));
    assert_eq!(fs::read(place.work().join("f")).expect("read"), b"through");
    assert!(place.work().join("l").is_symlink());
    assert_eq!(write(&files, &at("dangling"), b"made", 10), Ok(()));
    assert_eq!(fs::read(place.work().join("gone")).expect("read"), b"made");
    let target = at("abs-target");
    symlink(
        std::str::from_utf8(&target).expect("text"),
        place.work().join("abs"),
    )
    .expect("linked");
    assert_eq!(write(&files, &at("abs"), b"abs", 10), Ok(()));
    assert_eq!(
        fs::read(place.work().join("abs-target")).expect("read"),
        b"abs"
    );
    // Never a directory away.
    assert_eq!(
        write(&files, &at("ld"), b"x", 10),
        Err(FileError::IsADirectory)
    );
    assert_eq!(
        write(&files, &at("d"), b"x", 10),
        Err(FileError::IsADirectory)
    );
    assert_eq!(
        write(&files, &at("d/.."), b"x", 10),
        Err(FileError::IsADirectory)
    );
    assert_eq!(write(&files, b"/", b"x", 10), Err(FileError::IsADirectory));
    symlink("loop", place.work().join("loop")).expect("linked");
    assert_eq!(write(&files, &at("loop"), b"x", 10), Err(FileError::Os(40)));
    assert_eq!(read(&files, &at("loop"), 10), Err(FileError::Os(40)));
    assert_eq!(files.make_dir(&at("ld/made/deep")), Ok(()));
    assert!(place.work().join("d/made/deep").is_dir());
    assert_eq!(files.make_dir(&at("loop")), Err(FileError::Os(40)));
    // A removal and a rename are of the link itself.
    assert_eq!(remove(&files, &at("l")), Ok(()));
    assert!(place.work().join("f").is_file());
    assert_eq!(files.rename(&at("ld"), &at("moved")), Ok(()));
    assert!(place.work().join("moved").is_symlink());
    assert!(matches!(remove(&files, b"/"), Err(FileError::Invalid(_))));
    assert!(matches!(
        remove(&files, &at("d/..")),
        Err(FileError::Invalid(_))
    ));
    assert!(matches!(read(&files, b"f", 10), Err(FileError::Invalid(_))));
    assert!(matches!(
        read(&files, &at("p"), 10),
        Err(FileError::Invalid(_))
    ));
    assert!(matches!(
        read(&files, b"/dev/null", 10),
        Err(FileError::Invalid(_))
    ));
}

#[test]
fn a_long_name_can_still_be_written_where_nothing_is_handed_back() {
    let place = place();
    let longest = "n".repeat(255);
    let path = place.absolute(&longest);
    assert_eq!(write(&everywhere(), &path, b"x", 1), Ok(()));
    assert_eq!(fs::read(place.work().join(longest)).expect("read"), b"x");
}

#[test]
fn real_paths_are_the_kernels_and_what_is_missing_stays() {
    let place = place();
    let files = everywhere();
    let base = fs::canonicalize(place.work()).expect("there");
    let real = |path: &str| {
        let resolved = files.real_path(&place.absolute(path)).expect("resolved");
        String::from_utf8(resolved).expect("text")
    };
    let expected = |path: &str| base.join(path).to_str().expect("text").to_owned();
    assert_eq!(real("ld/f"), expected("d/f"));
    assert_eq!(real("ld/no/../x"), expected("d/x"));
    assert_eq!(real("l"), expected("f"));
    assert_eq!(files.real_path(b"//"), Ok(b"/".to_vec()));
    assert_eq!(place.files().real_path(b"d//sub/"), Ok(b"d/sub".to_vec()));
}

#[test]
fn renames_stay_below_and_replace_files_only() {
    let place = place();
    let files = place.files();
    assert_eq!(files.rename(b"f", b"d/f"), Ok(()));
    assert_eq!(read(&files, b"d/f", 10), Ok(b"0123456789".to_vec()));
    assert_eq!(files.rename(b"f", b"x"), Err(FileError::NotFound));
    assert_eq!(files.rename(b"d/f", b"d/sub"), Err(FileError::IsADirectory));
    assert!(matches!(
        files.rename(b"d", b"d/sub/x"),
        Err(FileError::Invalid(_))
    ));
    assert_eq!(files.rename(b"l", b"x"), Err(HandBack::Link.into()));
    assert_eq!(files.rename(b"d/f", b"ld/f"), Err(HandBack::Link.into()));
    assert_eq!(files.rename(b"d/f", b"../f"), Err(HandBack::Outside.into()));
    assert!(matches!(
        files.rename(b"d", b""),
        Err(FileError::Invalid(_))
    ));
}

/// Builds a chain of directories without a path that long ever being used.
fn chain(work: &Path, depth: usize) {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = rustix::fs::open(work, flags, Mode::empty()).expect("opened");
    for _ in 0..depth {
        rustix::fs::mkdirat(&at, "deep", Mode::from_raw_mode(0o755)).expect("made");
        let flags = flags | OFlags::NOFOLLOW;
        at = rustix::fs::openat(&at, "deep", flags, Mode::empty()).expect("opened");
        let flags = OFlags::CREATE | OFlags::WRONLY;
        drop(rustix::fs::openat(&at, "file", flags, Mode::from_raw_mode(0o644)).expect("made"));
    }
}

#[test]
fn a_tree_two_thousand_levels_deep_goes() {
    let place = place();
    chain(&place.work(), 2000);
    let files = place.files();
    let open_before = fs::read_dir("/proc/self/fd").expect("read").count();
    let mut removal = files.remove(b"deep").expect("begun");
    let mut steps = 0;
    while !removal.step(64).expect("goes") {
        steps += 1;
        assert!(steps < 10_000, "it goes round in a circle");
        if steps == 10 {
            let open = fs::read_dir("/proc/self/fd").expect("read").count();
            // Other tests run beside this one.
            assert!(open < open_before + 100);
        }
    }
    assert!(steps > 10);
    assert_eq!(files.stat(b"deep"), Err(FileError::NotFound));
}

#[test]
fn the_smallest_steps_get_there_too() {
    let place = place();
    let wide = place.work().join("wide");
    for n in 0..30 {
        fs::create_dir_all(wide.join(format!("{n}/a/b"))).expect("made");
        symlink("/", wide.join(format!("{n}/a/out"))).expect("linked");
        fs::write(wide.join(format!(".removed-{n}")), "in the way").expect("written");
    }
    let mut removal = place.files().remove(b"wide").expect("begun");
    for _ in 0..100_000 {
        if removal.step(1).expect("goes") {
            assert!(!wide.exists());
            return;
        }
    }
    panic!("it goes round in a circle");
}
