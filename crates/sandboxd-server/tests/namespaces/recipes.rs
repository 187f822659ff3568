//! Recipes built in sandboxes: what comes of their steps, what is built once, and what is left where a build fails.

use crate::registry::Heard;
use crate::rented::{House, as_ordinary_user, host, is_root, small_root};
use sandboxd_server::backends::namespaces::{Namespaces, Programs, Settings};
use sandboxd_server::backends::{KeepLayer, Network, PrepareError, PreparedImage, SandboxSpec};
use sandboxd_server::runtimes::build::BuildSettings;
use sandboxd_server::runtimes::images::reference::Reference;
use sandboxd_server::runtimes::images::{Cancel, Images, Untold, Watcher, import};
use sandboxd_server::runtimes::recipe::{PackageManager, Recipe};
use sandboxd_server::runtimes::{Runtime, Source};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A backend whose builds reach nothing, with a small root as `base:1`.
pub(crate) async fn house(state: &Path, builds: BuildSettings) -> House {
    let images = Images::of(state);
    let name = Reference::parse("base:1").unwrap();
    if images.find(&name).unwrap().is_none() {
        let root = tempfile::tempdir().unwrap();
        small_root(root.path());
        std::fs::write(root.path().join("etc/gone"), "x").unwrap();
        std::fs::create_dir_all(root.path().join("srv/dir")).unwrap();
        std::fs::write(root.path().join("srv/dir/old"), "old").unwrap();
        std::fs::write(
            root.path().join("etc/passwd"),
            "root:x:0:0::/root:/bin/sh\n",
        )
        .unwrap();
        std::fs::write(root.path().join("etc/group"), "root:x:0:\n").unwrap();
        import(
            &images,
            root.path(),
            Some(&name),
            &Cancel::default(),
            &Untold,
        )
        .unwrap();
    }
    let settings = Settings {
        builds,
        ..Settings::default()
    };
    let programs = Programs::embedded().unwrap();
    let backend = Namespaces::start_with(state, programs, settings).await;
    House::of(backend.unwrap(), state)
}

pub(crate) fn alone() -> BuildSettings {
    BuildSettings {
        network: Network::None,
        ..BuildSettings::default()
    }
}

pub(crate) fn recipe(commands: &[&str]) -> Recipe {
    Recipe {
        setup_commands: commands.iter().map(|&command| command.to_owned()).collect(),
        ..Recipe::of("small", "base:1")
    }
}

fn runtime(recipe: &Recipe) -> Runtime {
    let source = Source::Recipe(recipe.clone());
    Runtime::plain("small", &recipe.label(), source)
}

/// The image, and what was told while it was made ready.
pub(crate) async fn built(
    house: &House,
    recipe: &Recipe,
) -> (Result<PreparedImage, PrepareError>, Vec<String>) {
    let heard = Arc::new(Heard::default());
    let watcher: Watcher = Arc::clone(&heard) as Watcher;
    let image = house.backend.prepare(&runtime(recipe), &watcher).await;
    (image, heard.all())
}

pub(crate) fn spec(image: PreparedImage) -> SandboxSpec {
    let defaults = image.defaults().unwrap();
    SandboxSpec {
        env: defaults.env.clone(),
        image,
        ..host()
    }
}

pub(crate) fn names(house: &House) -> Vec<String> {
    let all = Images::of(&house.state).list().unwrap();
    let names = all.into_iter().flat_map(|image| image.names);
    names.filter(|name| name != "base:1").collect()
}

const CHANGES: &[&str] = &[
    "echo one >/etc/one; chown 7:9 /etc/one; rm /etc/gone; mkfifo /etc/fifo; echo kept >/var/cache/sandboxd/kept",
    "cat /etc/one /var/cache/sandboxd/kept && rm -r /srv/dir && mkdir /srv/dir && echo new >/srv/dir/new && \
     test ! -e /etc/gone && touch /tmp/left && echo mine >/etc/hosts",
];
const LOOK: &str = "cat /etc/one /srv/dir/*; ls -A /srv/dir; stat -c %u:%g /etc/one; \
                    ls /etc/gone /etc/fifo /srv/dir/old /var/cache/sandboxd 2>/dev/null; cat /etc/hosts | grep mine; test -e /tmp";

