//! Which host ids belong to whom: one range for stored files, one range per running sandbox.
//!
//! Ranges are taken in blocks, and a block belongs to one instance of the daemon at a time: a lock file per block in a
//! directory that all instances on the host share. Within a block the lowest free range is used, so that the same few
//! come back, which spares the kernel making their mappings anew.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Ids in one range.
pub(super) const COUNT: u32 = 65_536;
/// First id of the range that owns stored files on disk, the same for all sessions.
pub(super) const STORAGE_FIRST: u32 = crate::limits::STORAGE_OWNER;
/// First id of the range that all sandboxes share whose image cannot be mapped to a range of their own. No block has it.
pub(super) const SHARED_FIRST: u32 = 0x7fff_0000;
/// First id of the sandboxes' ranges.
const FIRST: u32 = 0x7001_0000;
/// Ranges in one block.
const PER_BLOCK: u32 = 64;
/// Blocks below 2^31: some programs count ids with a sign.
const BLOCKS: u32 = (0x8000_0000 - FIRST) / (COUNT * PER_BLOCK);

const _: () = assert!(first_of(BLOCKS, 0) <= SHARED_FIRST);

/// Why there is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum UsersError {
    /// All are taken.
    #[error("every range of user ids is in use")]
    Exhausted,
    /// The one that a kept layer was written with.
    #[error("the user ids that the kept layer was written with are in use by another instance")]
    Taken,
    /// The host has given the storage range to somebody.
    #[error(
        "the host gives user ids from {STORAGE_FIRST} on to somebody else (see /etc/passwd, /etc/group, /etc/subuid, /etc/subgid)"
    )]
    StorageTaken,
    /// The host has given the shared range to somebody.
    #[error(
        "the host gives user ids from {SHARED_FIRST} on to somebody else (see /etc/passwd, /etc/group, /etc/subuid, /etc/subgid)"
    )]
    SharedTaken,
    /// The lock files.
    #[error("{path}: {cause}")]
    Locks {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: String,
    },
}

/// The ranges of this instance.
#[derive(Debug)]
pub(super) struct Ranges {
    locks: PathBuf,
    preferred: u32,
    taken_by_host: Vec<Range<u32>>,
    blocks: BTreeMap<u32, Block>,
    /// Ranges that were asked for by name while another instance had their block: nobody else's when it is ours.
    claimed: BTreeSet<u32>,
}

#[derive(Debug)]
struct Block {
    _lock: File,
    used: BTreeSet<u32>,
}

impl Ranges {
    /// `locks` is the shared directory of lock files; `preferred` chooses where to begin, so that instances seldom meet;
    /// `accounts` are the texts of the host's account files.
    pub(super) fn new(
        locks: PathBuf,
        preferred: u32,
        accounts: &[(Accounts, String)],
    ) -> Result<Self, UsersError> {
        let taken: Vec<Range<u32>> = accounts
            .iter()
            .flat_map(|(kind, text)| kind.ranges(text))
            .collect();
        if overlaps(&taken, &(STORAGE_FIRST..STORAGE_FIRST + COUNT)) {
            return Err(UsersError::StorageTaken);
        }
        Ok(Self {
            locks,
            preferred: preferred % BLOCKS,
            taken_by_host: taken,
            blocks: BTreeMap::new(),
            claimed: BTreeSet::new(),
        })
    }

    /// A range that nobody has; its first id.
    pub(super) fn take(&mut self) -> Result<u32, UsersError> {
        for (number, block) in &mut self.blocks {
            if let Some(slot) = (0..PER_BLOCK).find(|slot| !block.used.contains(slot)) {
                block.used.insert(slot);
                return Ok(first_of(*number, slot));
            }
        }
        for step in 0..BLOCKS {
            let number = (self.preferred + step) % BLOCKS;
            if !self.blocks.contains_key(&number) && self.acquire(number)? {
                return self.take();
            }
        }
        Err(UsersError::Exhausted)
    }

    /// This very range; for a kept layer.
    pub(super) fn reserve(&mut self, first: u32) -> Result<(), UsersError> {
        if first == SHARED_FIRST {
            return self.shared().map(drop);
        }
        let at = first.checked_sub(FIRST).ok_or(UsersError::Taken)? / COUNT;
        let (number, slot) = (at / PER_BLOCK, at % PER_BLOCK);
        self.claimed.insert(first);
        if !self.blocks.contains_key(&number) && !self.acquire(number)? {
            return Err(UsersError::Taken);
        }
        let block = self.blocks.get_mut(&number).ok_or(UsersError::Taken)?;
        block.used.insert(slot);
        Ok(())
    }

    /// The range that sandboxes share where their image cannot be mapped to one of their own. It is never given back.
    pub(super) fn shared(&self) -> Result<u32, UsersError> {
        match overlaps(&self.taken_by_host, &(SHARED_FIRST..SHARED_FIRST + COUNT)) {
            true => Err(UsersError::SharedTaken),
            false => Ok(SHARED_FIRST),
        }
    }

    /// Gives a range back.
    pub(super) fn give_back(&mut self, first: u32) {
        self.claimed.remove(&first);
        let at = first.saturating_sub(FIRST) / COUNT;
        if let Some(block) = self.blocks.get_mut(&(at / PER_BLOCK)) {
            block.used.remove(&(at % PER_BLOCK));
        }
    }

    /// Lets every block go, at the end of this instance.
    pub(super) fn let_go(&mut self) {
        self.blocks.clear();
    }

