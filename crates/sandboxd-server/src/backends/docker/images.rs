//! What sandboxes of an engine are made from: images that it has, that it fetches, or that it builds.
//!
//! - [`pull`]: fetching. [`dockerfile`], [`build`]: building; the first is pure. [`mod@kept`]: what a kept container has.
//!
//! Each is made ready once however many wait for it, and to its end whoever gives up waiting.

mod build;
mod dockerfile;
mod kept;
mod pull;

pub(super) use kept::kept;

use super::connect::{Engine, unless_missing};
use super::{Inner, lock};
use crate::backends::once::Once;
use crate::backends::{Ceiling, ImageDefaults, ImageUser, PrepareError, PreparedImage};
use crate::limits::{ENGINE_ACT_SECONDS_MAX, ENGINE_ASK_SECONDS_MAX, IMAGE_PULL_SECONDS_MAX};
use crate::runtimes::build::BuildSettings;
use crate::runtimes::images::reference::Reference;
use crate::runtimes::images::{Audience, Pull, Settings, Watcher};
use crate::runtimes::recipe::Recipe;
use crate::runtimes::{Runtime, Source};
use bollard::models::{ImageConfig, ImageInspect};
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions};
use dockerfile::Base;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Labels of images that were built: of which recipe, the digest of what it said on which base, that base.
const LABEL_RECIPE: &str = "sandboxd.recipe";
/// See [`LABEL_RECIPE`].
const LABEL_KEY: &str = "sandboxd.recipe.key";
/// See [`LABEL_RECIPE`].
const LABEL_BASE: &str = "sandboxd.recipe.base";
/// The engine's name for the images of all recipes; tags tell them apart.
const REPOSITORY: &str = "sandboxd-runtime";
/// How many digits of a key are part of a tag.
const KEY_DIGITS: usize = 12;

/// What is being made ready, and by which rules.
#[derive(Debug)]
pub(super) struct Images {
    settings: Settings,
    builds: BuildSettings,
    /// What is being fetched and built, by what it is.
    once: Once,
    /// One build at a time.
    building: Semaphore,
    /// Keys of what was built since this start.
    built: Mutex<BTreeSet<String>>,
}

impl Images {
    pub(super) fn new(settings: Settings, builds: BuildSettings) -> Self {
        Self {
            settings,
            builds,
            once: Once::default(),
            building: Semaphore::new(1),
            built: Mutex::new(BTreeSet::new()),
        }
    }

    /// Ends what is being made ready.
    pub(super) async fn end(&self) {
        self.once.end().await;
    }
}

/// Makes an image ready.
pub(super) async fn prepare(
    inner: &Arc<Inner>,
    runtime: &Runtime,
    progress: &Watcher,
) -> Result<PreparedImage, PrepareError> {
    let label = &runtime.label;
    match &runtime.source {
        Source::Image(name) => named(inner, name, label, progress).await,
        Source::Recipe(recipe) => of_recipe(inner, recipe, label, progress).await,
        Source::Host | Source::Directory(_) | Source::Tar(_) => Err(PrepareError::Missing {
            image: label.clone(),
            how: "a container engine makes sandboxes of its own images only, and of no directory of this host (docker import gives one a name)"
                .to_owned(),
        }),
    }
}

async fn named(
    inner: &Arc<Inner>,
    name: &str,
    label: &str,
    progress: &Watcher,
) -> Result<PreparedImage, PrepareError> {
    let found = here_or_fetched(inner, name, label, progress).await?;
    prepared(found, name, label)
}

/// The engine's image of this name, fetched where it has none and that is allowed.
async fn here_or_fetched(
    inner: &Arc<Inner>,
    name: &str,
    label: &str,
    progress: &Watcher,
) -> Result<ImageInspect, PrepareError> {
    let missing = |how: String| PrepareError::Missing {
        image: label.to_owned(),
        how,
    };
    if let Some(found) = look(&inner.engine, name, label).await? {
        return Ok(found);
    }
    let reference = Reference::parse(name).map_err(|error| missing(error.to_string()))?;
    if inner.images.settings.pull == Pull::Never {
        return Err(missing(format!("docker pull {reference} fetches it")));
    }
    let theirs = Arc::clone(inner);
    let work = |audience: Arc<Audience>| async move {
        let (engine, settings) = (&theirs.engine, &theirs.images.settings);
        let pulled = pull::pull(engine, settings, &reference, &*audience);
        within(IMAGE_PULL_SECONDS_MAX, "fetched", pulled).await
    };
    let once = &inner.images.once;
    let fetched = once
        .make(format!("image {name}"), label, progress, work)
        .await;
    fetched.map_err(|why| missing(format!("{why}; docker pull {name} tries again")))?;
    let found = look(&inner.engine, name, label).await?;
    found.ok_or_else(|| missing("it was removed at once".to_owned()))
}

