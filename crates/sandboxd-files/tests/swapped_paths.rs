//! A directory that is exchanged for a link to somewhere else, and back, as fast as the kernel does it, while every operation
//! walks through its name: a hundred thousand times each.
//!
//! The service's own routes are raced in the escape tests, over HTTP and as often as that allows. Here the walk itself is,
//! which the daemon and the guest share, with nothing in between.

use rustix::fs::{CWD, RenameFlags, renameat_with};
use sandboxd_files::{Files, NewFiles, Wanted};
use sandboxd_protocol::message::FileError;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tempfile::TempDir;

/// How often each operation is tried.
const ROUNDS: u32 = 100_000;
/// How often each side is met at least. A write takes many times as long as a refusal, so there are far fewer of them.
const MET_MIN: u32 = 20;
/// How often a whole tree is removed.
const TREES: u32 = 5_000;
/// The longest that one side stands, in turns of a loop.
const MOMENTS: u32 = 4096;
/// What stands in the file that no operation may show.
const SECRET: &[u8] = b"canary";
/// What stands in the file of the same name that every operation may show. Another length, so that a size tells them apart.
const OPEN: &[u8] = b"harmless";

/// A root for files, and beside it a directory that is none of its business.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = TempDir::new().expect("a directory");
        fs::create_dir(dir.path().join("outside")).expect("made");
        fs::write(dir.path().join("outside/f"), SECRET).expect("written");
        fs::create_dir(dir.path().join("work")).expect("made");
        Self { dir }
    }

    fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// Makes a directory `d` with a harmless file, and a link `l` that leads outside.
    fn plant(&self, at: &Path) {
        fs::create_dir_all(at.join("d")).expect("made");
        fs::write(at.join("d/f"), OPEN).expect("written");
        symlink(self.dir.path().join("outside"), at.join("l")).expect("linked");
    }

    fn files(&self) -> Files {
        Files::beneath_path(&self.work(), NewFiles::default()).expect("opened")
    }

    /// Exchanges `d` and `l` below these directories for as long as `race` runs.
    fn while_exchanged<T>(&self, at: &Path, race: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        let (d, l) = (at.join("d"), at.join("l"));
        thread::scope(|scope| {
            scope.spawn(|| {
                for turn in 0_u32.. {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    // Where one is gone for a moment it is made again by the race.
                    let _ = renameat_with(CWD, &d, CWD, &l, RenameFlags::EXCHANGE);
                    // Now at once and now a little later, so that operations of many steps are met between all of them.
                    (0..turn % MOMENTS).for_each(|_| std::hint::spin_loop());
                }
            });
            // Also when the race ends by a failed assertion: the scope waits for the other thread.
            let _end = End(&over);
            race()
        })
    }

    #[track_caller]
    fn assert_outside_is_untouched(&self) {
        let outside = self.dir.path().join("outside");
        let names: Vec<_> = fs::read_dir(&outside)
            .expect("read")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["f"]);
        assert_eq!(fs::read(outside.join("f")).expect("read"), SECRET);
    }
}

/// Ends the exchange.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often an operation met the directory, and how often the link.
#[derive(Debug, Default)]
struct Met {
    directory: u32,
    link: u32,
}

impl Met {
    fn count<T>(&mut self, said: &Result<T, FileError>) {
        match said {
            Ok(_) => self.directory += 1,
            Err(_) => self.link += 1,
        }
    }

    /// Neither side may have been met by chance only, or there was no race.
    #[track_caller]
    fn assert_both(&self, what: &str) {
        assert!(
            self.directory > MET_MIN && self.link > MET_MIN,
            "{what}: {self:?}"
        );
    }
}

/// Races one operation through the name `d`.
fn race(what: &str, mut operation: impl FnMut(&Files) -> Result<(), FileError>) {
    let place = Place::new();
    place.plant(&place.work());
    let files = place.files();
    let met = place.while_exchanged(&place.work(), || {
        let mut met = Met::default();
        for _ in 0..ROUNDS {
            met.count(&operation(&files));
        }
        met
    });
    met.assert_both(what);
    place.assert_outside_is_untouched();
}

/// The twin: by its name the same file is reached through the link, within a few tries.
#[test]
fn by_name_the_race_is_won_at_once() {
    let place = Place::new();
    place.plant(&place.work());
    let work = place.work();
    place.while_exchanged(&work, || {
        let (mut harmless, mut secret) = (0, 0);
        for _ in 0..ROUNDS {
            match fs::read(work.join("d/f")) {
                Ok(content) if content == SECRET => secret += 1,
                Ok(content) if content == OPEN => harmless += 1,
                Ok(_) | Err(_) => {}
            }
            if harmless > 10 && secret > 10 {
                return;
            }
        }
        panic!("never: {harmless} {secret}");
    });
}

#[test]
fn no_read_is_led_outside() {
    race("read", |files| {
        let content = files.read(b"d/f", 100)?.rest()?;
        assert_eq!(content, OPEN);
        Ok(())
    });
}

#[test]
fn no_look_is_led_outside() {
    race("stat", |files| {
        let entry = files.stat(b"d/f")?;
        assert_eq!(entry.size, OPEN.len() as u64);
        Ok(())
    });
}

#[test]
fn no_listing_is_led_outside() {
    race("list", |files| {
        for entry in files.list(b"d", 100)? {
            assert_eq!(entry.size, OPEN.len() as u64);
        }
        Ok(())
    });
}

#[test]
fn no_tree_is_led_outside() {
    race("tree", |files| {
        let wanted = Wanted {
            entries: 100,
            names: 100,
        };
        // As the archive walks: the top, then what it found there.
        let top = files.part(b"", wanted)?;
        for entry in &top.entries {
            assert!(entry.name == b"d" || entry.name == b"l", "{entry:?}");
        }
        for entry in files.part(b"d", wanted)?.entries {
            assert_eq!(entry.size, OPEN.len() as u64);
        }
        Ok(())
    });
}

#[test]
fn no_resolved_path_is_led_outside() {
    race("realpath", |files| {
        assert_eq!(files.real_path(b"d/f")?, b"d/f");
        Ok(())
    });
}

#[test]
fn no_write_is_led_outside() {
    race("write", |files| {
        let mut writing = files.write(b"d/f", 0o666, true, 100)?;
        writing.push(OPEN)?;
        writing.finish()
    });
}

#[test]
fn no_directory_is_made_or_removed_outside() {
    race("mkdir", |files| files.make_dir(b"d/made/below"));
    race("remove", |files| {
        let _ = files.make_dir(b"d/made/below");
        files.remove(b"d/made")?.finish()
    });
}

#[test]
fn no_rename_is_led_outside() {
    let mut there = true;
    race("rename", |files| {
        let (from, to): (&[u8], &[u8]) = if there {
            (b"d/f", b"d/g")
        } else {
            (b"d/g", b"d/f")
        };
        files.rename(from, to)?;
        there = !there;
        Ok(())
    });
}

#[test]
fn no_tree_that_goes_takes_what_is_outside() {
    let place = Place::new();
    let top = place.work().join("t");
    place.plant(&top);
    let files = place.files();
    place.while_exchanged(&top, || {
        let mut gone = 0;
        for _ in 0..TREES {
            // It may say that something was put into it meanwhile; the next round tries again.
            gone += u32::from(
                files
                    .remove(b"t")
                    .and_then(|removal| removal.finish())
                    .is_ok(),
            );
            if !top.exists() {
                place.plant(&top);
            }
        }
        assert!(gone > TREES / 2, "{gone} of {TREES} trees went");
    });
    place.assert_outside_is_untouched();
}
