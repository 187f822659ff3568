//! A state directory as it is seen from beside it: who writes into it, and the sessions on record. Reads, and changes
//! nothing, so that it works while a service runs as well as when none does.

use super::{DATABASE_FILE, LOCK_FILE, StoreError, rows, schema};
use crate::limits::SERVICE_TOKEN_BYTES_MAX;
use crate::sessions::Recorded;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The file that says what the service of a directory serves, and where.
pub(super) const SERVED_FILE: &str = "served";
/// Bytes of it.
const SERVED_BYTES_MAX: u64 = 16 * 1024;
/// How long reading waits for the service to be done writing, in milliseconds.
const BUSY_MILLIS: u64 = 5_000;

/// What a service says of itself in its state directory, and leaves there when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// Where it is asked, as a URL.
    pub url: String,
    /// Where sessions' files are stored, if anywhere.
    pub workspace_root: Option<PathBuf>,
}

impl Served {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.url.clone().into_bytes();
        bytes.push(b'\n');
        if let Some(root) = &self.workspace_root {
            bytes.extend_from_slice(root.as_os_str().as_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let at = bytes.iter().position(|byte| *byte == b'\n')?;
        let (url, root) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        Some(Self {
            url: String::from_utf8(url.to_vec()).ok()?,
            workspace_root: (!root.is_empty()).then(|| {
                let root: &std::ffi::OsStr = std::ffi::OsStr::from_bytes(root);
                PathBuf::from(root)
            }),
        })
    }

    /// What the service that uses a state directory, or the last one that did, said; nothing where there was none.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn of(state_dir: &Path) -> Result<Option<Self>, StoreError> {
        let path = state_dir.join(SERVED_FILE);
        let mut bytes = Vec::new();
        let read = match fs::File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Ok(file) => file.take(SERVED_BYTES_MAX).read_to_end(&mut bytes),
            Err(error) => Err(error),
        };
        read.map_err(|cause| StoreError::Io { path, cause })?;
        Ok(Self::parse(&bytes))
    }
}

/// What stands in the file with a token that a service made.
///
/// # Errors
/// [`StoreError::Io`].
pub fn made_token(path: &Path) -> Result<String, StoreError> {
    let most = u64::try_from(SERVICE_TOKEN_BYTES_MAX).unwrap_or(u64::MAX);
    let mut text = String::new();
    let read = fs::File::open(path).and_then(|file| file.take(most).read_to_string(&mut text));
    read.map_err(|cause| StoreError::Io {
        path: path.to_owned(),
        cause,
    })?;
    Ok(text)
}

/// Whether a service holds a state directory now.
///
/// # Errors
/// [`StoreError::Io`]; a directory that no service has ever used is held by none.
pub fn is_held(state_dir: &Path) -> Result<bool, StoreError> {
    let path = state_dir.join(LOCK_FILE);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let look = || match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::NOENT) => Ok(false),
        opened => match rustix::fs::flock(opened?, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => Ok(true),
            looked => looked.map(|()| false),
        },
    };
    look().map_err(|errno| StoreError::Io {
        path: path.clone(),
        cause: errno.into(),
    })
}

/// The sessions on record, in the order in which they were opened; nothing where no service has used the directory yet.
/// What a running service is told meanwhile may be a tenth of a second ahead of it.
///
/// # Errors
/// Where there is no such directory, or its database cannot be read.
pub fn records(state_dir: &Path) -> Result<Vec<Recorded>, StoreError> {
    fs::read_dir(state_dir).map_err(|cause| StoreError::Io {
        path: state_dir.to_owned(),
        cause,
    })?;
    let path = state_dir.join(DATABASE_FILE);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = || {
        let connection = Connection::open_with_flags(&path, flags)?;
        connection.busy_timeout(Duration::from_millis(BUSY_MILLIS))?;
        Ok::<_, schema::SchemaError>(match schema::suits(&connection)? {
            true => rows::all(&connection)?,
            false => Vec::new(),
        })
    };
    read().map_err(|error| StoreError::Database {
        path: path.clone(),
        cause: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::session_tokens::Nonce;
    use crate::id::{SandboxId, SessionId};
    use crate::sessions::{Record, Standing};
    use crate::store::Store;
    use std::collections::BTreeMap;

    fn record(id: &str) -> Record {
        Record {
            id: SessionId::parse(id).unwrap(),
            runtime: "python".to_owned(),
            tenant: None,
            labels: BTreeMap::from([("user".to_owned(), "42".to_owned())]),
            nonce: Nonce::from_bytes([7; 16]),
            created: Duration::from_secs(5),
            expires: None,
            last_used: Duration::from_secs(6),
            files_outside: true,
            standing: Standing::Hibernated {
                layer: Some(SandboxId::generate()),
                since: Duration::from_secs(6),
            },
        }
    }

    #[tokio::test]
    async fn records_are_read_beside_a_service_and_without_one() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        assert!(records(&path).is_err(), "there is no such directory");
        fs::create_dir(&path).unwrap();
        assert!(records(&path).unwrap().is_empty());
        assert!(!is_held(&path).unwrap());
        let store = Store::open(&path).unwrap();
        let ledger = store.ledger().unwrap();
        let written = [record("one"), record("two")];
        for record in &written {
            ledger.put(record.clone()).await.unwrap();
        }
        let read = || -> Vec<Record> {
            let all = records(&path).unwrap();
            all.into_iter().map(|recorded| recorded.record).collect()
        };
        assert!(is_held(&path).unwrap());
        assert_eq!(read(), written);
        drop((ledger, store));
        assert!(!is_held(&path).unwrap());
        assert_eq!(read(), written);
        // Nothing that was done here keeps the next service out, or from writing.
        let ledger = Store::open(&path).unwrap().ledger().unwrap();
        ledger.remove(&written[0].id).await.unwrap();
        assert_eq!(read(), written[1..]);
    }

    #[test]
    fn a_database_of_another_program_or_version_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(DATABASE_FILE);
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch("CREATE TABLE theirs (x)").unwrap();
        let refusal = records(home.path()).unwrap_err().to_string();
        assert!(refusal.contains("not a database of sandboxd"), "{refusal}");
        drop(connection);
        fs::remove_file(&path).unwrap();
        let mut connection = Connection::open(&path).unwrap();
        schema::migrate(&mut connection).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let refusal = records(home.path()).unwrap_err().to_string();
        assert!(refusal.contains("newer sandboxd"), "{refusal}");
    }

    #[test]
    fn what_is_served_is_said_and_left() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state");
        let store = Store::open(&path).unwrap();
        assert_eq!(Served::of(&path).unwrap(), None);
        for root in [None, Some(PathBuf::from("/srv/a b"))] {
            let served = Served {
                url: "http://127.0.0.1:8080".to_owned(),
                workspace_root: root,
            };
            store.say_what_is_served(&served).unwrap();
            assert_eq!(Served::of(&path).unwrap(), Some(served));
        }
        drop(store);
        assert!(Served::of(&path).unwrap().is_some());
    }
}
