//! Images that the engine builds from recipes.

use crate::home::{DEBIAN, Gone, building, docker, house, of};
use crate::registry::{Heard, settings};
use sandboxd_server::backends::{Asked, Ceiling, Network, PrepareError, PreparedImage, Start};
use sandboxd_server::id::SandboxId;
use sandboxd_server::runtimes::build::BuildSettings;
use sandboxd_server::runtimes::images::Watcher;
use sandboxd_server::runtimes::recipe::Recipe;
use sandboxd_server::runtimes::{Runtime, Source};
use std::sync::Arc;

/// A name that no other test has.
fn name() -> String {
    let id = SandboxId::generate().to_string();
    format!("t{}", id.to_lowercase().replace('_', "x"))
}

fn runtime(recipe: &Recipe) -> Runtime {
    Runtime::plain("x", &recipe.label(), Source::Recipe(recipe.clone()))
}

/// The names of what was built of a recipe.
fn built(name: &str) -> Vec<String> {
    let filter = format!("label=sandboxd.recipe={name}");
    let shown = docker(&[
        "images",
        "--filter",
        &filter,
        "--format",
        "{{.Repository}}:{{.Tag}}",
    ]);
    shown.lines().map(str::to_owned).collect()
}

/// Removes what is left of a recipe's images.
struct Built(String);

impl Drop for Built {
    fn drop(&mut self) {
        drop(Gone(built(&self.0)));
    }
}

/// Stands for an installer, which the image of the tests has none of: says what it was told.
const INSTALLER: &str = r#"d=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && mkdir -p "$d/pip" && echo 'import os, sys; open("/installed", "a").write(repr((sys.argv[1:], os.environ.get("PIP_CACHE_DIR"), os.environ["HOME"])))' > "$d/pip/__main__.py" && touch "$d/pip/__init__.py""#;

fn recipe(name: &str) -> Recipe {
    Recipe {
        setup_commands: vec![
            INSTALLER.to_owned(),
            r#"printf '%s' "it's \$HOME <<EOF \\ \"quoted\"" > /made"#.to_owned(),
        ],
        packages: vec!["a>=1".to_owned(), "b[c]~=2".to_owned()],
        ..Recipe::of(name, DEBIAN)
    }
}

#[tokio::test]
async fn what_was_written_is_what_was_done_and_done_once() {
    let Some((house, _home)) = house(settings()).await else {
        return;
    };
    let name = name();
    let _built = Built(name.clone());
    let runtime = runtime(&recipe(&name));
    let heard = Arc::new(Heard::default());
    let watcher: Watcher = heard.clone();
    // Who asks at the same time waits for the same build.
    let (first, second) = tokio::join!(
        house.backend.prepare(&runtime, &watcher),
        house.backend.prepare(&runtime, &watcher),
    );
    let image = first.unwrap();
    assert_eq!(second.unwrap(), image);
    let said = heard.all();
    let begun = said
        .iter()
        .filter(|line| line.contains("set-up command 1 of 2"));
    // Both hear of it.
    assert_eq!(begun.count(), 2, "{said:?}");
    let sandbox = house.rent(&of(image.clone())).await;
    assert_eq!(
        sandbox.says("cat /made").await,
        r#"it's $HOME <<EOF \ "quoted""#
    );
    let installed = sandbox.says("cat /installed").await;
    let arguments = "['install', 'a>=1', 'b[c]~=2']";
    assert!(
        installed.starts_with(&format!("({arguments}")),
        "{installed}"
    );
    assert!(installed.ends_with("'/root')"), "{installed}");
    if house.backend.capabilities().await.buildkit {
        assert!(installed.contains("/var/cache/sandboxd/pip"), "{installed}");
        assert_eq!(sandbox.says("ls /var/cache/sandboxd").await, "");
    }
    sandbox.end().await;
    // It is there now.
    let before = heard.all().len();
    assert_eq!(
        house.backend.prepare(&runtime, &watcher).await.unwrap(),
        image
    );
    assert_eq!(heard.all().len(), before);
    house.close().await;
}

