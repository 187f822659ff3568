//! What is here, and how it goes: images that nobody names or uses, layers of no image, leftovers.

use super::config::Config;
use super::digest::Digest;
use super::error::{ImageError, at};
use super::reference::Reference;
use super::shifted::shifted_place;
use super::store::Images;
use super::{locks, tars};
use crate::backends::ImageUser;
use crate::limits::IMAGE_PARTIAL_KEPT_SECONDS;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

/// One image, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Its names; none for one that lost them while it was in use.
    pub names: Vec<String>,
    /// The digest of its configuration.
    pub id: String,
    /// The digest of the manifest that it was pulled by.
    pub manifest: Option<String>,
    /// Its layers, the lowest first.
    pub layers: Vec<LayerSummary>,
    /// Bytes of the files of all its layers.
    pub bytes: u64,
    /// Whom its programs run as, where it says so.
    pub user: Option<ImageUser>,
}

/// One layer of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerSummary {
    /// The digest of its tar.
    pub digest: String,
    /// Bytes of its files.
    pub bytes: u64,
    /// Entries of its tar.
    pub entries: u64,
    /// Where it is.
    pub path: String,
}

/// What was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Removed {
    /// Images.
    pub images: usize,
    /// Layers.
    pub layers: usize,
    /// Halves of what was being fetched or unpacked, and unpacked tars whose file is gone.
    pub leftovers: usize,
    /// Bytes of the files in the layers.
    pub bytes: u64,
}

impl Images {
    /// Every image.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read.
    pub fn list(&self) -> Result<Vec<Summary>, ImageError> {
        let mut names: BTreeMap<Digest, Vec<String>> = BTreeMap::new();
        for (name, id) in self.names()? {
            names.entry(id).or_default().push(name);
        }
        let mut all = Vec::new();
        for id in self.ids()? {
            all.extend(self.summary(&id, names.remove(&id).unwrap_or_default())?);
        }
        all.sort_by(|a, b| (a.names.is_empty(), &a.names).cmp(&(b.names.is_empty(), &b.names)));
        Ok(all)
    }

    fn summary(&self, id: &Digest, names: Vec<String>) -> Result<Option<Summary>, ImageError> {
        let Some(record) = self.record(id)? else {
            return Ok(None);
        };
        let layer = |layer: &super::store::LayerRecord| {
            let digest = Digest::parse(&layer.digest);
            let place = digest.map(|digest| self.layer_place(&digest).join("root"));
            LayerSummary {
                digest: layer.digest.clone(),
                bytes: layer.bytes,
                entries: layer.entries,
                path: place
                    .map(|place| place.display().to_string())
                    .unwrap_or_default(),
            }
        };
        let layers: Vec<LayerSummary> = record.layers.iter().map(layer).collect();
        Ok(Some(Summary {
            names,
            id: id.to_string(),
            manifest: record.manifest,
            bytes: layers.iter().map(|layer| layer.bytes).sum(),
            layers,
            user: record.user,
        }))
    }

    /// The image that a name, a digest or the beginning of one means.
    ///
    /// # Errors
    ///
    /// Where there is none, or more than one.
    pub fn look_up(&self, text: &str) -> Result<Digest, ImageError> {
        if let Ok(name) = Reference::parse(text)
            && let Some(id) = self.find(&name)?
        {
            return Ok(id);
        }
        let digits = text.strip_prefix("sha256:").unwrap_or(text);
        let mut found = self.ids()?;
        found.retain(|id| digits.len() >= 6 && id.hex().starts_with(digits));
        match found.as_slice() {
            [id] => Ok(id.clone()),
            [] => Err(ImageError::Unknown(text.to_owned())),
            _ => Err(ImageError::Useless(format!(
                "{text} is the beginning of several digests"
            ))),
        }
    }

    /// One image, and its whole configuration.
    ///
    /// # Errors
    ///
    /// Where there is none.
    pub fn inspect(&self, text: &str) -> Result<(Summary, String), ImageError> {
        let id = self.look_up(text)?;
        let names = self.names()?.into_iter().filter(|(_, named)| *named == id);
        let names = names.map(|(name, _)| name).collect();
        let missing = || ImageError::Unknown(text.to_owned());
        let summary = self.summary(&id, names)?.ok_or_else(missing)?;
        let record = self.record(&id)?.ok_or_else(missing)?;
        Ok((summary, record.config))
    }

    /// Removes a name, and with the last name of an image the image and the layers that no other one has. `kept` are the
    /// images that write layers of sleeping sessions lie over.
    ///
    /// # Errors
    ///
    /// Where there is no such image, or it is in use; nothing is removed then.
    pub fn remove(&self, text: &str, kept: &BTreeSet<String>) -> Result<Removed, ImageError> {
        let _removing = locks::removing(self.home()).map_err(at(self.home()))?;
        let id = self.look_up(text)?;
        let name = Reference::parse(text).ok();
        let mut names: Vec<String> = Vec::new();
        names.extend(
            self.names()?
                .into_iter()
                .filter(|(_, named)| *named == id)
                .map(|(name, _)| name),
        );
        let by_name = match name {
            Some(name) if self.find(&name)?.as_ref() == Some(&id) => Some(name),
            _ => None,
        };
        if let Some(name) = &by_name
            && names.len() > 1
        {
            self.forget(name)?;
            return Ok(Removed::default());
        }
        let in_use = |by: &str| ImageError::InUse {
            name: text.to_owned(),
            by: by.to_owned(),
        };
        if kept.contains(&id.to_string()) {
            return Err(in_use("the kept layer of a sleeping session lies over it"));
        }
        let unused = locks::unused(self.home(), id.hex()).map_err(at(self.home()))?;
        let _unused = unused.ok_or_else(|| in_use("a sandbox runs from it"))?;
        for name in names.iter().filter_map(|name| Reference::parse(name).ok()) {
            self.forget(&name)?;
        }
        self.remove_record(&id)?;
        let mut removed = self.remove_layers(&|_| true)?;
        removed.images = 1;
        Ok(removed)
    }

