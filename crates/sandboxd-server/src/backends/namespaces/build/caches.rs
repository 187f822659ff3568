//! Package caches of builds: in a state directory a directory for each recipe and uid, named by a digest of what names its
//! builds. They hold what a build can fetch again, so they may go whenever no build uses them: a while after the last one,
//! or with the recipe.

use super::super::instance;
use super::super::on_disk::stored_below;
use crate::limits::BUILD_CACHE_KEPT_SECONDS;
use crate::runtimes::Source;
use crate::runtimes::images::digest::Digest;
use crate::runtimes::images::{Images, Lineage};
use rustix::fd::AsFd as _;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where they are, in a state directory.
const CACHES: &str = "build-caches";
/// The file of a cache that says whose it is, written anew with each use.
const USED: &str = "used";

/// All caches of a state directory.
#[derive(Debug, Clone)]
pub(super) struct Caches {
    directory: PathBuf,
    /// Where builds of a recipe say that they are under way.
    images: Images,
}

/// Package caches that were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ForgottenCaches {
    /// How many.
    pub caches: usize,
    /// What they took on the disk, in bytes.
    pub bytes: u64,
}

impl Caches {
    pub(super) fn of(state_dir: &Path) -> Self {
        Self {
            directory: state_dir.join(CACHES),
            images: Images::of(state_dir),
        }
    }

    /// The cache of a lineage, used now.
    pub(super) fn take(&self, lineage: &Lineage) -> io::Result<PathBuf> {
        let home = self.directory.join(lineage.digest().hex());
        let cache = home.join("workspace");
        instance::private(&home)?;
        fs::create_dir_all(&cache)?;
        fs::write(home.join(USED), lineage.text())?;
        Ok(cache)
    }

    /// Removes those of recipes that nobody has built for long.
    pub(super) fn tidy(&self, now: Duration) {
        let long = Duration::from_secs(BUILD_CACHE_KEPT_SECONDS);
        let forgotten = self.forget(|home| now.saturating_sub(used(home)) >= long);
        if let Err(error) = forgotten {
            tracing::warn!(%error, "a package cache could not be removed");
        }
    }

    /// Removes those of which this says so, but for those that a build is using.
    fn forget(&self, is_over: impl Fn(&Path) -> bool) -> io::Result<ForgottenCaches> {
        let mut forgotten = ForgottenCaches::default();
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(forgotten),
            entries => entries?,
        };
        for entry in entries {
            let home = entry?.path();
            let name = home.file_name().and_then(|name| name.to_str());
            let lineage = name.and_then(|hex| Digest::parse(&format!("sha256:{hex}")));
            // What is called otherwise is nobody's cache.
            let Some(lineage) = lineage.filter(|_| is_over(&home)) else {
                continue;
            };
            let Some(_turn) = self.images.not_building(&lineage)? else {
                continue;
            };
            let bytes = size(&home);
            match sandboxd_jail::remains::remove_tree(&home) {
                Ok(()) => {
                    forgotten.caches += 1;
                    forgotten.bytes += bytes;
                }
                Err(Errno::NOENT) => {}
                Err(errno) => {
                    let error = io::Error::from(errno);
                    let text = format!("{}: {error}", home.display());
                    return Err(io::Error::new(error.kind(), text));
                }
            }
        }
        Ok(forgotten)
    }
}

/// Removes the package caches that none of these runtimes' recipes uses, but for those of a build that is under way. Works
/// beside a service.
///
/// # Errors
/// What the file system says.
pub fn forget_caches<'a>(
    state_dir: &Path,
    runtimes: impl IntoIterator<Item = &'a Source>,
) -> io::Result<ForgottenCaches> {
    let needed: BTreeSet<String> = runtimes
        .into_iter()
        .filter_map(|source| match source {
            Source::Recipe(recipe) => Some(Lineage::of(&recipe.name, recipe.user)),
            _ => None,
        })
        .map(|lineage| lineage.digest().hex().to_owned())
        .collect();
    let is_over = |home: &Path| {
        let name = home.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| !needed.contains(name))
    };
    Caches::of(state_dir).forget(is_over)
}

