//! The state directory: made 0700, held by one daemon at a time, and the home of its secrets and of its database.
//!
//! `database` keeps the sessions' records and logs in SQLite; `schema` is its tables, step by step; `rows` is what stands
//! in them; `reading` looks at all of it from beside the daemon.

mod database;
mod reading;
mod rows;
mod schema;

pub use reading::{Served, is_held, made_token, records};

use crate::auth::session_tokens::{SECRET_BYTES, SessionTokens};
use crate::sessions::Ledger;
use database::Database;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, openat};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The file that holds the secret of the session tokens.
const SECRET_FILE: &str = "session-tokens.secret";
/// The file whose lock says that a daemon lives here.
const LOCK_FILE: &str = "daemon.lock";

/// The database of sessions.
const DATABASE_FILE: &str = "sandboxd.db";

/// Why the state directory cannot be used. Each is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another daemon holds it.
    #[error("state directory {0} is in use by another sandboxd")]
    InUse(PathBuf),
    /// It cannot be made, opened or written.
    #[error("state directory {path}: {cause}")]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The database cannot be used.
    #[error("database {path}: {cause}")]
    Database {
        /// Its file.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// A secret file has the wrong size.
    #[error(
        "secret file {0} is damaged: remove it to have a new one made (all session tokens change)"
    )]
    Damaged(PathBuf),
}

/// The state directory, held for as long as this lives.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    dir: OwnedFd,
    /// Holds the lock; closed with the store, also when the process dies.
    _lock: OwnedFd,
    tokens: SessionTokens,
}

impl Store {
    /// Makes the directory if need be, locks it, and reads or makes the secret.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |cause: io::Error| StoreError::Io { path, cause }
        };
        make_private_dir(path).map_err(at(path))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| at(path)(e.into()))?;
        let lock_path = path.join(LOCK_FILE);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = openat(&dir, LOCK_FILE, flags, Mode::from_raw_mode(0o600))
            .map_err(|e| at(&lock_path)(e.into()))?;
        match take(&lock) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(StoreError::InUse(path.to_owned())),
            Err(cause) => return Err(at(&lock_path)(cause.into())),
        }
        let secret = secret_file(&dir, SECRET_FILE, SECRET_BYTES, random)
            .map_err(at(&path.join(SECRET_FILE)))?;
        let secret: [u8; SECRET_BYTES] = secret
            .try_into()
            .map_err(|_| StoreError::Damaged(path.join(SECRET_FILE)))?;
        Ok(Self {
            path: path.to_owned(),
            dir,
            _lock: lock,
            tokens: SessionTokens::new(&secret),
        })
    }

    /// The sessions' records and logs: opens the database, made if need be, and brings it to the newest schema. It is
    /// written to the end when the last one that holds it lets go.
    ///
    /// # Errors
    /// [`StoreError::Database`], also where a newer version has written it.
    pub fn ledger(&self) -> Result<Arc<dyn Ledger>, StoreError> {
        let path = self.path.join(DATABASE_FILE);
        let database = Database::open(&path).map_err(|error| StoreError::Database {
            path,
            cause: error.to_string(),
        })?;
        Ok(Arc::new(database))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes down where this directory's service is asked, for commands beside it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn say_what_is_served(&self, served: &Served) -> Result<(), StoreError> {
        let fresh = format!(".{}.new", reading::SERVED_FILE);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let written = || {
            let file = openat(
                &self.dir,
                &fresh,
                flags | OFlags::NOFOLLOW,
                Mode::from_raw_mode(0o600),
            )?;
            File::from(file).write_all(&served.bytes())?;
            rustix::fs::renameat(&self.dir, &fresh, &self.dir, reading::SERVED_FILE)?;
            Ok(())
        };
        written().map_err(|cause| StoreError::Io {
            path: self.path.join(reading::SERVED_FILE),
            cause,
        })
    }

    /// What derives the sessions' tokens.
    pub fn session_tokens(&self) -> SessionTokens {
        self.tokens.clone()
    }

    /// Reads a secret text kept in a 0600 file of this directory, or makes and keeps it. At most `limit` bytes.
    pub fn secret_text(
        &self,
        name: &str,
        limit: usize,
        make: impl FnOnce() -> String,
    ) -> Result<String, StoreError> {
        let path = self.path.join(name);
        let bytes =
            secret_file(&self.dir, name, limit, || make().into_bytes()).map_err(|cause| {
                StoreError::Io {
                    path: path.clone(),
                    cause,
                }
            })?;
        String::from_utf8(bytes).map_err(|_| StoreError::Damaged(path))
    }
}

/// What the daemon itself keeps in the directory.
const OWN_ENTRIES: &[&str] = &[
    SECRET_FILE,
    LOCK_FILE,
    DATABASE_FILE,
    "sandboxd.db-wal",
    "sandboxd.db-shm",
    "token",
    reading::SERVED_FILE,
    "images",
    "instances",
    "layers",
    "ranges",
    "build-caches",
    "engine-state",
    "adopted",
];

/// The lock, also where a command that looks whether it is held has it for a moment.
fn take(lock: &OwnedFd) -> Result<(), rustix::io::Errno> {
    const TRIES: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(10);
    for _ in 1..TRIES {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive)
}

