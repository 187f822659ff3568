//! A backend on the engine of the tests.

use crate::rented::{House, host, is_root};
use sandboxd_server::backends::docker::Docker;
use sandboxd_server::backends::namespaces::Programs;
use sandboxd_server::backends::{PreparedImage, SandboxSpec};
use sandboxd_server::config::{Flags, Layers};
use sandboxd_server::egress::Egress;
use sandboxd_server::runtimes::build::BuildSettings;
use sandboxd_server::runtimes::images::Settings;
use std::process::Command;

/// An image that the engine of the tests has.
pub(crate) const DEBIAN: &str = "debian-with-git:1";

/// One on the engine that the environment names, with a state directory of its own. Nothing as an ordinary user.
pub(crate) async fn house(registries: Settings) -> Option<(House, tempfile::TempDir)> {
    building(registries, BuildSettings::default()).await
}

/// Which builds as this says.
pub(crate) async fn building(
    registries: Settings,
    builds: BuildSettings,
) -> Option<(House, tempfile::TempDir)> {
    if !is_root() {
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    let layers = Layers {
        flags: Flags {
            state_dir: Some(home.path().to_owned()),
            ..Flags::default()
        },
        env: std::env::vars_os()
            .filter(|(name, _)| name == "DOCKER_HOST")
            .collect(),
        file: None,
        root: true,
    };
    let engine = layers.read().unwrap().0.engine;
    let programs = Programs::embedded().unwrap();
    let backend = Docker::start_with(
        home.path(),
        programs,
        &engine,
        None,
        Egress::default(),
        (registries, builds),
    )
    .await;
    let backend = backend.expect("an engine answers; cargo xtask engine starts one");
    Some((House::of(backend, home.path()), home))
}

/// A sandbox of this image.
pub(crate) fn of(image: PreparedImage) -> SandboxSpec {
    SandboxSpec { image, ..host() }
}

/// Docker's own command, on the same engine.
pub(crate) fn docker(words: &[&str]) -> String {
    let done = Command::new("docker").args(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Images that go with the test.
pub(crate) struct Gone(pub(crate) Vec<String>);

impl Drop for Gone {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("docker")
                .args(["image", "rm", "--force", name])
                .output();
        }
    }
}
