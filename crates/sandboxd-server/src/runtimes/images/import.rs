//! Images from files: what `docker save` writes, an OCI layout, and a root filesystem, each as an archive or a
//! directory, packed or not.
//!
//! - [`members`]: the files in an archive.

mod members;

use super::config;
use super::digest::Digest;
use super::error::{ImageError, at};
use super::manifest::{Descriptor, Document, for_this_machine};
use super::progress::{Progress, Told};
use super::reference::Reference;
use super::store::Images;
use super::stream::{self, Cancel};
use super::unpack::UnpackError;
use super::{locks, pack, place};
use members::{Members, blob_path};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::Path;

/// Images in one archive.
const IMAGES_MAX: usize = 1_000;

/// An image that was imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// What it is.
    pub id: Digest,
    /// Its names.
    pub names: Vec<String>,
}

/// Imports what is at a path. `name` is for what brings no name of its own; for one image that does, it is one more.
/// Blocks.
///
/// # Errors
///
/// Where it is no image, or a hostile one; nothing of it is here then.
pub fn import(
    images: &Images,
    path: &Path,
    name: Option<&Reference>,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<Vec<Imported>, ImageError> {
    let found = std::fs::metadata(path).map_err(at(path))?;
    if found.is_dir() {
        if pack::exists(&path.join("oci-layout")) || pack::exists(&path.join("manifest.json")) {
            return archive(
                images,
                &Members::Directory(path.to_owned()),
                name,
                cancel,
                progress,
            );
        }
        return rootfs_directory(images, path, needed(path, name)?, cancel, progress);
    }
    let file = File::open(path).map_err(at(path))?;
    from(images, file, found.is_file(), path, name, cancel, progress)
}

/// Imports what comes out of a reader, such as stdin. Blocks.
///
/// # Errors
///
/// As [`import`].
pub fn import_stream(
    images: &Images,
    reader: File,
    name: Option<&Reference>,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<Vec<Imported>, ImageError> {
    from(
        images,
        reader,
        false,
        Path::new("-"),
        name,
        cancel,
        progress,
    )
}

fn from(
    images: &Images,
    mut file: File,
    seekable: bool,
    path: &Path,
    name: Option<&Reference>,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<Vec<Imported>, ImageError> {
    let home = images.home();
    // What cannot be read twice, or not from the middle, is laid down first.
    let lock = format!("import-{}", crate::id::SandboxId::generate());
    let _laying = locks::take(home, &lock, cancel).map_err(at(home))?;
    let laid = locks::making(home, &lock).map_err(at(home))?;
    let shown = path.display().to_string();
    let outcome = (|| {
        let packed = stream::is_packed(&mut file, seekable).map_err(at(path))?;
        if !seekable || packed.is_packed {
            let size = file.metadata().map(|found| found.len()).unwrap_or(0);
            let most = if seekable { size } else { u64::MAX / 1024 };
            let whole = seekable.then_some(size);
            let told = Told::reading(&shown, whole, file, progress);
            let stored = io::Cursor::new(packed.head).chain(told);
            let whole = laid.join("archive");
            let mut tar = stream::tar_of(stored, most, cancel.clone()).map_err(at(path))?;
            let mut out = File::create_new(&whole).map_err(at(&whole))?;
            place::copy_while_there_is_room(&mut tar, &mut out).map_err(at(path))?;
            drop(tar);
            file = File::open(&whole).map_err(at(&whole))?;
        }
        let members = Members::index(file.try_clone().map_err(at(path))?).map_err(at(path))?;
        if members.has("oci-layout") || members.has("manifest.json") {
            return archive(images, &members, name, cancel, progress);
        }
        let name = needed(path, name)?;
        let size = file.metadata().map_err(at(path))?.len();
        file.seek(SeekFrom::Start(0)).map_err(at(path))?;
        let tar = Told::reading(&shown, Some(size), file, progress);
        rootfs(images, tar, size, name, cancel)
    })();
    locks::discard(&laid).map_err(at(&laid))?;
    locks::forget(home, &lock);
    outcome
}

fn needed<'a>(path: &Path, name: Option<&'a Reference>) -> Result<&'a Reference, ImageError> {
    name.ok_or_else(|| {
        ImageError::Useless(format!(
            "{} is a root filesystem, which has no name of its own: give one with --name",
            path.display()
        ))
    })
}

fn rootfs(
    images: &Images,
    tar: impl Read,
    size: u64,
    name: &Reference,
    cancel: &Cancel,
) -> Result<Vec<Imported>, ImageError> {
    let _adding = locks::adding(images.home()).map_err(at(images.home()))?;
    let layer = images.add_root(tar, size, cancel)?;
    let id = images.add_image(&config::plain(&layer), None, std::slice::from_ref(name))?;
    Ok(vec![Imported {
        id,
        names: vec![name.to_string()],
    }])
}

fn rootfs_directory(
    images: &Images,
    path: &Path,
    name: &Reference,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<Vec<Imported>, ImageError> {
    let path = path.canonicalize().map_err(at(path))?;
    super::looks_like_a_root(std::slice::from_ref(&path)).map_err(ImageError::Useless)?;
    let (reader, writer) = io::pipe().map_err(at(&path))?;
    std::thread::scope(|scope| {
        let packing = scope.spawn(|| {
            let writer = io::BufWriter::with_capacity(256 * 1024, writer);
            pack::pack(&path, writer)
        });
        let tar = Told::reading(&path.display().to_string(), None, reader, progress);
        let outcome = rootfs(images, tar, u64::MAX / 1024, name, cancel);
        let packed = packing.join().unwrap_or(Ok(()));
        match (outcome, packed) {
            // The reader sees only an end in the middle; the packer knows why.
            (Err(_), Err(cause)) if !is_broken_pipe(&cause) => Err(ImageError::Layer {
                layer: path.display().to_string(),
                cause,
            }),
            (outcome, _) => outcome,
        }
    })
}

fn is_broken_pipe(error: &UnpackError) -> bool {
    matches!(error, UnpackError::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
}

/// One image of what `docker save` wrote.
#[derive(Deserialize)]
struct Saved {
    #[serde(rename = "Config")]
    config: String,
    #[serde(rename = "RepoTags", default)]
    tags: Option<Vec<String>>,
    #[serde(rename = "Layers")]
    layers: Vec<String>,
}

/// One image as an archive brings it: its configuration, the files of its layers, its names.
struct Brought {
    config: Vec<u8>,
    layers: Vec<String>,
    tags: Vec<String>,
}

fn archive(
    images: &Images,
    members: &Members,
    name: Option<&Reference>,
    cancel: &Cancel,
    progress: &dyn Progress,
) -> Result<Vec<Imported>, ImageError> {
    let _adding = locks::adding(images.home()).map_err(at(images.home()))?;
    let mut found: Vec<Brought> = Vec::new();
    if members.has("manifest.json") {
        let text = members.document("manifest.json")?;
        let all: Vec<Saved> = serde_json::from_slice(&text)
            .map_err(|error| ImageError::Useless(format!("its manifest.json: {error}")))?;
        for saved in all.into_iter().take(IMAGES_MAX) {
            let config = members.document(&saved.config)?;
            found.push(Brought {
                config,
                layers: saved.layers,
                tags: saved.tags.unwrap_or_default(),
            });
        }
    } else {
        let index =
            Document::parse(&members.document("index.json")?).map_err(ImageError::Useless)?;
        let Document::Index(all) = index else {
            return Err(ImageError::Useless("its index.json is no index".to_owned()));
        };
        for one in all.iter().take(IMAGES_MAX) {
            found.push(laid_out(members, one)?);
        }
    }
    if found.is_empty() {
        return Err(ImageError::Useless("there is no image in it".to_owned()));
    }
    let only = found.len() == 1;
    let mut imported = Vec::new();
    for brought in found {
        let Brought {
            config,
            layers,
            tags,
        } = brought;
        let mut names = Vec::new();
        for tag in &tags {
            names.push(Reference::parse(tag)?);
        }
        names.extend(name.filter(|_| only).cloned());
        names.dedup();
        if names.is_empty() {
            return Err(ImageError::Useless(
                "an image in it has no name: give one with --name".to_owned(),
            ));
        }
        let read = config::Config::parse(&config).map_err(ImageError::Useless)?;
        if let Some(why) = read.unsuited() {
            return Err(ImageError::Useless(why));
        }
        let wanted = read.layers().map_err(ImageError::Useless)?;
        if wanted.len() != layers.len() {
            return Err(ImageError::Useless(format!(
                "its configuration speaks of {} layers, and it brings {}",
                wanted.len(),
                layers.len()
            )));
        }
        for (wanted, file) in wanted.iter().zip(&layers) {
            let (reader, size) = members.open(file)?;
            let reader = Told::reading(wanted.short(), Some(size), reader, progress);
            images.add_layer(wanted, reader, size, cancel)?;
        }
        let id = images.add_image(&config, None, &names)?;
        imported.push(Imported {
            id,
            names: names.iter().map(Reference::to_string).collect(),
        });
    }
    Ok(imported)
}

/// One image of an OCI layout.
fn laid_out(members: &Members, one: &Descriptor) -> Result<Brought, ImageError> {
    let mut document = Document::parse(&members.blob(one)?).map_err(ImageError::Useless)?;
    if let Document::Index(all) = &document {
        let chosen = for_this_machine(all).map_err(ImageError::Useless)?;
        document = Document::parse(&members.blob(chosen)?).map_err(ImageError::Useless)?;
    }
    let Document::Image { config, layers } = document else {
        return Err(ImageError::Useless(
            "an index in it leads to another index".to_owned(),
        ));
    };
    let mut files = Vec::new();
    for layer in &layers {
        files.push(blob_path(&layer.digest().map_err(ImageError::Useless)?));
    }
    let name = [
        "io.containerd.image.name",
        "org.opencontainers.image.ref.name",
    ]
    .iter()
    .filter_map(|key| one.annotations.get(*key))
    // The second may be a tag alone, which names nothing.
    .find(|name| name.contains([':', '/']));
    Ok(Brought {
        config: members.blob(&config)?,
        layers: files,
        tags: name.cloned().into_iter().collect(),
    })
}
