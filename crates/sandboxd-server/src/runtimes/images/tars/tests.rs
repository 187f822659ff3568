//! What is unpacked once, and what is left where it cannot be.

use super::super::made::Tar;
use super::*;

fn left(store: &Path) -> Vec<PathBuf> {
    ["tars", "making"]
        .iter()
        .flat_map(|part| locks::entries(&store.join(part)).unwrap())
        .collect()
}

#[test]
fn a_tar_is_unpacked_once_and_forgotten_when_it_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let (tar, store) = (home.path().join("image.tar"), home.path().join("images"));
    fs::write(&tar, Tar::new().file("bin/sh").bytes()).unwrap();
    let first = unpacked(&tar, &store, &Cancel::default()).unwrap();
    assert!(first.0.join("bin/sh").is_file());
    assert_eq!(unpacked(&tar, &store, &Cancel::default()).unwrap(), first);
    assert_eq!(forget_gone(&store).unwrap(), 0);
    // Another content is another image.
    fs::write(&tar, Tar::new().file("bin/sh").file("more").bytes()).unwrap();
    assert_ne!(
        unpacked(&tar, &store, &Cancel::default()).unwrap().1,
        first.1
    );
    fs::remove_file(&tar).unwrap();
    assert_eq!(forget_gone(&store).unwrap(), 2);
    assert!(left(&store).is_empty());
}

#[test]
fn a_tar_that_is_refused_or_cut_short_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (tar, store) = (home.path().join("image.tar"), home.path().join("images"));
    let whole = Tar::new().file("a").file("b").bytes();
    for bytes in [&Tar::new().file("../evil").bytes()[..], &whole[..1539]] {
        fs::write(&tar, bytes).unwrap();
        assert!(unpacked(&tar, &store, &Cancel::default()).is_err());
        assert!(left(&store).is_empty(), "{:?}", left(&store));
    }
    assert!(matches!(
        unpacked(&home.path().join("none"), &store, &Cancel::default()),
        Err(TarError::Open { .. })
    ));
}