/// When a cache was used last, since the Unix epoch. One that was never used was begun just now, or is half removed.
fn used(home: &Path) -> Duration {
    let seconds = fs::metadata(home.join(USED)).or_else(|_| fs::metadata(home));
    Duration::from_secs(seconds.map_or(0, |found| u64::try_from(found.mtime()).unwrap_or(0)))
}

fn size(home: &Path) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::open(home, flags, Mode::empty());
    opened.map_or(0, |directory| stored_below(directory.as_fd()).bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, SystemClock};
    use crate::runtimes::images::Cancel;
    use crate::runtimes::recipe::Recipe;
    use rustix::fs::{Timespec, Timestamps};

    fn recipe(name: &str, user: Option<u32>) -> Recipe {
        Recipe {
            user,
            ..Recipe::of(name, "base:1")
        }
    }

    fn cache(caches: &Caches, of: &Recipe) -> PathBuf {
        let cache = caches.take(&Lineage::of(&of.name, of.user)).unwrap();
        fs::create_dir_all(cache.join("pip/wheels")).unwrap();
        fs::write(cache.join("pip/wheels/one"), vec![7; 200_000]).unwrap();
        cache
    }

    #[test]
    fn those_that_no_recipe_uses_go_with_what_they_took_and_the_others_stay() {
        let state = tempfile::tempdir().unwrap();
        let none: [&Source; 0] = [];
        assert_eq!(
            forget_caches(state.path(), none).unwrap(),
            ForgottenCaches::default()
        );
        let caches = Caches::of(state.path());
        let kept = [recipe("one", None), recipe("two", Some(1000))];
        let gone = [recipe("one", Some(1000)), recipe("three", None)];
        let [first, second] = kept.each_ref().map(|recipe| cache(&caches, recipe));
        let [third, fourth] = gone.each_ref().map(|recipe| cache(&caches, recipe));
        // A build of the last one is under way, in whatever process.
        let lineage = Lineage::of(&gone[1].name, gone[1].user);
        let images = Images::of(state.path());
        let turn = images.building(&lineage, &Cancel::default()).unwrap();
        let mut sources: Vec<Source> = kept.into_iter().map(Source::Recipe).collect();
        sources.extend([Source::Host, Source::Image("base:1".to_owned())]);
        let forgotten = forget_caches(state.path(), &sources).unwrap();
        assert_eq!(forgotten.caches, 1);
        assert!(
            (200_000..300_000).contains(&forgotten.bytes),
            "{forgotten:?}"
        );
        assert!(first.exists() && second.exists() && fourth.exists() && !third.exists());
        drop(turn);
        assert_eq!(forget_caches(state.path(), &sources).unwrap().caches, 1);
        assert!(first.exists() && second.exists() && !fourth.exists());
    }

    #[test]
    fn what_is_used_again_and_again_is_not_old() {
        let state = tempfile::tempdir().unwrap();
        let caches = Caches::of(state.path());
        let used = cache(&caches, &recipe("used", None));
        let forgotten = cache(&caches, &recipe("forgotten", None));
        let long_ago = Timespec {
            tv_sec: 1_000_000_000,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: long_ago,
            last_modification: long_ago,
        };
        for cache in [&used, &forgotten] {
            let home = cache.parent().unwrap();
            for path in [&home.join(USED), home] {
                rustix::fs::futimens(fs::File::open(path).unwrap(), &times).unwrap();
            }
        }
        // A directory does not change when a file that it has is written anew.
        caches.take(&Lineage::of("used", None)).unwrap();
        caches.tidy(SystemClock.now());
        assert!(used.exists() && !forgotten.exists());
    }
}
