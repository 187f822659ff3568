//! Project quotas of a file system: a limit of what the files of one project store, kept by the kernel.
//!
//! A *project* is a number that files bear. A directory that hands its number on gives it to everything that is made in it,
//! and nobody outside the host's own user namespace can change either. The kernel counts what the files of a number store,
//! deleted ones that are still open among them, and refuses what goes over the number's limit.
//!
//! Reading and giving numbers needs to own the files; asking for what is stored, and setting limits, needs the host's power,
//! which the daemon has given up: the launcher does that.

mod sys;

use rustix::fd::AsFd;
use rustix::io::Errno;
use std::ops::RangeInclusive;
use sys::{Ask, Block};

/// `FS_XFLAG_PROJINHERIT`.
const HANDS_ON: u32 = 0x200;
/// `FS_QUOTA_PDQ_ENFD`: limits of projects are kept.
const LIMITS_KEPT: u16 = 1 << 5;
/// `FS_QUOTA_PDQ_ACCT`: projects are counted.
const COUNTED: u16 = 1 << 4;
/// `QIF_BLIMITS | QIF_ILIMITS`.
const LIMITS: u32 = 1 | 4;
/// Bytes of the unit in which the kernel takes limits.
const UNIT: u64 = 1024;
/// Largest limit of bytes, in that unit: file systems keep bytes in 63 bits.
const UNITS_MAX: u64 = (1 << 53) - 1;

/// The project of a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Project {
    /// Its number; 0 is nobody's.
    pub id: u32,
    /// Whether what is made in the directory gets it too.
    pub handed_on: bool,
}

/// What the file system says about quotas of projects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// Limits are kept.
    Limits,
    /// It counts, and keeps no limits.
    CountsOnly,
    /// Neither.
    Nothing,
}

/// Most that the files of one project store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Most {
    /// Bytes; without an end where there is none.
    pub bytes: Option<u64>,
    /// Files, directories and everything else with an inode; likewise.
    pub files: Option<u64>,
}

/// The project of a file or directory.
///
/// # Errors
///
/// Where the file system knows none.
pub fn project(file: impl AsFd) -> Result<Project, Errno> {
    let attributes = sys::attributes(file)?;
    Ok(Project {
        id: attributes.project,
        handed_on: attributes.flags & HANDS_ON != 0,
    })
}

/// Gives a file or directory its project.
///
/// # Errors
///
/// `INVAL` outside the host's user namespace; `DQUOT` where what it stores would take that project over its limit; where the
/// file system knows none, or the file is another's.
pub fn set_project(file: impl AsFd, project: Project) -> Result<(), Errno> {
    let mut attributes = sys::attributes(file.as_fd())?;
    attributes.project = project.id;
    attributes.flags &= !HANDS_ON;
    if project.handed_on {
        attributes.flags |= HANDS_ON;
    }
    sys::set_attributes(file, attributes)
}

/// What the file system of a file or directory keeps.
///
/// # Errors
///
/// Where it has no quotas at all (`NOSYS` or `SRCH` from some), or the kernel is older than Linux 5.14.
pub fn kept(place: impl AsFd) -> Result<Kept, Errno> {
    let flags = sys::state(place)?.flags;
    Ok(if flags & LIMITS_KEPT != 0 {
        Kept::Limits
    } else if flags & COUNTED != 0 {
        Kept::CountsOnly
    } else {
        Kept::Nothing
    })
}

/// Sets what the files of a project store at most. Needs the host's power.
///
/// # Errors
///
/// What the kernel says.
pub fn limit(place: impl AsFd, id: u32, most: Most) -> Result<(), Errno> {
    let bytes = most
        .bytes
        .map_or(0, |bytes| bytes.div_ceil(UNIT).clamp(1, UNITS_MAX));
    let files = most.files.map_or(0, |files| files.max(1));
    let mut block = Block {
        hard_kib: bytes,
        hard_files: files,
        valid: LIMITS,
        ..Block::default()
    };
    sys::quota(place, Ask::Set, id, &mut block)
}

