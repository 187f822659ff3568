//! Whether the sandbox's file systems have room left.
//!
//! Asked once, when a program has failed. A file system behind a quota of its directory tree answers with the quota's
//! numbers, so the answer holds for every way in which room is limited but the accounted one, which the daemon keeps.

use rustix::fs::{StatVfs, statvfs};

/// Less than this is no room: what a program writes at once hardly fits.
const ROOM_BYTES_LEAST: u64 = 64 * 1024;

/// Whether one of the places that programs write to has no room for bytes or for files.
pub(crate) fn is_used_up(work_dir: &[u8]) -> bool {
    [work_dir, b"/", b"/tmp", b"/dev/shm"]
        .iter()
        .filter_map(|path| statvfs(*path).ok())
        .any(|status| without_room(&status))
}

/// A file system that does not count its files says that it has none.
fn without_room(status: &StatVfs) -> bool {
    let bytes = status.f_bavail.saturating_mul(status.f_frsize);
    let writable = !status
        .f_flag
        .contains(rustix::fs::StatVfsMountFlags::RDONLY);
    let counts_bytes = status.f_blocks > 0;
    let counts_files = status.f_files > 0;
    writable
        && ((counts_bytes && bytes < ROOM_BYTES_LEAST) || (counts_files && status.f_favail == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::StatVfsMountFlags;

    fn status(free_blocks: u64, files: u64, free_files: u64) -> StatVfs {
        StatVfs {
            f_bsize: 4096,
            f_frsize: 4096,
            f_blocks: 1000,
            f_bfree: free_blocks,
            f_bavail: free_blocks,
            f_files: files,
            f_ffree: free_files,
            f_favail: free_files,
            f_fsid: 0,
            f_flag: StatVfsMountFlags::empty(),
            f_namemax: 255,
        }
    }

    #[test]
    fn no_bytes_and_no_files_are_both_no_room() {
        assert!(!without_room(&status(100, 10, 5)));
        assert!(without_room(&status(3, 10, 5)));
        assert!(without_room(&status(100, 10, 0)));
        // Some do not count files at all.
        assert!(!without_room(&status(100, 0, 0)));
    }

    #[test]
    fn what_cannot_be_written_is_not_used_up() {
        let mut image = status(0, 10, 0);
        image.f_flag = StatVfsMountFlags::RDONLY;
        assert!(!without_room(&image));
        let pseudo = StatVfs {
            f_blocks: 0,
            ..status(0, 0, 0)
        };
        assert!(!without_room(&pseudo));
    }
}
