//! The image store: what was pulled or imported, by what it is.
//!
//! Below `images` in the state directory:
//!
//! ```text
//! layers/owned-<digest>/root    one layer, unpacked once and shared by all images and sandboxes over it; `plain-` where
//!                               the owner of all files is the user who runs the daemon
//! layers/shifted-<digest>/root  a copy of one, where mounts cannot map owners (see `shifted`)
//! images/<digest>               one image by the digest of its configuration: that, and what its layers are
//! names/<digest of the name>    which image a name means
//! blobs/<digest>                what is being fetched; kept for a while if it is cut off
//! making, locks                 see `locks`
//! ```
//!
//! Everything is on the disk before it is renamed into its place. An image is written down after its layers, so one that
//! can be found is whole. Who uses it holds a lock of its name, so one that is in use is not removed.

use super::config::{self, Config};
use super::digest::{Digest, Hashing};
use super::error::{ImageError, at};
use super::locks;
use super::reference::Reference;
use super::stack;
use super::stream::{self, Cancel};
use super::unpack::{self, Bounds, Rules};
use crate::backends::{Hold, ImageDefaults, ImageUser};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The directory of the store in a state directory.
const HOME: &str = "images";
/// What stands for the packed size of what was never packed: a bound of bombs is none of it.
const UNPACKED_BYTES: u64 = u64::MAX / 1024;
/// Bytes of an image's record.
const RECORD_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Bytes of an account file of an image.
const ACCOUNTS_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The store of one state directory.
#[derive(Debug, Clone)]
pub struct Images {
    home: PathBuf,
    owners: bool,
    bounds: Bounds,
}

/// One image as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// Its configuration, as it came.
    pub(super) config: String,
    /// The digest of the manifest that it was pulled by.
    pub(super) manifest: Option<String>,
    /// Its layers, the lowest first.
    pub(super) layers: Vec<LayerRecord>,
    /// Whom its programs run as.
    pub(super) user: Option<ImageUser>,
    /// Why its user is unknown.
    pub(super) user_problem: Option<String>,
}

/// One layer as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LayerRecord {
    /// The digest of its tar.
    pub(super) digest: String,
    /// Bytes of its files.
    pub(super) bytes: u64,
    /// Entries of its tar.
    pub(super) entries: u64,
}

/// A name and what it means.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Name {
    name: String,
    image: String,
}

/// What a layer's directory says beside its files.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Facts {
    bytes: u64,
    entries: u64,
}

/// Whether what was unpacked is what was expected, in words where it is not.
type Suits<'a> = &'a dyn Fn(&Path) -> Result<(), String>;

/// An image that may be used, and is not removed meanwhile.
#[derive(Debug, Clone)]
pub struct Image {
    /// What it is.
    pub id: Digest,
    /// The roots of its layers, the topmost first.
    pub layers: Vec<PathBuf>,
    /// What its programs expect.
    pub defaults: ImageDefaults,
    /// Keeps it.
    pub hold: Hold,
}

impl Images {
    /// The store of a state directory. Made when something is added.
    pub fn of(state_dir: &Path) -> Self {
        Self {
            home: state_dir.join(HOME),
            owners: rustix::process::geteuid().is_root(),
            bounds: Bounds::of_images(),
        }
    }

    /// The store in a directory.
    #[cfg(test)]
    pub(super) fn at_home(home: &Path) -> Self {
        Self {
            home: home.to_owned(),
            ..Self::of(home)
        }
    }

    /// The same with other bounds.
    #[cfg(test)]
    pub(super) fn bounded(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// Removes what somebody who died in the middle has left. How much that was.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn sweep(&self) -> Result<usize, ImageError> {
        locks::sweep(&self.home).map_err(at(&self.home))
    }

    pub(super) fn layer_place(&self, layer: &Digest) -> PathBuf {
        let kind = if self.owners { "owned" } else { "plain" };
        self.home
            .join("layers")
            .join(format!("{kind}-{}", layer.hex()))
    }

    /// Whether a layer is here.
    pub(super) fn has_layer(&self, layer: &Digest) -> bool {
        self.layer_place(layer).is_dir()
    }

    /// Unpacks a layer of `packed` bytes, if it is not here already.
    pub(super) fn add_layer(
        &self,
        wanted: &Digest,
        stored: impl Read,
        packed: u64,
        cancel: &Cancel,
    ) -> Result<(), ImageError> {
        let added = self.add(Some(wanted), stored, packed, &|_| Ok(()), cancel);
        added.map(drop)
    }

    /// Unpacks a root filesystem of `packed` bytes as a layer; what it is.
    pub(super) fn add_root(
        &self,
        stored: impl Read,
        packed: u64,
        cancel: &Cancel,
    ) -> Result<Digest, ImageError> {
        let suits = |root: &Path| super::looks_like_a_root(&[root.to_owned()]);
        self.add(None, stored, packed, &suits, cancel)
    }

