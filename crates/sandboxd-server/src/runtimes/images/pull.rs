//! From a name to an image that is here: manifest, configuration, layers; each verified before it is used.

use super::config::Config;
use super::digest::{Digest, Hashing};
use super::error::{ImageError, at};
use super::locks;
use super::manifest::{Descriptor, Document, for_this_machine};
use super::progress::{Event, Progress};
use super::reference::Reference;
use super::registry::Registries;
use super::store::Images;
use super::stream::{Cancel, CancelOnDrop};
use crate::limits::{IMAGE_BLOB_BYTES_MAX, REGISTRY_BLOBS_AT_ONCE};
use futures::{StreamExt as _, TryStreamExt as _};
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Fetches an image, or what of it is not here. What its name meant before is forgotten. Cancelled by being dropped;
/// what was fetched by then is gone on with by the next one.
///
/// # Errors
///
/// Where it is not to be had, or not what it says to be; there is no part of it then under its name.
pub async fn pull(
    images: &Images,
    registries: &Registries,
    name: &Reference,
    progress: &dyn Progress,
) -> Result<Digest, ImageError> {
    let cancel = CancelOnDrop::default();
    let home = images.home().to_owned();
    let _adding = blocking(move || locks::adding(&home).map_err(at(home))).await?;
    let (manifest, config, layers) = documents(registries, name, progress).await?;
    let read = Config::parse(&config).map_err(ImageError::Useless)?;
    if let Some(why) = read.unsuited() {
        return Err(ImageError::Useless(why));
    }
    let digests = read.layers().map_err(ImageError::Useless)?;
    if digests.len() != layers.len() {
        return Err(ImageError::Useless(format!(
            "its configuration speaks of {} layers, and its manifest of {}",
            digests.len(),
            layers.len()
        )));
    }
    let all = digests.len();
    let mut missing: Vec<(Digest, Descriptor)> = Vec::new();
    for (layer, descriptor) in digests.into_iter().zip(layers) {
        if descriptor.size > IMAGE_BLOB_BYTES_MAX {
            return Err(ImageError::Useless(format!(
                "a layer of {} bytes is too large",
                descriptor.size
            )));
        }
        let seen = missing.iter().any(|(other, _)| *other == layer);
        if !seen && !images.has_layer(&layer) {
            missing.push((layer, descriptor));
        }
    }
    progress.event(Event::Layers {
        all,
        missing: missing.len(),
        bytes: missing.iter().map(|(_, descriptor)| descriptor.size).sum(),
    });
    let one = |(layer, descriptor)| {
        fetch(
            images, registries, name, layer, descriptor, &cancel.0, progress,
        )
    };
    futures::stream::iter(missing.into_iter().map(one))
        .buffer_unordered(REGISTRY_BLOBS_AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    let (images, name) = (images.clone(), name.clone());
    blocking(move || images.add_image(&config, Some(&manifest), &[name])).await
}

/// The digest of an image's manifest, its configuration, and what its layers are.
async fn documents(
    registries: &Registries,
    name: &Reference,
    progress: &dyn Progress,
) -> Result<(Digest, Vec<u8>, Vec<Descriptor>), ImageError> {
    let (text, mut digest) = registries.manifest(name, &name.version(), progress).await?;
    let mut document = Document::parse(&text).map_err(ImageError::Useless)?;
    if let Document::Index(all) = &document {
        let chosen = for_this_machine(all).map_err(ImageError::Useless)?;
        let version = chosen.digest().map_err(ImageError::Useless)?.to_string();
        let (text, of_chosen) = registries.manifest(name, &version, progress).await?;
        digest = of_chosen;
        document = Document::parse(&text).map_err(ImageError::Useless)?;
    }
    match document {
        Document::Index(_) => Err(ImageError::Useless(
            "its index leads to another index".to_owned(),
        )),
        Document::Image { config, layers } => {
            let config = registries.small(name, &config, progress).await?;
            Ok((digest, config, layers))
        }
    }
}

/// One layer: fetched, verified, unpacked.
async fn fetch(
    images: &Images,
    registries: &Registries,
    name: &Reference,
    layer: Digest,
    descriptor: Descriptor,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<(), ImageError> {
    let blob = descriptor.digest().map_err(ImageError::Useless)?;
    let place = images.home().join("blobs").join(blob.hex());
    // Who fetches the same at the same time goes first; then it is here.
    let lock = {
        let (images, blob, cancel) = (images.clone(), blob.clone(), cancel.clone());
        blocking(move || {
            let home = images.home();
            locks::private(&home.join("blobs")).map_err(at(home))?;
            locks::take(home, &format!("blob-{}", blob.hex()), &cancel).map_err(at(home))
        })
        .await?
    };
    if !images.has_layer(&layer) {
        registries
            .blob(name, &blob, descriptor.size, &place, progress)
            .await?;
        progress.event(Event::Unpacking { blob: &blob });
        let (images, cancel) = (images.clone(), cancel.clone());
        let (wanted, size) = (blob.clone(), descriptor.size);
        blocking(move || {
            let unpacked = verify(&place, &wanted)
                .and_then(|file| images.add_layer(&layer, file, size, &cancel));
            match unpacked {
                // Worth going on with.
                Err(ImageError::Cancelled) => Err(ImageError::Cancelled),
                unpacked => {
                    // What is unpacked is needed no more; what is wrong is not to be met again.
                    fs::remove_file(&place).map_err(at(&place))?;
                    unpacked.map(drop)
                }
            }
        })
        .await?;
    }
    drop(lock);
    let (images, blob_lock) = (images.clone(), format!("blob-{}", blob.hex()));
    locks::forget(images.home(), &blob_lock);
    progress.event(Event::Ready { blob: &blob });
    Ok(())
}

/// A blob that is what it should be, to be read from its start.
fn verify(place: &Path, wanted: &Digest) -> Result<File, ImageError> {
    use io::{Read as _, Seek as _};
    let read = (|| {
        let mut file = File::open(place)?;
        let mut hashing = Hashing::new(&file);
        let mut buffer = vec![0; 256 * 1024];
        while hashing.read(&mut buffer)? > 0 {}
        let (found, _) = hashing.finish();
        file.seek(io::SeekFrom::Start(0))?;
        Ok((file, found))
    })();
    let (file, found) = read.map_err(at(place))?;
    match found == *wanted {
        true => Ok(file),
        false => Err(ImageError::Digest {
            what: "a layer as it was sent".to_owned(),
            wanted: wanted.clone(),
            found,
        }),
    }
}

/// Work that blocks, off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| ImageError::Registry(format!("the work did not end well: {error}")))?
}
