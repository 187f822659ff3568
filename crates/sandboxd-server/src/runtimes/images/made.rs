//! Tars that tests make, honest ones and others.

use tar::{EntryType, Header};

/// A tar in the making.
pub(crate) struct Tar {
    builder: tar::Builder<Vec<u8>>,
    owner: Option<(u64, u64)>,
    mode: u32,
}

impl Tar {
    pub(crate) fn new() -> Self {
        Self {
            builder: tar::Builder::new(Vec::new()),
            owner: None,
            mode: 0o755,
        }
    }

    /// The owner of the entries that follow.
    pub(crate) fn owner(mut self, uid: u64, gid: u64) -> Self {
        self.owner = Some((uid, gid));
        self
    }

    /// The permission bits of the entries that follow.
    pub(crate) fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// An entry whose name goes into the archive as it is.
    pub(crate) fn add(mut self, kind: EntryType, name: &str, link: &str, content: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        let ours = || {
            let uid = rustix::process::geteuid().as_raw();
            (uid.into(), rustix::process::getegid().as_raw().into())
        };
        let (uid, gid) = self.owner.unwrap_or_else(ours);
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(self.mode);
        header.set_mtime(1_000_000_000);
        header.set_uid(uid);
        header.set_gid(gid);
        let bytes = header.as_mut_bytes();
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        bytes[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.set_cksum();
        self.builder.append(&header, content).unwrap();
        self
    }

    /// An extension header of what follows.
    pub(crate) fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        self.builder
            .append_pax_extensions(records.iter().copied())
            .unwrap();
        self
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.add(EntryType::Directory, name, "", b"")
    }

    pub(crate) fn file(self, name: &str) -> Self {
        self.add(EntryType::Regular, name, "", b"content")
    }

    pub(crate) fn text(self, name: &str, text: &str) -> Self {
        self.add(EntryType::Regular, name, "", text.as_bytes())
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, name, target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.add(EntryType::Link, name, target, b"")
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.builder.into_inner().unwrap()
    }
}
