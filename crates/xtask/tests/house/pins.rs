//! Versions below which a library had a hole that matters here.

use crate::source::root;
use cargo_metadata::MetadataCommand;

/// A library that reads hostile archives, and the first version that reads them well enough.
const LEAST: [(&str, (u64, u64, u64)); 1] = [("tar", (0, 4, 46))];

/// Libraries that do the same and are not kept, or read archives in a way of their own.
const NEVER: [&str; 4] = [
    "tokio-tar",
    "async-tar",
    "astral-tokio-tar",
    "krata-tokio-tar",
];

#[test]
fn readers_of_archives_are_new_enough() {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--locked".to_owned()])
        .exec()
        .expect("cargo metadata answers");
    for (name, least) in LEAST {
        let found: Vec<_> = metadata
            .packages
            .iter()
            .filter(|package| package.name == name)
            .collect();
        assert!(
            !found.is_empty(),
            "{name} is not used any more: remove it here"
        );
        for package in found {
            let version = &package.version;
            let is = (version.major, version.minor, version.patch);
            assert!(is >= least, "{name} {version} is older than {least:?}");
        }
    }
    for package in &metadata.packages {
        assert!(
            !NEVER.contains(&package.name.as_str()),
            "{} came in",
            package.name
        );
    }
}
