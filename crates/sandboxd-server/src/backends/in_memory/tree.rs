//! A tree of files in memory: directories and regular files, no links.

use bytes::Bytes;
use sandboxd_protocol::message::{Entry, FileError, Kind};
use std::collections::BTreeMap;

/// Longest path component, as on a real file system.
const NAME_BYTES_MAX: usize = 255;

#[derive(Debug, Clone)]
enum Node {
    Directory,
    File { content: Bytes, mode: u32 },
}

/// Files by their absolute path, without empty, `.` or `..` components; the root is the empty text.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    nodes: BTreeMap<String, Node>,
    work_dir: String,
    env: BTreeMap<String, String>,
}

impl Tree {
    /// A root with a work directory and the usual places.
    pub(super) fn new(work_dir: &str, env: &BTreeMap<String, String>) -> Self {
        let mut tree = Self {
            nodes: BTreeMap::from([(String::new(), Node::Directory)]),
            work_dir: normal("/", work_dir),
            env: env.clone(),
        };
        for place in ["/tmp", "/etc", work_dir] {
            // An absolute path over nothing but directories: cannot fail.
            let _ = tree.make_dir(&normal("/", place));
        }
        tree
    }

    pub(super) fn work_dir(&self) -> &str {
        &self.work_dir
    }

    pub(super) fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }

    fn node(&self, path: &str) -> Result<&Node, FileError> {
        if let Some(node) = self.nodes.get(path) {
            return Ok(node);
        }
        // Below a file it is another error than below nothing.
        let mut above = path;
        while let Some((parent, _)) = above.rsplit_once('/') {
            match self.nodes.get(parent) {
                Some(Node::File { .. }) => return Err(FileError::NotADirectory),
                Some(Node::Directory) => break,
                None => above = parent,
            }
        }
        Err(FileError::NotFound)
    }

    pub(super) fn read(&self, path: &str) -> Result<Bytes, FileError> {
        match self.node(path)? {
            Node::Directory => Err(FileError::IsADirectory),
            Node::File { content, .. } => Ok(content.clone()),
        }
    }

    pub(super) fn write(
        &mut self,
        path: &str,
        content: Bytes,
        mode: u32,
        parents: bool,
    ) -> Result<(), FileError> {
        let (parent, name) = path.rsplit_once('/').ok_or(FileError::IsADirectory)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(FileError::Os(rustix::io::Errno::NAMETOOLONG.raw_os_error()));
        }
        if parents {
            self.make_dir(parent)?;
        } else if matches!(self.node(parent)?, Node::File { .. }) {
            return Err(FileError::NotADirectory);
        }
        let mode = match self.nodes.get(path) {
            Some(Node::Directory) => return Err(FileError::IsADirectory),
            Some(Node::File { mode, .. }) => *mode,
            None => mode & 0o755,
        };
        self.nodes
            .insert(path.to_owned(), Node::File { content, mode });
        Ok(())
    }

    pub(super) fn make_dir(&mut self, path: &str) -> Result<(), FileError> {
        let mut at = String::new();
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at.push('/');
            at.push_str(part);
            match self.nodes.get(&at) {
                Some(Node::Directory) => {}
                Some(Node::File { .. }) if at == path => return Err(FileError::Exists),
                Some(Node::File { .. }) => return Err(FileError::NotADirectory),
                None => {
                    self.nodes.insert(at.clone(), Node::Directory);
                }
            }
        }
        Ok(())
    }

    pub(super) fn stat(&self, path: &str) -> Result<Entry, FileError> {
        Ok(entry(path, self.node(path)?))
    }

    pub(super) fn list(&self, path: &str, limit: u32) -> Result<Vec<Entry>, FileError> {
        if let Node::File { .. } = self.node(path)? {
            return Err(FileError::NotADirectory);
        }
        let below = format!("{path}/");
        let children: Vec<Entry> = self
            .nodes
            .range(below.clone()..)
            .take_while(|(child, _)| child.starts_with(&below))
            .filter(|(child, _)| !child[below.len()..].contains('/'))
            .map(|(child, node)| entry(child, node))
            .collect();
        if children.len() > usize::try_from(limit).unwrap_or(usize::MAX) {
            return Err(FileError::TooMany(limit));
        }
        Ok(children)
    }

    pub(super) fn remove(&mut self, path: &str) -> Result<(), FileError> {
        self.node(path)?;
        if path.is_empty() || path == self.work_dir {
            return Err(FileError::Invalid("the work directory stays".to_owned()));
        }
        let below = format!("{path}/");
        self.nodes
            .retain(|other, _| other != path && !other.starts_with(&below));
        Ok(())
    }

    pub(super) fn rename(&mut self, path: &str, to: &str) -> Result<(), FileError> {
        self.node(path)?;
        let (parent, _) = to.rsplit_once('/').ok_or(FileError::IsADirectory)?;
        if matches!(self.node(parent)?, Node::File { .. }) {
            return Err(FileError::NotADirectory);
        }
        let below = format!("{path}/");
        if to.starts_with(&below) {
            return Err(FileError::Invalid("into itself".to_owned()));
        }
        let moved: Vec<(String, Node)> = self
            .nodes
            .iter()
            .filter(|(other, _)| *other == path || other.starts_with(&below))
            .map(|(other, node)| (format!("{to}{}", &other[path.len()..]), node.clone()))
            .collect();
        self.nodes
            .retain(|other, _| other != path && !other.starts_with(&below));
        self.nodes.extend(moved);
        Ok(())
    }
}