    /// Unpacks what a step of a build changed as a layer; what it is.
    pub(super) fn add_diff(&self, tar: impl Read, cancel: &Cancel) -> Result<Digest, ImageError> {
        self.add(None, tar, UNPACKED_BYTES, &|_| Ok(()), cancel)
    }

    fn add(
        &self,
        wanted: Option<&Digest>,
        stored: impl Read,
        packed: u64,
        suits: Suits<'_>,
        cancel: &Cancel,
    ) -> Result<Digest, ImageError> {
        let name = match wanted {
            Some(wanted) => format!("layer-{}", wanted.hex()),
            None => format!("layer-{}", crate::id::SandboxId::generate()),
        };
        let _adding = locks::adding(&self.home).map_err(at(&self.home))?;
        let _making = locks::take(&self.home, &name, cancel).map_err(at(&self.home))?;
        if let Some(wanted) = wanted.filter(|wanted| self.has_layer(wanted)) {
            return Ok(wanted.clone());
        }
        locks::private(&self.home.join("layers")).map_err(at(&self.home))?;
        let making = locks::making(&self.home, &name).map_err(at(&self.home))?;
        let outcome = self.make_layer(&making, wanted, stored, packed, suits, cancel);
        if outcome.is_err() || making.exists() {
            locks::discard(&making).map_err(at(&making))?;
        }
        if wanted.is_none() {
            locks::forget(&self.home, &name);
        }
        outcome
    }

    fn make_layer(
        &self,
        making: &Path,
        wanted: Option<&Digest>,
        stored: impl Read,
        packed: u64,
        suits: Suits<'_>,
        cancel: &Cancel,
    ) -> Result<Digest, ImageError> {
        let said = |cause: unpack::UnpackError| match cancel.is_cancelled() {
            true => ImageError::Cancelled,
            false => ImageError::Layer {
                layer: wanted.map_or("of the file", Digest::short).to_owned(),
                cause,
            },
        };
        let tar = stream::tar_of(stored, packed, cancel.clone());
        let mut tar = Hashing::new(tar.map_err(|error| said(error.into()))?);
        let rules = Rules {
            owners: self.owners,
            whiteouts: true,
            bounds: self.bounds,
        };
        let done = unpack::unpack(&mut tar, &making.join("root"), &rules).map_err(said)?;
        let (found, _) = tar.finish();
        if let Some(wanted) = wanted.filter(|wanted| **wanted != found) {
            return Err(ImageError::Digest {
                what: "an unpacked layer".to_owned(),
                wanted: wanted.clone(),
                found,
            });
        }
        suits(&making.join("root")).map_err(ImageError::Useless)?;
        let facts = Facts {
            bytes: done.bytes,
            entries: done.entries,
        };
        let facts = serde_json::to_vec(&facts).unwrap_or_default();
        let place = self.layer_place(&found);
        let kept = (|| {
            fs::write(making.join("facts"), facts)?;
            fs::write(making.join("implied"), stack::bytes_of(&done.implied))?;
            if place.exists() {
                return Ok(());
            }
            locks::commit(making, &place)
        })();
        kept.map_err(at(&place))?;
        Ok(found)
    }

    /// Writes an image down whose layers are here, under some names.
    pub(super) fn add_image(
        &self,
        config: &[u8],
        manifest: Option<&Digest>,
        names: &[Reference],
    ) -> Result<Digest, ImageError> {
        let read = Config::parse(config).map_err(ImageError::Useless)?;
        if let Some(why) = read.unsuited() {
            return Err(ImageError::Useless(why));
        }
        let _adding = locks::adding(&self.home).map_err(at(&self.home))?;
        let digests = read.layers().map_err(ImageError::Useless)?;
        let mut layers = Vec::new();
        let mut roots: Vec<PathBuf> = Vec::new();
        for digest in &digests {
            let place = self.layer_place(digest);
            layers.push(self.layer_record(digest, &roots)?);
            roots.insert(0, place.join("root"));
        }
        let (user, user_problem) = match read.user() {
            None => (None, None),
            Some(user) => {
                let accounts = |name: &str| {
                    stack::text(&roots, Path::new(name), ACCOUNTS_BYTES_MAX).map_err(at(name))
                };
                let found =
                    config::resolve(user, &accounts("etc/passwd")?, &accounts("etc/group")?);
                match found {
                    Ok(user) => (Some(user), None),
                    Err(why) => (None, Some(why)),
                }
            }
        };
        let record = Record {
            config: String::from_utf8_lossy(config).into_owned(),
            manifest: manifest.map(Digest::to_string),
            layers,
            user,
            user_problem,
        };
        let id = Digest::of(config);
        let written = (|| {
            locks::private(&self.home.join("images"))?;
            locks::private(&self.home.join("names"))?;
            let place = self.image_place(&id);
            locks::write(&place, &serde_json::to_vec(&record)?)?;
            for name in names {
                let text = serde_json::to_vec(&Name {
                    name: name.to_string(),
                    image: id.to_string(),
                })?;
                locks::write(&self.name_place(name), &text)?;
            }
            Ok(())
        })();
        written.map_err(at(&self.home))?;
        Ok(id)
    }

