//! What a specification says of the inside of a sandbox, checked: the same for every backend that starts programs.

use super::SandboxSpec;

/// What cannot be inside.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum InsideError {
    /// The work directory.
    #[error(
        "the work directory {0:?} has to be an absolute path without . or .., and not / or below /proc, /dev or /sys"
    )]
    WorkDir(String),
    /// An environment variable.
    #[error(
        "the environment variable {0:?} has no name, or a NUL byte or an equals sign where none may be"
    )]
    Variable(String),
}

/// The work directory, relative to the root.
pub(super) fn work_dir(text: &str) -> Result<&str, InsideError> {
    let refuse = || InsideError::WorkDir(text.to_owned());
    let path = text.strip_prefix('/').ok_or_else(refuse)?;
    let path = path.trim_end_matches('/');
    let top = path.split('/').next().unwrap_or_default();
    let bad = |part: &str| part.is_empty() || part == "." || part == "..";
    if path.split('/').any(bad) || ["proc", "dev", "sys"].contains(&top) || path.contains('\0') {
        return Err(refuse());
    }
    Ok(path)
}

/// The specification's variables, and those without which hardly a program works; `home` is that of whoever is not root.
pub(super) fn environment(spec: &SandboxSpec, home: &str) -> Result<Vec<String>, InsideError> {
    let mut env = Vec::with_capacity(spec.env.len() + 2);
    for (name, value) in &spec.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(InsideError::Variable(name.clone()));
        }
        env.push(format!("{name}={value}"));
    }
    if !spec.env.contains_key("PATH") {
        env.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    }
    if !spec.env.contains_key("HOME") {
        env.push(match spec.user {
            None | Some(0) => "HOME=/root".to_owned(),
            Some(_) => format!("HOME={home}"),
        });
    }
    Ok(env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_is_plain_and_none_of_ours() {
        assert_eq!(work_dir("/workspace"), Ok("workspace"));
        assert_eq!(work_dir("/srv/a/"), Ok("srv/a"));
        assert_eq!(work_dir("/process"), Ok("process"));
        for bad in [
            "", "/", "//", "work", "/a//b", "/./a", "/a/..", "/proc", "/dev/shm", "/sys", "/a\0",
        ] {
            assert_eq!(work_dir(bad), Err(InsideError::WorkDir(bad.to_owned())));
        }
    }
}