async fn of_recipe(
    inner: &Arc<Inner>,
    recipe: &Recipe,
    label: &str,
    progress: &Watcher,
) -> Result<PreparedImage, PrepareError> {
    let broken = |cause: String| PrepareError::Broken {
        image: label.to_owned(),
        cause,
    };
    if let Some(path) = &recipe.base_path {
        return Err(broken(format!(
            "its base {} is {} by the configuration, and a container engine builds on its own images only",
            recipe.base_image,
            path.display()
        )));
    }
    if let Some(why) = beyond_a_builder(&inner.images.builds, inner.engine.abilities().is_podman) {
        return Err(broken(why));
    }
    let plan = recipe.plan().map_err(|error| broken(error.to_string()))?;
    let base = here_or_fetched(inner, &plan.base_image, &plan.base_image, progress).await?;
    let base = base_of(base).map_err(broken)?;
    let key = plan.key(&base.id).to_string();
    let digits = key.rsplit(':').next().unwrap_or_default();
    let digits: String = digits.chars().take(KEY_DIGITS).collect();
    let tag = format!("{REPOSITORY}:{}-{digits}", recipe.name);
    let usable = recipe.cache_image || lock(&inner.images.built).contains(&key);
    if usable && let Some(found) = built(&inner.engine, &tag, &key, label).await? {
        return prepared(found, &tag, label);
    }
    let order = build::Order {
        plan,
        base,
        key: key.clone(),
        tag: tag.clone(),
    };
    let theirs = Arc::clone(inner);
    let work = |audience: Arc<Audience>| async move {
        let building = build::build(&theirs, &order, &*audience);
        within(theirs.images.builds.seconds_max, "built", building).await?;
        remove_superseded(&theirs.engine, &order.plan.name, &order.tag).await;
        Ok(())
    };
    let once = &inner.images.once;
    let done = once
        .make(format!("recipe {key}"), label, progress, work)
        .await;
    done.map_err(broken)?;
    let found = built(&inner.engine, &tag, &key, label).await?;
    let found = found.ok_or_else(|| broken("it was removed at once".to_owned()))?;
    prepared(found, &tag, label)
}

/// What somebody set about builds that an engine's builder does not keep, and why.
fn beyond_a_builder(builds: &BuildSettings, is_podman: bool) -> Option<String> {
    if !builds.env.is_empty() {
        return Some("build_env would stay in the image's history, where whoever may use the engine reads it; say it in the base image".to_owned());
    }
    if builds.ca_file.is_some() {
        return Some("build_ca_file cannot be mounted into a builder of the engine's; put the certificates into the base image".to_owned());
    }
    let set = |asked: Option<bool>| asked == Some(true);
    let ceilings = [
        // Whatever it is told, its steps run in its host's own network.
        ("build_network", Ceiling::Network, is_podman),
        (
            "build_memory",
            Ceiling::Memory,
            set(builds.memory_bytes.map(|a| a.explicit)),
        ),
        (
            "build_cpus",
            Ceiling::Cpus,
            set(builds.cpus.map(|a| a.explicit)),
        ),
        (
            "build_pids",
            Ceiling::Pids,
            set(builds.pids.map(|a| a.explicit)),
        ),
        (
            "build_disk",
            Ceiling::Disk,
            set(builds.disk_bytes.map(|a| a.explicit)),
        ),
    ];
    let accepted = |ceiling| builds.allow_unenforced.contains(&ceiling);
    let mut refused = ceilings
        .into_iter()
        .filter(|(_, ceiling, explicit)| *explicit && !accepted(*ceiling));
    refused.next().map(|(name, ceiling, _)| {
        format!(
            "{name} cannot be enforced by a builder of the engine's (allow_unenforced = [\"{}\"] accepts that)",
            ceiling.name()
        )
    })
}

/// The image that was built by this key. A name alone says nothing: anybody who may speak to the engine can give it.
async fn built(
    engine: &Engine,
    tag: &str,
    key: &str,
    label: &str,
) -> Result<Option<ImageInspect>, PrepareError> {
    let found = look(engine, tag, label).await?;
    Ok(found.filter(|found| {
        let labels = found
            .config
            .as_ref()
            .and_then(|config| config.labels.as_ref());
        labels
            .and_then(|labels| labels.get(LABEL_KEY))
            .is_some_and(|has| has == key)
    }))
}

