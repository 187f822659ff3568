//! From a runtime to an image that is on this host: found, fetched from a registry, or unpacked from a file.

use super::create::device_of;
use super::{Inner, build, lock};
use crate::backends::once::{Made, Once};
use crate::backends::{CreateError, PrepareError, PreparedImage, SandboxSpec};
use crate::id::SandboxId;
use crate::limits::IMAGE_PULL_SECONDS_MAX;
use crate::runtimes::images::digest::Digest;
use crate::runtimes::images::reference::Reference;
use crate::runtimes::images::{self, Image, Images, Progress, Pull, Registries, Settings, Watcher};
use crate::runtimes::{Runtime, Source};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Images from registries, each fetched once however many wait for it, and to its end whoever gives up waiting.
#[derive(Debug)]
pub(super) struct Pulls {
    pub(super) images: Images,
    settings: Settings,
    /// Made when it is first needed: reading the system's certificates takes a while.
    registries: OnceLock<Result<Registries, String>>,
    /// What is being fetched and built, by name.
    pub(super) once: Once,
}

impl Pulls {
    pub(super) fn new(images: Images, settings: Settings) -> Self {
        Self {
            images,
            settings,
            registries: OnceLock::new(),
            once: Once::default(),
        }
    }

    fn registries(&self) -> Result<&Registries, String> {
        let made = || Registries::new(self.settings.clone()).map_err(|error| error.to_string());
        self.registries
            .get_or_init(made)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Ends what is being fetched; the next one goes on with it.
    pub(super) async fn end(&self) {
        self.once.end().await;
    }
}

/// Makes a runtime's image ready.
pub(super) async fn prepare(
    inner: &Arc<Inner>,
    runtime: &Runtime,
    progress: &Watcher,
) -> Result<PreparedImage, PrepareError> {
    match &runtime.source {
        Source::Image(name) => {
            let image = named(inner, name, &runtime.label, progress).await?;
            copied(inner, &image, &runtime.label).await?;
            Ok(image)
        }
        Source::Recipe(recipe) => {
            let image = build::built(inner, recipe, &runtime.label, progress).await?;
            copied(inner, &image, &runtime.label).await?;
            Ok(image)
        }
        source => unpacked(inner, source, &runtime.label).await,
    }
}

/// The same, as far as it is on this host: nothing is fetched, and nothing built.
pub(super) async fn local(
    inner: &Arc<Inner>,
    runtime: &Runtime,
) -> Result<Option<PreparedImage>, PrepareError> {
    match &runtime.source {
        Source::Image(name) => {
            let name = Reference::parse(name).map_err(|error| PrepareError::Missing {
                image: runtime.label.clone(),
                how: error.to_string(),
            })?;
            here(inner, &name, &runtime.label).await
        }
        Source::Recipe(recipe) => build::local(inner, recipe, &runtime.label).await,
        source => unpacked(inner, source, &runtime.label).await.map(Some),
    }
}

/// An image that is a path of the host's, or the host itself.
async fn unpacked(
    inner: &Arc<Inner>,
    source: &Source,
    label: &str,
) -> Result<PreparedImage, PrepareError> {
    if *source == Source::Host {
        return Ok(PreparedImage::Host);
    }
    let (source, image) = (source.clone(), label.to_owned());
    let store = inner.state_dir.join("images");
    off_thread(label, move || images::prepare(&source, &image, &store)).await
}

pub(super) async fn off_thread<T: Send + 'static>(
    label: &str,
    work: impl FnOnce() -> Result<T, PrepareError> + Send + 'static,
) -> Result<T, PrepareError> {
    let broken = |cause: String| PrepareError::Broken {
        image: label.to_owned(),
        cause,
    };
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| broken(error.to_string()))?
}

pub(super) async fn named(
    inner: &Arc<Inner>,
    name: &str,
    label: &str,
    progress: &Watcher,
) -> Result<PreparedImage, PrepareError> {
    let missing = |how: String| PrepareError::Missing {
        image: label.to_owned(),
        how,
    };
    let reference = Reference::parse(name).map_err(|error| missing(error.to_string()))?;
    if let Some(found) = here(inner, &reference, label).await? {
        return Ok(found);
    }
    if inner.pulls.settings.pull == Pull::Never {
        return Err(missing(format!(
            "sandboxd image pull {reference} fetches it"
        )));
    }
    let fetched = fetch(inner, &reference, progress).await;
    fetched.map_err(|why| {
        missing(format!(
            "{why}; sandboxd image pull {reference} tries again"
        ))
    })?;
    let found = here(inner, &reference, label).await?;
    found.ok_or_else(|| missing("it was removed at once".to_owned()))
}

