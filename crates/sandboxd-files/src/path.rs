//! Judging paths by their words alone.

use sandboxd_protocol::message::{FileError, HandBack};

/// Where a path of the HTTP contract is, relative to the work directory: what [`crate::Rule::Beneath`] takes.
///
/// Doubled and trailing slashes are dropped. The work directory itself is the empty path.
///
/// # Errors
/// [`FileError::Invalid`] for one that is not absolute or holds a NUL byte; [`HandBack::Outside`] for one that is not
/// below the work directory, or has a `.` or `..` component.
///
/// ```
/// use sandboxd_files::path::in_work_dir;
/// assert_eq!(in_work_dir(b"/workspace", b"/workspace//a/b/"), Ok(b"a/b".to_vec()));
/// assert!(in_work_dir(b"/workspace", b"/workspace/../etc").is_err());
/// ```
pub fn in_work_dir(work_dir: &[u8], path: &[u8]) -> Result<Vec<u8>, FileError> {
    absolute(path)?;
    let mut components = components(path);
    if components.clone().any(|name| matches!(name, b"." | b"..")) {
        return Err(HandBack::Outside.into());
    }
    for expected in self::components(work_dir) {
        if components.next() != Some(expected) {
            return Err(HandBack::Outside.into());
        }
    }
    Ok(join(components))
}

/// A path without doubled and trailing slashes, as [`crate::Rule::Beneath`] walks it.
pub(crate) fn beneath(path: &[u8]) -> Result<Vec<u8>, FileError> {
    no_nul(path)?;
    if path.starts_with(b"/") {
        return Err(FileError::Invalid(
            "the path is absolute, not relative to its root".to_owned(),
        ));
    }
    if components(path).any(|name| matches!(name, b"." | b"..")) {
        return Err(HandBack::Outside.into());
    }
    Ok(join(components(path)))
}

/// An absolute path, as [`crate::Rule::Follow`] walks it from the root: without its slashes in front.
pub(crate) fn follow(path: &[u8]) -> Result<Vec<u8>, FileError> {
    absolute(path)?;
    Ok(join(components(path)))
}

/// The directory part and the last name; `None` for the root itself. The last name is never `.` or `..` for a path that
/// [`beneath`] made.
pub(crate) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    if path.is_empty() {
        return None;
    }
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => Some((&path[..at], &path[at + 1..])),
        None => Some((b"", path)),
    }
}

pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> + Clone {
    path.split(|byte| *byte == b'/')
        .filter(|name| !name.is_empty())
}

pub(crate) fn join<'a>(components: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut joined = Vec::new();
    for name in components {
        if !joined.is_empty() {
            joined.push(b'/');
        }
        joined.extend_from_slice(name);
    }
    joined
}

fn absolute(path: &[u8]) -> Result<(), FileError> {
    no_nul(path)?;
    if path.starts_with(b"/") {
        Ok(())
    } else {
        Err(FileError::Invalid("the path is not absolute".to_owned()))
    }
}

fn no_nul(path: &[u8]) -> Result<(), FileError> {
    if path.contains(&0) {
        Err(FileError::Invalid(
            "the path contains a NUL byte".to_owned(),
        ))
    } else {
        Ok(())
    }
}