/// A number of a range that no file of the file system bears, the lowest; none where all are borne. Needs the host's power.
///
/// Whoever takes it gives it to a file before anybody else asks: callers hold a lock over both.
///
/// # Errors
///
/// What the kernel says.
pub fn free(place: impl AsFd, ids: RangeInclusive<u32>) -> Result<Option<u32>, Errno> {
    let place = place.as_fd();
    first_free(
        ids,
        |from| next(place, from),
        |id| Ok(known(place, id)?.is_some_and(|block| block.files > 0)),
    )
}

/// Takes the limits off every number of a range that no file bears; how many there were. Needs the host's power, and the lock
/// of [`free`].
///
/// # Errors
///
/// What the kernel says.
pub fn tidy(place: impl AsFd, ids: RangeInclusive<u32>) -> Result<usize, Errno> {
    let place = place.as_fd();
    let mut from = *ids.start();
    let mut tidied = 0;
    while let Some(block) = next(place, from)? {
        if !ids.contains(&block.id) {
            break;
        }
        if block.files == 0 && block.bytes == 0 && (block.hard_kib > 0 || block.hard_files > 0) {
            limit(place, block.id, Most::default())?;
            tidied += 1;
        }
        match block.id.checked_add(1) {
            Some(next) => from = next,
            None => break,
        }
    }
    Ok(tidied)
}

/// What is known of a number; nothing where it never had any file.
fn known(place: impl AsFd, id: u32) -> Result<Option<Block>, Errno> {
    let mut block = Block::default();
    match sys::quota(place, Ask::Get, id, &mut block) {
        Ok(()) => Ok(Some(block)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The first number from `from` on of which something is known.
fn next(place: impl AsFd, from: u32) -> Result<Option<Block>, Errno> {
    let mut block = Block::default();
    match sys::quota(place, Ask::Next, from, &mut block) {
        // XFS answers so at its end.
        Ok(()) if block.id < from => Ok(None),
        Ok(()) => Ok(Some(block)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// `next` gives what is known, from a number on; what it does not name is asked for by itself all the same.
fn first_free(
    ids: RangeInclusive<u32>,
    next: impl Fn(u32) -> Result<Option<Block>, Errno>,
    is_borne: impl Fn(u32) -> Result<bool, Errno>,
) -> Result<Option<u32>, Errno> {
    let (mut id, last) = ids.into_inner();
    while id <= last {
        let known = next(id)?;
        let is_named = known.is_some_and(|block| block.id == id && block.files > 0);
        if !is_named && !is_borne(id)? {
            return Ok(Some(id));
        }
        match id.checked_add(1) {
            Some(next) => id = next,
            None => break,
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Numbers that something is known of, and how many files bear each.
    fn found(known: &[(u32, u64)], ids: RangeInclusive<u32>) -> Option<u32> {
        let known: BTreeMap<u32, u64> = known.iter().copied().collect();
        let next = |from: u32| {
            let first = known.range(from..).next();
            Ok(first.map(|(id, files)| Block {
                id: *id,
                files: *files,
                ..Block::default()
            }))
        };
        let is_borne = |id| Ok(known.get(&id).is_some_and(|files| *files > 0));
        first_free(ids, next, is_borne).unwrap()
    }

    #[test]
    fn the_lowest_number_that_no_file_bears_is_free() {
        assert_eq!(found(&[], 10..=12), Some(10));
        assert_eq!(found(&[(3, 7), (10, 1), (11, 2)], 10..=12), Some(12));
        // A limit that nobody is under any more.
        assert_eq!(found(&[(10, 1), (11, 0), (12, 1)], 10..=12), Some(11));
        assert_eq!(found(&[(10, 1), (12, 1), (50, 1)], 10..=12), Some(11));
    }

    #[test]
    fn where_all_are_borne_none_is_free() {
        assert_eq!(found(&[(10, 1), (11, 1), (12, 9)], 10..=12), None);
        assert_eq!(found(&[(u32::MAX, 1)], u32::MAX..=u32::MAX), None);
    }

    #[test]
    fn what_the_list_does_not_name_is_asked_for_by_itself() {
        let next = |_| Ok(None);
        let free = first_free(10..=12, next, |id| Ok(id == 10)).unwrap();
        assert_eq!(free, Some(11));
    }

    #[test]
    fn a_file_system_without_quotas_says_so() {
        // The process file system has none, on any kernel.
        let place = std::fs::File::open("/proc").unwrap();
        assert!(kept(&place).is_err());
        assert!(project(&place).is_err());
    }
}