#[tokio::test]
async fn each_step_is_a_layer_over_those_before() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let (image, told) = built(&house, &recipe(CHANGES)).await;
    let image = image.unwrap();
    assert_eq!(
        told,
        [
            "1: set-up command 1 of 2",
            "2: set-up command 2 of 2",
            "| one",
            "| kept"
        ]
    );
    let PreparedImage::Layers { layers, .. } = &image else {
        panic!("{image:?}")
    };
    assert_eq!(layers.len(), 3);
    let sandbox = house.rent(&spec(image.clone())).await;
    let seen = sandbox.says(LOOK).await;
    assert_eq!(seen, "one\nnew\nnew\n7:9");
    // Here, it is not built again.
    let (again, told) = built(&house, &recipe(CHANGES)).await;
    assert_eq!((again.unwrap(), told.len()), (image, 0));
    // What changes only at its end begins there.
    let longer = recipe(&[CHANGES[0], CHANGES[1], "echo three >/etc/three"]);
    let (longer, told) = built(&house, &longer).await;
    assert!(longer.is_ok());
    assert_eq!(
        told.iter()
            .filter(|line| line.ends_with("done before"))
            .count(),
        1,
        "{told:?}"
    );
    sandbox.end().await;
    house.close().await;
}

/// What one build leaves in its caches, another one mounts: a link in the place of a cache leads inside, and never out.
#[tokio::test]
async fn a_cache_that_a_step_swaps_for_a_link_leads_nowhere_outside() {
    if !is_root() {
        return;
    }
    let (state, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let house = house(state.path(), alone()).await;
    let swap = format!(
        "mkdir -p /srv/out && cd /var/cache/sandboxd && rm -rf pip npm ca.pem && ln -s {} pip && ln -s /srv/out npm && ln -s \
         /srv/out/ca ca.pem",
        outside.path().display()
    );
    let write = "cd /var/cache/sandboxd && echo twin >npm/canary; echo won >pip/canary; cat /srv/out/canary";
    let (image, told) = built(&house, &recipe(&[&swap, write])).await;
    assert!(told.contains(&"| twin".to_owned()), "{told:?}");
    // The next build of the recipe mounts what this one left.
    let next = "ls /var/cache/sandboxd/pip/canary 2>/dev/null || echo nothing";
    let (again, told) = built(&house, &recipe(&[&swap, write, next])).await;
    assert!(told.contains(&"| nothing".to_owned()), "{told:?}");
    assert!(again.is_ok() && std::fs::read_dir(outside.path()).unwrap().next().is_none());
    let sandbox = house.rent(&spec(image.unwrap())).await;
    assert_eq!(sandbox.says("cat /srv/out/canary").await, "twin");
    sandbox.end().await;
    house.close().await;
}

#[tokio::test]
async fn a_step_that_fails_says_how_it_ended_and_keeps_what_was_done() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let bad = recipe(&[
        "echo one >/etc/one",
        "echo '\x1b[2Jno such thing' >&2; exit 3",
    ]);
    let (failed, _) = built(&house, &bad).await;
    let failed = failed.unwrap_err().to_string();
    assert!(
        failed.contains("step 2 of 2, set-up command 2 of 2: exit code 3: \\u{1b}[2Jno such thing"),
        "{failed}"
    );
    let good = recipe(&["echo one >/etc/one", "cat /etc/one"]);
    let (image, told) = built(&house, &good).await;
    assert!(image.is_ok());
    assert_eq!(
        told,
        [
            "1: set-up command 1 of 2, done before",
            "2: set-up command 2 of 2",
            "| one"
        ]
    );
    // One build for all who wait, and nothing but this one's states is left of them.
    assert_eq!(names(&house).len(), 2, "{:?}", names(&house));
    house.close().await;
}

#[tokio::test]
async fn a_former_build_goes_when_nobody_uses_it_and_many_wait_for_one() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let (first, _) = built(&house, &recipe(&["echo 1 >/etc/version"])).await;
    let sandbox = house.rent(&spec(first.unwrap())).await;
    let second = recipe(&["echo 2 >/etc/version"]);
    let runtime = runtime(&second);
    let watcher = Untold::watcher();
    let (one, two) = tokio::join!(
        house.backend.prepare(&runtime, &watcher),
        house.backend.prepare(&runtime, &watcher)
    );
    assert_eq!(one.unwrap(), two.unwrap());
    // A sandbox runs from the first.
    assert_eq!(names(&house).len(), 2);
    assert_eq!(sandbox.says("cat /etc/version").await, "1");
    sandbox.end().await;
    let (third, _) = built(&house, &recipe(&["echo 3 >/etc/version"])).await;
    assert!(third.is_ok());
    assert_eq!(names(&house).len(), 1);
    // Without the cache each start builds anew, and only once.
    let anew = Recipe {
        cache_image: false,
        ..recipe(&["echo 3 >/etc/version"])
    };
    assert_eq!(built(&house, &anew).await.1.len(), 0);
    house.close().await;
    let house = self::house(state.path(), alone()).await;
    assert_eq!(built(&house, &anew).await.1.len(), 1);
    assert_eq!(built(&house, &anew).await.1.len(), 0);
    house.close().await;
}