/// The directory itself is 0700; its parents are made as `mkdir -p` does. One that others use too is left as it is, and
/// refused: taking `/tmp` away from everybody would be a high price for a wrong flag.
fn make_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let mode = rustix::fs::stat(path)?.st_mode & 0o7777;
            if mode & 0o077 != 0 && !holds_only_ours(path)? {
                return Err(io::Error::other(format!(
                    "is open to others (mode {mode:04o}) and holds more than a daemon's state: choose a directory of its \
                     own, or close it (chmod 700)"
                )));
            }
            rustix::fs::chmod(path, Mode::from_raw_mode(0o700)).map_err(io::Error::from)
        }
        other => other,
    }
}

fn holds_only_ours(path: &Path) -> io::Result<bool> {
    for entry in std::fs::read_dir(path)? {
        let name = entry?.file_name();
        if !OWN_ENTRIES.iter().any(|own| name == *own) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn random() -> Vec<u8> {
    let mut bytes = vec![0_u8; SECRET_BYTES];
    getrandom::fill(&mut bytes).expect("the kernel always has random bytes");
    bytes
}

/// Reads `name`, or writes what `make` makes: first under a temporary name, then linked into place, so that no reader
/// ever sees half a secret and two writers agree on one.
fn secret_file(
    dir: &OwnedFd,
    name: &str,
    limit: usize,
    make: impl FnOnce() -> Vec<u8>,
) -> io::Result<Vec<u8>> {
    let read_flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let existing = match openat(dir, name, read_flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => {
            write_once(dir, name, &make())?;
            openat(dir, name, read_flags, Mode::empty())?
        }
        other => other?,
    };
    let stat = rustix::fs::fstat(&existing)?;
    if stat.st_mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "has mode {:04o}; a secret file must be 0600",
            stat.st_mode & 0o7777
        )));
    }
    let mut bytes = Vec::new();
    let longest = u64::try_from(limit).unwrap_or(u64::MAX);
    File::from(existing)
        .take(longest.saturating_add(1))
        .read_to_end(&mut bytes)?;
    if bytes.len() > limit {
        return Err(io::Error::other("is too long for a secret file"));
    }
    Ok(bytes)
}

fn write_once(dir: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = format!(".{name}.{}.tmp", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let _ = rustix::fs::unlinkat(dir, &temporary, AtFlags::empty());
    let file = openat(dir, &temporary, flags, Mode::from_raw_mode(0o600))?;
    let mut file = File::from(file);
    file.write_all(content)?;
    file.sync_all()?;
    let linked = rustix::fs::linkat(dir, &temporary, dir, name, AtFlags::empty());
    rustix::fs::unlinkat(dir, &temporary, AtFlags::empty())?;
    rustix::fs::fsync(dir.as_fd())?;
    match linked {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn the_directory_and_its_secret_are_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/state");
        let store = Store::open(&path).unwrap();
        assert_eq!(mode(store.path()), 0o700);
        assert_eq!(mode(&path.join(SECRET_FILE)), 0o600);
        assert_eq!(
            std::fs::read(path.join(SECRET_FILE)).unwrap().len(),
            SECRET_BYTES
        );
    }

    #[test]
    fn a_directory_that_others_use_is_refused_and_left_as_it_is() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("shared");
        std::fs::create_dir(&path).unwrap();
        let set = |bits| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).unwrap();
        };
        std::fs::write(path.join("somebodys-file"), b"").unwrap();
        set(0o1777);
        let refusal = Store::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("chmod 700"), "{refusal}");
        assert_eq!(mode(&path), 0o1777);
        // Closed by its owner, or with nothing of anybody's in it, it will do.
        set(0o700);
        drop(Store::open(&path).unwrap());
        std::fs::remove_file(path.join("somebodys-file")).unwrap();
        // What backends begin with before the store is opened is nobody else's either.
        std::fs::write(path.join("engine-state"), b"").unwrap();
        for name in ["instances", "adopted", "build-caches"] {
            std::fs::create_dir(path.join(name)).unwrap();
        }
        set(0o755);
        drop(Store::open(&path).unwrap());
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_second_daemon_is_refused_by_name_until_the_first_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let first = Store::open(&path).unwrap();
        let refusal = Store::open(&path).unwrap_err().to_string();
        assert!(refusal.contains("in use") && refusal.contains(path.to_str().unwrap()));
        assert!(!refusal.contains('\n'));
        drop(first);
        Store::open(&path).unwrap();
    }

    #[test]
    fn the_next_daemon_derives_the_same_tokens() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let id = crate::id::SessionId::parse("x").unwrap();
        let nonce = crate::auth::session_tokens::Nonce::from_bytes([3; 16]);
        let first = Store::open(&path)
            .unwrap()
            .session_tokens()
            .derive(&id, &nonce);
        let second = Store::open(&path)
            .unwrap()
            .session_tokens()
            .derive(&id, &nonce);
        assert_eq!(first, second);
    }

    #[test]
    fn an_open_or_damaged_secret_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        drop(Store::open(&path).unwrap());
        let secret = path.join(SECRET_FILE);
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Store::open(&path).unwrap_err().to_string().contains("0600"));
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&secret, b"short").unwrap();
        assert!(matches!(Store::open(&path), Err(StoreError::Damaged(_))));
    }

    #[test]
    fn a_secret_text_is_made_once() {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(&home.path().join("state")).unwrap();
        let first = store
            .secret_text("service-token", 100, || "one".into())
            .unwrap();
        let second = store
            .secret_text("service-token", 100, || "two".into())
            .unwrap();
        assert_eq!((first.as_str(), second.as_str()), ("one", "one"));
        assert_eq!(mode(&store.path().join("service-token")), 0o600);
    }
}