#[tokio::test]
async fn an_image_whose_recipe_changed_goes_when_nothing_uses_it() {
    let Some((house, _home)) = house(settings()).await else {
        return;
    };
    let name = name();
    let _built = Built(name.clone());
    let watcher: Watcher = Arc::new(Heard::default());
    let with = |command: &str| {
        runtime(&Recipe {
            setup_commands: vec![format!("echo {command} > /made")],
            ..Recipe::of(&name, DEBIAN)
        })
    };
    let one = house.backend.prepare(&with("one"), &watcher).await.unwrap();
    let old = built(&name);
    assert_eq!(old.len(), 1);
    let sandbox = house.rent(&of(one)).await;
    let two = house.backend.prepare(&with("two"), &watcher).await.unwrap();
    assert_eq!(built(&name).len(), 2, "one is in use");
    assert_eq!(sandbox.says("cat /made").await, "one");
    sandbox.end().await;
    let three = house
        .backend
        .prepare(&with("three"), &watcher)
        .await
        .unwrap();
    let left = built(&name);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(!old.contains(&left[0]));
    let PreparedImage::Engine { name: newest, .. } = three else {
        panic!("not the engine's");
    };
    assert_eq!(newest, left[0]);
    // One that was removed under us is said, and made again by who asks for it.
    let (id, spec) = (SandboxId::generate(), of(two));
    let gone = house.try_rent(&id, &spec, Start::Fresh).await;
    let why = gone.map(drop).unwrap_err().to_string();
    assert!(why.to_lowercase().contains("image"), "{why}");
    docker(&["image", "rm", &left[0]]);
    house
        .backend
        .prepare(&with("three"), &watcher)
        .await
        .unwrap();
    assert_eq!(built(&name), left);
    house.close().await;
}

#[tokio::test]
async fn a_build_that_fails_is_tried_again_and_says_what_it_printed() {
    let Some((house, _home)) = house(settings()).await else {
        return;
    };
    let name = name();
    let _built = Built(name.clone());
    let heard = Arc::new(Heard::default());
    let watcher: Watcher = heard.clone();
    let recipe = Recipe {
        setup_commands: vec!["true".to_owned(), "echo out of luck >&2; exit 7".to_owned()],
        ..Recipe::of(&name, DEBIAN)
    };
    let failed = house.backend.prepare(&runtime(&recipe), &watcher).await;
    let PrepareError::Broken { cause, .. } = failed.unwrap_err() else {
        panic!("it is not missing");
    };
    for part in ["set-up command 2 of 2", "out of luck", "7"] {
        assert!(cause.contains(part), "{cause}");
    }
    let said = heard.all();
    let again = said.iter().filter(|line| line.starts_with("again: "));
    assert_eq!(again.count(), 1, "{said:?}");
    assert_eq!(built(&name), Vec::<String>::new());
    house.close().await;
}

#[tokio::test]
async fn what_a_builder_of_the_engine_cannot_keep_is_refused_by_name() {
    let builds = BuildSettings {
        memory_bytes: Some(Asked {
            value: 1 << 30,
            explicit: true,
        }),
        ..BuildSettings::default()
    };
    let Some((house, _home)) = building(settings(), builds.clone()).await else {
        return;
    };
    let name = name();
    let _built = Built(name.clone());
    let watcher: Watcher = Arc::new(Heard::default());
    let recipe = Recipe {
        setup_commands: vec![
            "ls /sys/class/net > /made; cut -d: -f1 /proc/net/dev >> /made".to_owned(),
        ],
        ..Recipe::of(&name, DEBIAN)
    };
    let refused = house.backend.prepare(&runtime(&recipe), &watcher).await;
    let why = refused.unwrap_err().to_string();
    assert!(
        why.contains("build_memory") && why.contains("allow_unenforced"),
        "{why}"
    );
    house.close().await;
    // Accepted; and without a network there is none.
    let accepted = BuildSettings {
        allow_unenforced: vec![Ceiling::Memory],
        network: Network::None,
        ..builds
    };
    let (house, _home) = building(settings(), accepted).await.unwrap();
    let image = house
        .backend
        .prepare(&runtime(&recipe), &watcher)
        .await
        .unwrap();
    let sandbox = house.rent(&of(image)).await;
    assert!(!sandbox.says("cat /made").await.contains("eth"));
    sandbox.end().await;
    house.close().await;
}
