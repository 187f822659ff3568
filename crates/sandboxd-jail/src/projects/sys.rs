//! The system calls of project quotas, each wrapped once: no safe library offers them by descriptor.
#![expect(
    unsafe_code,
    reason = "raw system calls: quotactl_fd, and the two ioctls that read and write a file's project"
)]

use rustix::fd::{AsFd, AsRawFd as _};
use rustix::io::Errno;
use rustix::ioctl::{Getter, Setter, ioctl, opcode};

/// `struct fsxattr`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Attributes {
    pub(super) flags: u32,
    extent_size: u32,
    extents: u32,
    pub(super) project: u32,
    cow_extent_size: u32,
    padding: [u8; 8],
}

/// `struct if_dqblk`, and `struct if_nextdqblk`, whose last field is the former's padding.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Block {
    /// Most, in KiB.
    pub(super) hard_kib: u64,
    /// The same, for those who may go over it for a while.
    pub(super) soft_kib: u64,
    /// Stored, in bytes.
    pub(super) bytes: u64,
    pub(super) hard_files: u64,
    pub(super) soft_files: u64,
    pub(super) files: u64,
    pub(super) times: [u64; 2],
    /// Which fields are meant.
    pub(super) valid: u32,
    /// Whose, where the next one was asked for.
    pub(super) id: u32,
}

/// `struct fs_quota_statv`, as long as any version of it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct State {
    version: i8,
    padding: u8,
    /// What is switched on.
    pub(super) flags: u16,
    rest: [u32; 63],
}

/// What is asked of a file system.
#[derive(Debug, Clone, Copy)]
#[repr(u32)]
pub(super) enum Ask {
    /// `Q_GETQUOTA`.
    Get = 0x80_0007,
    /// `Q_SETQUOTA`.
    Set = 0x80_0008,
    /// `Q_GETNEXTQUOTA`.
    Next = 0x80_0009,
}

/// `Q_XGETQSTATV`.
const STATE: u32 = ((b'X' as u32) << 8) + 8;
/// `PRJQUOTA`.
const PROJECT: u32 = 2;

fn quotactl(
    place: impl AsFd,
    command: u32,
    id: u32,
    address: *mut libc::c_void,
) -> Result<(), Errno> {
    // SAFETY: the callers pass a live structure that is at least as long as what the kernel reads and writes for the
    // command.
    let result = unsafe {
        libc::syscall(
            libc::SYS_quotactl_fd,
            place.as_fd().as_raw_fd(),
            (command << 8) | PROJECT,
            id,
            address,
        )
    };
    if result == -1 {
        let errno = std::io::Error::last_os_error().raw_os_error();
        return Err(Errno::from_raw_os_error(errno.unwrap_or(libc::EIO)));
    }
    Ok(())
}

/// Asks about one project of the file system of a descriptor, or sets its limits. [`Ask::Set`] reads `block`, the others
/// write it.
pub(super) fn quota(place: impl AsFd, ask: Ask, id: u32, block: &mut Block) -> Result<(), Errno> {
    quotactl(place, ask as u32, id, std::ptr::from_mut(block).cast())
}

/// What is switched on in the file system of a descriptor.
pub(super) fn state(place: impl AsFd) -> Result<State, Errno> {
    let mut state = State {
        // `FS_QSTATV_VERSION1`.
        version: 1,
        padding: 0,
        flags: 0,
        rest: [0; 63],
    };
    quotactl(place, STATE, 0, std::ptr::from_mut(&mut state).cast())?;
    Ok(state)
}

/// The attributes of a file or directory.
pub(super) fn attributes(file: impl AsFd) -> Result<Attributes, Errno> {
    const GET: rustix::ioctl::Opcode = opcode::read::<Attributes>(b'X', 31);
    // SAFETY: FS_IOC_FSGETXATTR writes one `struct fsxattr`, whose layout this is; all bit patterns are values of it.
    let get = unsafe { Getter::<GET, Attributes>::new() };
    // SAFETY: as above; the call touches no other memory.
    unsafe { ioctl(file, get) }
}

/// Sets them.
pub(super) fn set_attributes(file: impl AsFd, attributes: Attributes) -> Result<(), Errno> {
    const SET: rustix::ioctl::Opcode = opcode::write::<Attributes>(b'X', 32);
    // SAFETY: FS_IOC_FSSETXATTR reads one `struct fsxattr`, whose layout this is.
    let set = unsafe { Setter::<SET, Attributes>::new(attributes) };
    // SAFETY: as above; the call touches no other memory.
    unsafe { ioctl(file, set) }
}

// What the kernel copies out and in has these sizes.
const _: () = assert!(size_of::<Attributes>() == 28);
const _: () = assert!(size_of::<Block>() == 72);
const _: () = assert!(size_of::<State>() == 256);
