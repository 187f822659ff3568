//! The zero-setup image: which of the host's own files a sandbox sees.
//!
//! System directories and a short list of `/etc` are shown; everything else of `/etc` is made up. No home directory, no
//! `/root`, no `/var`, no `/opt`, nothing that holds a password, a key or a socket.

use sandboxd_jail::plan::{Entry, View};
use std::path::Path;

/// System directories. Where the host has a link there, so has the sandbox. Of `/nix` only the store: beside it lies the
/// socket of a daemon that builds for everybody, and a read-only mount keeps nobody from connecting to a socket.
const SYSTEM: &[&str] = &[
    "usr",
    "bin",
    "sbin",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "nix/store",
];
/// What of `/etc` is shown as the host has it: nothing that a host keeps from its users.
const SHOWN: &[&str] = &[
    "alternatives",
    "crypto-policies",
    "fonts",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "mime.types",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
];
/// Names in `/etc` that begin so are shown too: settings of Java and Python that their system packages link to.
const SHOWN_PREFIXES: &[&str] = &["java-", "python3"];
/// Links in `/etc` that say something about the system.
const LINKS: &[&str] = &[
    "localtime",
    "os-release",
    "redhat-release",
    "debian_version",
];
/// Longest file of `/etc` that is copied.
const COPIED_BYTES_MAX: u64 = 4096;

/// What the host has of all this; found once, when the backend starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct HostFiles {
    /// Directories that are shown.
    pub(super) views: Vec<View>,
    /// Links and small files that are made.
    pub(super) entries: Vec<Entry>,
    /// The shell of the users inside.
    pub(super) shell: String,
}

impl HostFiles {
    /// Looks at a root directory (the host's is `/`).
    pub(super) fn look(root: &Path) -> Self {
        let mut files = Self {
            shell: "/bin/sh".to_owned(),
            ..Self::default()
        };
        for name in SYSTEM {
            files.add(root, name);
        }
        for name in SHOWN {
            files.add(root, &format!("etc/{name}"));
        }
        for name in prefixed(&root.join("etc")) {
            files.add(root, &format!("etc/{name}"));
        }
        for name in LINKS {
            files.copy(root, &format!("etc/{name}"));
        }
        if root.join("bin/bash").exists() {
            "/bin/bash".clone_into(&mut files.shell);
        }
        files
    }

    fn add(&mut self, root: &Path, path: &str) {
        let full = root.join(path);
        let Ok(metadata) = full.symlink_metadata() else {
            return;
        };
        if metadata.is_symlink() {
            self.link(&full, path);
        } else {
            self.views.push(View {
                from: format!("/{path}"),
                to: path.to_owned(),
                directory: metadata.is_dir(),
            });
        }
    }

    fn copy(&mut self, root: &Path, path: &str) {
        let full = root.join(path);
        let Ok(metadata) = full.symlink_metadata() else {
            return;
        };
        if metadata.is_symlink() {
            self.link(&full, path);
        } else if metadata.is_file()
            && metadata.len() <= COPIED_BYTES_MAX
            && let Ok(content) = std::fs::read(&full)
        {
            self.entries.push(file(path, content));
        }
    }

    fn link(&mut self, full: &Path, path: &str) {
        let target = full.read_link().ok();
        if let Some(target) = target.and_then(|target| target.into_os_string().into_string().ok()) {
            self.entries.push(Entry::Link {
                path: path.to_owned(),
                target,
            });
        }
    }
}

fn prefixed(etc: &Path) -> Vec<String> {
    let names = std::fs::read_dir(etc).into_iter().flatten().flatten();
    let mut names: Vec<String> = names
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| SHOWN_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .collect();
    names.sort();
    names
}

/// A small file of the sandbox's own.
pub(super) fn file(path: &str, content: impl Into<Vec<u8>>) -> Entry {
    Entry::File {
        path: path.to_owned(),
        content: content.into(),
        mode: 0o644,
        replace: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_nix_only_the_store_is_shown() {
        let root = tempfile::tempdir().unwrap();
        for path in ["usr/bin", "nix/store/program", "nix/var/nix/daemon-socket"] {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let files = HostFiles::look(root.path());
        let shown: Vec<&str> = files.views.iter().map(|view| view.to.as_str()).collect();
        assert_eq!(shown, ["usr", "nix/store"]);
    }
}
