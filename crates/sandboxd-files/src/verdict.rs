//! What an error of the kernel's means under each rule.

use crate::Rule;
use rustix::io::Errno;
use sandboxd_protocol::message::{FileError, HandBack};

pub(crate) fn of(rule: Rule, errno: Errno) -> FileError {
    match errno {
        Errno::NOENT => return FileError::NotFound,
        Errno::NOTDIR => return FileError::NotADirectory,
        Errno::ISDIR => return FileError::IsADirectory,
        Errno::EXIST | Errno::NOTEMPTY => return FileError::Exists,
        _ => {}
    }
    match rule {
        Rule::Beneath => FileError::HandBack(match errno {
            Errno::LOOP => HandBack::Link,
            Errno::XDEV => HandBack::Outside,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => HandBack::Denied,
            Errno::NAMETOOLONG => HandBack::NameTooLong,
            Errno::NXIO | Errno::NODEV => HandBack::Special,
            _ => HandBack::Os,
        }),
        Rule::Follow => match errno {
            Errno::ACCESS | Errno::PERM | Errno::ROFS => FileError::Denied,
            Errno::NOSPC | Errno::DQUOT => FileError::NoSpace,
            Errno::NXIO | Errno::NODEV => special(rule),
            other => FileError::Os(other.raw_os_error()),
        },
    }
}

/// A FIFO, socket or device where a file was expected.
pub(crate) fn special(rule: Rule) -> FileError {
    match rule {
        Rule::Beneath => HandBack::Special.into(),
        Rule::Follow => FileError::Invalid("not a regular file".to_owned()),
    }
}

/// A link where none may be.
pub(crate) fn link(rule: Rule) -> FileError {
    of(rule, Errno::LOOP)
}

/// More bytes than allowed.
pub(crate) fn too_large(rule: Rule, size: u64, limit: u64) -> FileError {
    match rule {
        Rule::Beneath => HandBack::TooLarge.into(),
        Rule::Follow => FileError::TooLarge { size, limit },
    }
}