/// The image of a name, if it is here.
pub(super) async fn here(
    inner: &Arc<Inner>,
    name: &Reference,
    label: &str,
) -> Result<Option<PreparedImage>, PrepareError> {
    let (images, name, image) = (inner.pulls.images.clone(), name.clone(), label.to_owned());
    let look = move || {
        let found = images.find(&name).and_then(|id| match id {
            Some(id) => images.open(&id),
            None => Ok(None),
        });
        let found = found.map_err(|error| PrepareError::Broken {
            image,
            cause: error.to_string(),
        })?;
        Ok(found.map(prepared))
    };
    off_thread(label, look).await
}

/// Where mounts are known not to map its owners, an image is ready once copies that need no mapping are there.
async fn copied(
    inner: &Arc<Inner>,
    image: &PreparedImage,
    label: &str,
) -> Result<(), PrepareError> {
    let PreparedImage::Layers { layers, .. } = image else {
        return Ok(());
    };
    let (theirs, layers, name) = (Arc::clone(inner), layers.clone(), label.to_owned());
    let copy = move || {
        if !theirs.privileged || !lock(&theirs.unmapped).contains(&device_of(&layers)) {
            return Ok(());
        }
        let broken = |cause: String| PrepareError::Broken {
            image: name.clone(),
            cause,
        };
        let first = lock(&theirs.ranges).shared();
        let first = first.map_err(|error| broken(error.to_string()))?;
        let copies = theirs.pulls.images.shifted(&layers, first);
        copies.map(drop).map_err(|error| broken(error.to_string()))
    };
    off_thread(label, copy).await
}

pub(super) fn prepared(image: Image) -> PreparedImage {
    PreparedImage::Layers {
        layers: image.layers,
        key: image.id.to_string(),
        defaults: image.defaults,
        hold: image.hold,
    }
}

fn fetch(inner: &Arc<Inner>, name: &Reference, progress: &Watcher) -> Made {
    let (theirs, name) = (Arc::clone(inner), name.clone());
    let text = name.to_string();
    let once = &inner.pulls.once;
    once.make(text.clone(), &text, progress, move |audience| async move {
        pull(&theirs, &name, &*audience).await
    })
}

async fn pull(inner: &Inner, name: &Reference, progress: &dyn Progress) -> Result<(), String> {
    let registries = inner.pulls.registries()?;
    let pulled = images::pull(&inner.pulls.images, registries, name, progress);
    match tokio::time::timeout(Duration::from_secs(IMAGE_PULL_SECONDS_MAX), pulled).await {
        Ok(pulled) => pulled.map(drop).map_err(|error| error.to_string()),
        Err(_) => Err(format!("not fetched within {IMAGE_PULL_SECONDS_MAX} s")),
    }
}

/// The image that a kept layer lies over, if it is an image of the store's.
pub(super) async fn kept(inner: &Arc<Inner>, id: &SandboxId) -> Option<PreparedImage> {
    let (theirs, at) = (Arc::clone(inner), id.clone());
    let look = move || {
        let noted = Digest::parse(&theirs.layers.image(&at)?)?;
        theirs.pulls.images.open(&noted).ok().flatten()
    };
    let image = tokio::task::spawn_blocking(look).await.ok().flatten()?;
    let image = prepared(image);
    copied(inner, &image, "of the kept layer").await.ok()?;
    Some(image)
}

/// The specification of a sandbox that wakes: its layer lies over the image that it was made with, whatever the
/// runtime's name means by now. Nothing where that is what is asked for, or is not here.
pub(super) async fn of_kept_layer(
    inner: &Arc<Inner>,
    id: &SandboxId,
    spec: &SandboxSpec,
) -> Result<Option<SandboxSpec>, CreateError> {
    let failed = |cause: String| CreateError::Step {
        step: "finding the kept layer's image".to_owned(),
        cause,
    };
    let (theirs, at) = (Arc::clone(inner), id.clone());
    let asked = super::create::image_of(spec).to_owned();
    let found = tokio::task::spawn_blocking(move || {
        let noted = theirs.layers.image(&at).filter(|noted| *noted != asked);
        match noted.and_then(|noted| Digest::parse(&noted)) {
            Some(noted) => theirs.pulls.images.open(&noted),
            None => Ok(None),
        }
    })
    .await
    .map_err(|error| failed(error.to_string()))?
    .map_err(|error| failed(error.to_string()))?;
    Ok(found.map(|image| SandboxSpec {
        image: prepared(image),
        ..spec.clone()
    }))
}