/// Removes what earlier states of a recipe had become. The engine keeps what containers are made of.
async fn remove_superseded(engine: &Engine, recipe: &str, tag: &str) {
    let filter = HashMap::from([("label", vec![format!("{LABEL_RECIPE}={recipe}")])]);
    let options = ListImagesOptionsBuilder::default().filters(&filter).build();
    let listing = engine.client().list_images(Some(options));
    let found = engine
        .call("listing images", ENGINE_ASK_SECONDS_MAX, listing)
        .await;
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(recipe, %error, "superseded images were not removed");
            return;
        }
    };
    for image in found {
        if image
            .repo_tags
            .iter()
            .any(|has| has == tag || has.ends_with(&format!("/{tag}")))
        {
            continue;
        }
        // By its names, so that it stays where somebody gave it another one.
        let ours = |name: &&String| name.contains(&format!("{REPOSITORY}:{recipe}-"));
        let mut names: Vec<&String> = image.repo_tags.iter().filter(ours).collect();
        if image.repo_tags.is_empty() {
            names.push(&image.id);
        }
        for name in names {
            let removing = engine
                .client()
                .remove_image(name, None::<RemoveImageOptions>, None);
            let removed = engine
                .call("removing an image", ENGINE_ACT_SECONDS_MAX, removing)
                .await;
            match removed {
                Ok(_) => tracing::info!(recipe, name, "removed a superseded image"),
                Err(error) => tracing::debug!(recipe, name, %error, "kept a superseded image"),
            }
        }
    }
}

async fn look(
    engine: &Engine,
    name: &str,
    label: &str,
) -> Result<Option<ImageInspect>, PrepareError> {
    let looking = engine.client().inspect_image(name);
    let found = engine
        .call("looking for the image", ENGINE_ASK_SECONDS_MAX, looking)
        .await;
    unless_missing(found).map_err(|error| PrepareError::Broken {
        image: label.to_owned(),
        cause: error.to_string(),
    })
}

fn id_of(found: &mut ImageInspect) -> Result<String, String> {
    let id = found.id.take();
    id.ok_or_else(|| "the engine does not say its id".to_owned())
}

fn prepared(
    mut found: ImageInspect,
    name: &str,
    label: &str,
) -> Result<PreparedImage, PrepareError> {
    let id = id_of(&mut found).map_err(|cause| PrepareError::Broken {
        image: label.to_owned(),
        cause,
    })?;
    Ok(PreparedImage::Engine {
        id,
        name: name.to_owned(),
        defaults: defaults(&found.config.unwrap_or_default()),
    })
}

fn base_of(mut found: ImageInspect) -> Result<Base, String> {
    let id = id_of(&mut found)?;
    let config = found.config.unwrap_or_default();
    Ok(Base {
        id,
        env: variables(&config),
        user: config.user.unwrap_or_default(),
    })
}

async fn within(
    seconds: u64,
    word: &str,
    work: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    match tokio::time::timeout(Duration::from_secs(seconds), work).await {
        Ok(done) => done,
        Err(_) => Err(format!("not {word} within {seconds} s")),
    }
}

/// What the image's programs expect.
fn defaults(config: &ImageConfig) -> ImageDefaults {
    ImageDefaults {
        env: variables(config),
        user: user(config.user.as_deref().unwrap_or_default()),
    }
}

fn variables(config: &ImageConfig) -> BTreeMap<String, String> {
    let env = config.env.iter().flatten();
    let env = env.filter_map(|entry| entry.split_once('='));
    env.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn user(text: &str) -> Result<Option<ImageUser>, String> {
    let (uid, gid) = text.split_once(':').unwrap_or((text, ""));
    if matches!(uid, "" | "0" | "root") && matches!(gid, "" | "0" | "root") {
        return Ok(None);
    }
    let unknown = |_| format!("{text:?} is no number, and names are not looked up in the image");
    let uid: u32 = uid.parse().map_err(unknown)?;
    let gid: u32 = match gid {
        "" => 0,
        gid => gid.parse().map_err(unknown)?,
    };
    Ok(Some(ImageUser {
        uid,
        gid,
        home: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_images_user_is_a_number_or_root() {
        assert_eq!(user(""), Ok(None));
        assert_eq!(user("root"), Ok(None));
        let numbers = user("7:8").unwrap().unwrap();
        assert_eq!((numbers.uid, numbers.gid), (7, 8));
        assert!(user("agent").unwrap_err().contains("agent"));
    }
}