    /// What a layer is, and whether it may lie over those below it (the topmost first).
    fn layer_record(&self, layer: &Digest, below: &[PathBuf]) -> Result<LayerRecord, ImageError> {
        let place = self.layer_place(layer);
        let looked = (|| {
            let facts: Facts = serde_json::from_slice(&fs::read(place.join("facts"))?)?;
            let implied = stack::paths_of(&fs::read(place.join("implied"))?);
            Ok((facts, stack::through_no_directory(below, &implied)?))
        })();
        let (facts, through) = looked.map_err(at(&place))?;
        match through {
            None => Ok(LayerRecord {
                digest: layer.to_string(),
                bytes: facts.bytes,
                entries: facts.entries,
            }),
            Some(path) => Err(ImageError::Layer {
                layer: layer.short().to_owned(),
                cause: unpack::UnpackError::Refused {
                    entry: path.display().to_string(),
                    why: "it goes through what a layer below has as a link or a file",
                },
            }),
        }
    }

    pub(super) fn image_place(&self, id: &Digest) -> PathBuf {
        self.home.join("images").join(id.hex())
    }

    fn name_place(&self, name: &Reference) -> PathBuf {
        let file = Digest::of(name.to_string().as_bytes());
        self.home.join("names").join(file.hex())
    }

    /// What a name means here.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read.
    pub fn find(&self, name: &Reference) -> Result<Option<Digest>, ImageError> {
        let place = self.name_place(name);
        let read: Option<Name> = read_json(&place).map_err(at(&place))?;
        Ok(read
            .filter(|read| read.name == name.to_string())
            .and_then(|read| Digest::parse(&read.image)))
    }

    /// Every name, and what it means.
    pub(super) fn names(&self) -> Result<Vec<(String, Digest)>, ImageError> {
        let directory = self.home.join("names");
        let mut all = Vec::new();
        for place in locks::entries(&directory).map_err(at(&directory))? {
            let read: Option<Name> = read_json(&place).map_err(at(&place))?;
            let read = read.and_then(|read| Some((read.name, Digest::parse(&read.image)?)));
            all.extend(read);
        }
        all.sort();
        Ok(all)
    }

    /// Every image.
    pub(super) fn ids(&self) -> Result<Vec<Digest>, ImageError> {
        let directory = self.home.join("images");
        let found = locks::entries(&directory).map_err(at(&directory))?;
        let hex = |place: &PathBuf| Digest::of_hex(place.file_name()?.to_str()?);
        Ok(found.iter().filter_map(hex).collect())
    }

    pub(super) fn record(&self, id: &Digest) -> Result<Option<Record>, ImageError> {
        let place = self.image_place(id);
        read_json(&place).map_err(at(&place))
    }

    /// Forgets a name.
    pub(super) fn forget(&self, name: &Reference) -> Result<(), ImageError> {
        let place = self.name_place(name);
        fs::remove_file(&place).map_err(at(&place))
    }

    /// An image, held; nothing where it is not here.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read, or a layer is missing.
    pub fn open(&self, id: &Digest) -> Result<Option<Image>, ImageError> {
        let held = locks::using(&self.home, id.hex()).map_err(at(&self.home))?;
        let Some(record) = self.record(id)? else {
            return Ok(None);
        };
        let config = Config::parse(record.config.as_bytes()).map_err(ImageError::Useless)?;
        let mut layers = Vec::new();
        for digest in config.layers().map_err(ImageError::Useless)?.iter().rev() {
            let root = self.layer_place(digest).join("root");
            if !root.is_dir() {
                let cause = io::Error::other("a layer of the image is missing; pull it again");
                return Err(at(root)(cause));
            }
            layers.push(root);
        }
        Ok(Some(Image {
            id: id.clone(),
            layers,
            defaults: ImageDefaults {
                env: config.env(),
                user: match (record.user, record.user_problem) {
                    (_, Some(why)) => Err(why),
                    (user, None) => Ok(user),
                },
            },
            hold: Hold::on(held),
        }))
    }
}

fn read_json<T: for<'a> Deserialize<'a>>(place: &Path) -> io::Result<Option<T>> {
    let file = match File::open(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut text = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(Some(serde_json::from_slice(&text)?))
}

#[cfg(test)]
mod tests;
