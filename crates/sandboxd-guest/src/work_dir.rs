//! The work directory, where nobody else has made it: an engine starts the guest in an image that need not have one.

use std::ffi::OsStr;
use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

/// Says that a program may have run here already.
const BEGUN: &str = "/.sandboxd-begun";
/// Everybody may look at it, and only root may take it away.
const BEGUN_MODE: u32 = 0o444;
const WORK_DIR_MODE: u32 = 0o755;

/// Makes the work directory, and gives it to the user that runs are of; once in the life of this root. Later the path may
/// lead wherever a run has led it, and nothing that is there is given away.
pub(crate) fn make_once(path: &[u8], owner: (u32, u32)) -> io::Result<()> {
    make_once_by(Path::new(BEGUN), Path::new(OsStr::from_bytes(path)), owner)
}

fn make_once_by(begun: &Path, path: &Path, (uid, gid): (u32, u32)) -> io::Result<()> {
    let marked = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(BEGUN_MODE)
        .open(begun);
    match marked {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err(error),
    }
    std::fs::create_dir_all(path)?;
    chown(path, Some(uid), Some(gid))?;
    std::fs::set_permissions(path, Permissions::from_mode(WORK_DIR_MODE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    #[test]
    fn it_is_made_once_and_nothing_is_given_away_later() {
        let home = std::env::temp_dir().join(format!("sandboxd-work-dir-{}", std::process::id()));
        std::fs::create_dir(&home).unwrap();
        let (begun, work) = (home.join("begun"), home.join("a/b"));
        let own = std::fs::metadata(&home).unwrap();
        let owner = (own.uid(), own.gid());
        make_once_by(&begun, &work, owner).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&work), WORK_DIR_MODE);

        // As a run may leave it for the next start.
        let secret = home.join("secret");
        std::fs::create_dir(&secret).unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o700)).unwrap();
        std::fs::remove_dir(&work).unwrap();
        symlink(&secret, &work).unwrap();
        make_once_by(&begun, &work, owner).unwrap();
        assert_eq!(mode(&secret), 0o700);
        std::fs::remove_dir_all(&home).unwrap();
    }
}