#[tokio::test]
async fn a_build_that_is_cut_off_leaves_nothing_but_the_steps_that_were_done() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let slow = recipe(&["echo one >/etc/one", "echo begun; sleep 600"]);
    let heard = Arc::new(Heard::default());
    let watcher: Watcher = Arc::clone(&heard) as Watcher;
    let waiting = {
        let (backend, runtime) = (Arc::clone(&house.backend), runtime(&slow));
        tokio::spawn(async move { backend.prepare(&runtime, &watcher).await })
    };
    while !heard.all().iter().any(|line| line == "| begun") {
        assert!(!waiting.is_finished(), "{:?}", heard.all());
        tokio::task::yield_now().await;
    }
    // No session's sandbox, so nobody's to sweep.
    assert_eq!(house.backend.list().await.unwrap(), []);
    house.close().await;
    assert!(waiting.await.unwrap().is_err());
    let left = |name: &str| std::fs::read_dir(state.path().join(name)).map_or(0, Iterator::count);
    assert_eq!((left("layers"), left("images/making")), (0, 0));
    let house = self::house(state.path(), alone()).await;
    let (image, told) = built(&house, &recipe(&["echo one >/etc/one", "cat /etc/one"])).await;
    assert!(image.is_ok());
    assert_eq!(told[0], "1: set-up command 1 of 2, done before");
    house.close().await;
}

#[tokio::test]
async fn what_an_installer_gets_is_what_was_written_and_never_a_shells() {
    if !is_root() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let settings = BuildSettings {
        env: BTreeMap::from([(
            "PIP_INDEX_URL".to_owned(),
            "http://index.invalid".to_owned(),
        )]),
        ..alone()
    };
    let house = house(state.path(), settings).await;
    // What is executable already stays so when its content is another's.
    let python = "echo '#!/bin/sh' >/usr/bin/python3 && \
                  echo 'for word in \"$@\"; do echo \"<$word>\"; done; echo $PIP_INDEX_URL $PIP_CACHE_DIR' >>/usr/bin/python3";
    let recipe = Recipe {
        packages: vec!["numpy>=1".to_owned(), "httpx[http2]".to_owned()],
        package_manager: PackageManager::Pip,
        ..recipe(&["mv /usr/bin/sleep /usr/bin/python3", python])
    };
    let (image, told) = built(&house, &recipe).await;
    assert!(image.is_ok(), "{image:?}");
    assert_eq!(
        told[3..],
        [
            "| <-m>",
            "| <pip>",
            "| <install>",
            "| <numpy>=1>",
            "| <httpx[http2]>",
            "| http://index.invalid /var/cache/sandboxd/pip"
        ]
    );
    // What a build is told is no part of its image.
    assert_eq!(
        image.unwrap().defaults().unwrap().env.get("PIP_INDEX_URL"),
        None
    );
    house.close().await;
}

#[tokio::test]
async fn an_ordinary_user_builds_too() {
    if !as_ordinary_user("recipes::an_ordinary_user_builds_too") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let house = house(state.path(), alone()).await;
    let steps = recipe(&[
        "echo one >/etc/one; rm /etc/gone",
        "cat /etc/one; rm -r /srv/dir; mkdir /srv/dir",
    ]);
    let with_user = Recipe {
        user: Some(1000),
        ..steps
    };
    let (image, told) = built(&house, &with_user).await;
    let image = image.unwrap();
    assert!(told.contains(&"| one".to_owned()));
    let spec = SandboxSpec {
        user: Some(1000),
        ..spec(image)
    };
    let sandbox = house.rent(&spec).await;
    assert_eq!(
        sandbox
            .says("id -un; cat /etc/one; ls -A /srv/dir; touch ~/mine; test ! -e /etc/gone")
            .await,
        "agent\none"
    );
    let stopped = house.backend.stop(&sandbox.id, KeepLayer::No).await;
    stopped.unwrap();
    house.close().await;
}