    /// Removes what nobody needs: images without a name that are not in use, layers of no image, leftovers.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn collect(&self, kept: &BTreeSet<String>, now: Duration) -> Result<Removed, ImageError> {
        let _removing = locks::removing(self.home()).map_err(at(self.home()))?;
        let named: BTreeSet<Digest> = self.names()?.into_iter().map(|(_, id)| id).collect();
        let mut images = 0;
        for id in self.ids()? {
            if named.contains(&id) || kept.contains(&id.to_string()) {
                continue;
            }
            if let Some(_unused) = locks::unused(self.home(), id.hex()).map_err(at(self.home()))? {
                self.remove_record(&id)?;
                images += 1;
            }
        }
        let mut removed = self.remove_layers(&|_| true)?;
        removed.images = images;
        removed.leftovers = self.sweep()? + self.forget_partial(now, Duration::ZERO)?;
        removed.leftovers += tars::forget_gone(self.home()).map_err(at(self.home()))?;
        Ok(removed)
    }

    fn remove_record(&self, id: &Digest) -> Result<(), ImageError> {
        let place = self.image_place(id);
        fs::remove_file(&place).map_err(at(&place))
    }

    /// Removes the layers of no image that are old enough; the caller keeps everybody from adding one.
    fn remove_layers(&self, is_old: &dyn Fn(&Path) -> bool) -> Result<Removed, ImageError> {
        let mut needed = BTreeSet::new();
        for id in self.ids()? {
            let Some(record) = self.record(&id)? else {
                continue;
            };
            let config = Config::parse(record.config.as_bytes()).map_err(ImageError::Useless)?;
            let layers = config.layers().map_err(ImageError::Useless)?;
            for place in layers.iter().map(|layer| self.layer_place(layer)) {
                needed.extend(shifted_place(&place));
                needed.insert(place);
            }
        }
        let mut removed = Removed::default();
        let directory = self.home().join("layers");
        for place in locks::entries(&directory).map_err(at(&directory))? {
            if needed.contains(&place) || !is_old(&place) {
                continue;
            }
            removed.layers += 1;
            removed.bytes += bytes_of(&place);
            // Out of its place first, so that what is half removed is never taken for a layer.
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            let going = locks::making(self.home(), &name).map_err(at(&place))?;
            let gone = fs::rename(&place, going.join("layer"));
            gone.and_then(|()| locks::discard(&going))
                .map_err(at(&place))?;
        }
        Ok(removed)
    }

    /// Removes halves of blobs that nobody is fetching and that have not grown for `age`.
    pub(super) fn forget_partial(&self, now: Duration, age: Duration) -> Result<usize, ImageError> {
        let directory = self.home().join("blobs");
        let mut gone = 0;
        for place in locks::entries(&directory).map_err(at(&directory))? {
            let name = place.file_name().unwrap_or_default().to_string_lossy();
            let lock = locks::try_take(self.home(), &format!("blob-{name}"));
            let Some(_lock) = lock.map_err(at(&place))? else {
                continue;
            };
            if now.saturating_sub(changed(&place)) >= age {
                fs::remove_file(&place).map_err(at(&place))?;
                gone += 1;
            }
        }
        Ok(gone)
    }

    /// What is done at the start of a service: leftovers of who died in the middle go, and what nobody went on with for a
    /// while: halves of blobs, and layers of images that never became whole. How much that was.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn tidy(&self, now: Duration) -> Result<usize, ImageError> {
        if !self.home().exists() {
            return Ok(0);
        }
        let kept = Duration::from_secs(IMAGE_PARTIAL_KEPT_SECONDS);
        let mut gone = self.sweep()? + self.forget_partial(now, kept)?;
        // Not while somebody adds images; then another start finds them.
        let alone = locks::try_take(self.home(), "store").map_err(at(self.home()))?;
        if alone.is_some() {
            let is_old = |layer: &Path| now.saturating_sub(changed(&layer.join("facts"))) >= kept;
            gone += self.remove_layers(&is_old)?.layers;
        }
        Ok(gone)
    }
}

/// When a file was changed, since the Unix epoch.
fn changed(path: &Path) -> Duration {
    let seconds = fs::metadata(path).map_or(0, |found| found.mtime());
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

fn bytes_of(layer: &Path) -> u64 {
    let read = || {
        let facts = fs::read(layer.join("facts")).ok()?;
        serde_json::from_slice::<serde_json::Value>(&facts)
            .ok()?
            .get("bytes")?
            .as_u64()
    };
    read().unwrap_or(0)
}