    fn acquire(&mut self, number: u32) -> Result<bool, UsersError> {
        let ids = first_of(number, 0)..first_of(number, 0) + COUNT * PER_BLOCK;
        if number >= BLOCKS || overlaps(&self.taken_by_host, &ids) {
            return Ok(false);
        }
        let path = self.locks.join(number.to_string());
        let failed = |cause: std::io::Error| UsersError::Locks {
            path: path.clone(),
            cause: cause.to_string(),
        };
        make_private(&self.locks).map_err(failed)?;
        let lock = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(errno) => return Err(failed(errno.into())),
        }
        let used = (0..PER_BLOCK)
            .filter(|slot| self.claimed.contains(&first_of(number, *slot)))
            .collect();
        self.blocks.insert(number, Block { _lock: lock, used });
        Ok(true)
    }
}

fn make_private(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
}

const fn first_of(block: u32, slot: u32) -> u32 {
    FIRST + (block * PER_BLOCK + slot) * COUNT
}

fn overlaps(taken: &[Range<u32>], wanted: &Range<u32>) -> bool {
    taken
        .iter()
        .any(|taken| taken.start < wanted.end && wanted.start < taken.end)
}

/// The kinds of account file that name ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accounts {
    /// `/etc/passwd`, `/etc/group`: one id in the third field.
    Single,
    /// `/etc/subuid`, `/etc/subgid`: first id and count in the second and third.
    Delegated,
}

impl Accounts {
    fn ranges(self, text: &str) -> Vec<Range<u32>> {
        text.lines()
            .filter_map(|line| {
                let mut fields = line.split(':').skip(1);
                let first = fields.next()?;
                let second = fields.next()?;
                let (start, count): (u32, u32) = match self {
                    Self::Single => (second.parse().ok()?, 1),
                    Self::Delegated => (first.parse().ok()?, second.trim().parse::<u32>().ok()?),
                };
                Some(start..start.saturating_add(count))
            })
            .collect()
    }
}

/// The host's account files.
pub(super) fn host_accounts() -> Vec<(Accounts, String)> {
    [
        (Accounts::Single, "/etc/passwd"),
        (Accounts::Single, "/etc/group"),
        (Accounts::Delegated, "/etc/subuid"),
        (Accounts::Delegated, "/etc/subgid"),
    ]
    .into_iter()
    .filter_map(|(kind, path)| Some((kind, std::fs::read_to_string(path).ok()?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(locks: &Path, accounts: &[(Accounts, String)]) -> Ranges {
        Ranges::new(locks.to_owned(), 0, accounts).expect("the storage range is free")
    }

    #[test]
    fn a_range_is_never_given_twice_and_comes_back() {
        let locks = tempfile::tempdir().unwrap();
        let mut ours = ranges(locks.path(), &[]);
        let taken: BTreeSet<u32> = (0..200).map(|_| ours.take().unwrap()).collect();
        assert_eq!(taken.len(), 200);
        assert!(taken.iter().all(|first| *first >= FIRST));
        let middle = *taken.iter().nth(100).unwrap();
        ours.give_back(middle);
        assert_eq!(ours.take().unwrap(), middle);
    }

    #[test]
    fn instances_share_no_block() {
        let locks = tempfile::tempdir().unwrap();
        let mut one = ranges(locks.path(), &[]);
        let mut other = ranges(locks.path(), &[]);
        let first = one.take().unwrap();
        let second = other.take().unwrap();
        assert_ne!(first, second);
        assert_eq!(other.reserve(first), Err(UsersError::Taken));
        drop(one);
        assert_eq!(other.reserve(first), Ok(()));
    }

    #[test]
    fn a_kept_layers_range_is_nobody_elses_when_its_block_comes_back() {
        let locks = tempfile::tempdir().unwrap();
        let mut one = ranges(locks.path(), &[]);
        let kept = one.take().unwrap();
        let mut other = ranges(locks.path(), &[]);
        assert_eq!(other.reserve(kept), Err(UsersError::Taken));
        drop(one);
        let taken: BTreeSet<u32> = (0..PER_BLOCK).map(|_| other.take().unwrap()).collect();
        assert!(!taken.contains(&kept));
        assert_eq!(other.reserve(kept), Ok(()));
        other.give_back(kept);
        assert_eq!(other.take(), Ok(kept));
    }

    #[test]
    fn the_shared_range_is_had_by_many_and_not_where_the_host_gave_it_away() {
        let locks = tempfile::tempdir().unwrap();
        let mut ours = ranges(locks.path(), &[]);
        assert_eq!(ours.shared(), Ok(SHARED_FIRST));
        assert_eq!(ours.reserve(SHARED_FIRST), Ok(()));
        ours.give_back(SHARED_FIRST);
        assert_eq!(ours.reserve(SHARED_FIRST), Ok(()));
        let subuid = (Accounts::Delegated, format!("x:{}:9\n", SHARED_FIRST + 7));
        let mut ours = ranges(locks.path(), &[subuid]);
        assert_eq!(ours.shared(), Err(UsersError::SharedTaken));
        assert_eq!(ours.reserve(SHARED_FIRST), Err(UsersError::SharedTaken));
    }

    #[test]
    fn what_the_host_gave_away_is_left_alone() {
        let locks = tempfile::tempdir().unwrap();
        let passwd = (
            Accounts::Single,
            format!("x:x:{}:5::/:/bin/sh\n", FIRST + 7),
        );
        let mut ours = ranges(locks.path(), &[passwd]);
        assert_eq!(ours.take().unwrap(), first_of(1, 0));
        let subuid = (
            Accounts::Delegated,
            format!("y:{}:70000\n", STORAGE_FIRST - 10),
        );
        let refused = Ranges::new(locks.path().to_owned(), 0, &[subuid]);
        assert_eq!(refused.err(), Some(UsersError::StorageTaken));
    }
}