fn entry(path: &str, node: &Node) -> Entry {
    let name = path.rsplit_once('/').map_or("", |(_, name)| name);
    let (kind, size, mode) = match node {
        Node::Directory => (Kind::Directory, 0, 0o755),
        Node::File { content, mode } => (Kind::File, content.len() as u64, *mode),
    };
    Entry {
        name: name.as_bytes().to_vec(),
        kind,
        size,
        mode,
        modified_nanos: 0,
        target: None,
    }
}

/// An absolute path without empty, `.` and `..` components; a relative one starts at `base`.
pub(super) fn normal(base: &str, path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let start = if path.starts_with('/') { "" } else { base };
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            other => parts.push(other),
        }
    }
    parts.iter().fold(String::new(), |mut path, part| {
        path.push('/');
        path.push_str(part);
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        Tree::new("/workspace", &BTreeMap::new())
    }

    #[test]
    fn files_come_back_and_errors_are_those_of_a_file_system() {
        let mut tree = tree();
        tree.write("/workspace/a/b", Bytes::from_static(b"x"), 0o644, true)
            .unwrap();
        assert_eq!(tree.read("/workspace/a/b").unwrap(), "x");
        assert_eq!(tree.read("/workspace/a"), Err(FileError::IsADirectory));
        assert_eq!(tree.read("/workspace/a/b/c"), Err(FileError::NotADirectory));
        assert_eq!(tree.read("/workspace/n"), Err(FileError::NotFound));
        assert_eq!(tree.make_dir("/workspace/a/b"), Err(FileError::Exists));
        assert_eq!(
            tree.write("/workspace/n/x", Bytes::new(), 0o644, false),
            Err(FileError::NotFound)
        );
        let names: Vec<Vec<u8>> = tree
            .list("/workspace", 10)
            .unwrap()
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        assert_eq!(names, [b"a".to_vec()]);
        tree.rename("/workspace/a", "/workspace/z").unwrap();
        assert_eq!(tree.read("/workspace/z/b").unwrap(), "x");
        tree.remove("/workspace/z").unwrap();
        assert_eq!(tree.stat("/workspace/z/b"), Err(FileError::NotFound));
    }

    #[test]
    fn paths_are_made_plain() {
        assert_eq!(normal("/w", "a/../b//c/."), "/w/b/c");
        assert_eq!(normal("/w", "/../x"), "/x");
        assert_eq!(normal("/w", "."), "/w");
        assert_eq!(normal("/", "/"), "");
    }
}
