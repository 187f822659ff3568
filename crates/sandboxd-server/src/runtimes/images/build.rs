//! What builds leave in the store: a state for each step, which is an image like any other under a name that says of
//! which recipe it is, and by what it came to be.

use super::config::{self, Outcome};
use super::digest::Digest;
use super::error::{ImageError, at};
use super::locks;
use super::pack::{self, Changes};
use super::reference::Reference;
use super::store::Images;
use super::stream::Cancel;
use super::unpack::UnpackError;
use std::collections::BTreeSet;
use std::io;
use std::path::Path;

/// What is in every sandbox and in no image: file systems of its own, its name and its name servers, mounted caches.
const LEFT_OUT: &[&str] = &[
    "dev",
    "etc/hostname",
    "etc/hosts",
    "etc/resolv.conf",
    "proc",
    "sys",
    "var/cache/sandboxd",
];

/// The recipe, or the variant of one, of which a state is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lineage {
    repository: String,
}

impl Lineage {
    /// Of a recipe of this name, for runs of this uid.
    pub fn of(name: &str, user: Option<u32>) -> Self {
        // Names of recipes may be none of repositories.
        let plain = format!("localhost/recipe/{name}");
        let name = match Reference::parse(&plain) {
            Ok(_) => name.to_owned(),
            Err(_) => format!("named-{}", Digest::of(name.as_bytes()).short()),
        };
        let user = user.map(|uid| format!("/uid{uid}")).unwrap_or_default();
        Self {
            repository: format!("recipe/{name}{user}"),
        }
    }

    /// What names it on this host.
    pub fn text(&self) -> &str {
        &self.repository
    }

    /// The same, where a name has to be short and of few letters.
    pub fn digest(&self) -> Digest {
        Digest::of(self.repository.as_bytes())
    }

    fn is_of(&self, name: &Reference) -> bool {
        name.registry() == "localhost" && name.repository() == self.repository
    }

    /// The name of a state.
    ///
    /// # Errors
    ///
    /// Where it would be too long for a name.
    pub fn name(&self, key: &Digest) -> Result<Reference, ImageError> {
        Ok(Reference::parse(&format!(
            "localhost/{}:{}",
            self.repository,
            key.hex()
        ))?)
    }
}

/// Held for as long as something of a lineage is built, by whatever process.
#[derive(Debug)]
pub struct Building(#[expect(dead_code, reason = "its end is the turn's")] locks::Lock);

impl Images {
    /// Waits until nobody else builds of this lineage. Blocks.
    ///
    /// # Errors
    ///
    /// Where that takes too long, or nobody wants it any more.
    pub fn building(&self, lineage: &Lineage, cancel: &Cancel) -> Result<Building, ImageError> {
        let lock = locks::take(self.home(), &turn_of(&lineage.digest()), cancel);
        Ok(Building(lock.map_err(at(self.home()))?))
    }

    /// The turn of whoever is to build of the lineage with this digest, if nobody has it now.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn not_building(&self, lineage: &Digest) -> std::io::Result<Option<Building>> {
        Ok(locks::try_take(self.home(), &turn_of(lineage))?.map(Building))
    }

    /// Adds what a sandbox over `base` changed, as one more layer, under a name. Blocks.
    ///
    /// # Errors
    ///
    /// Where what it left cannot be a layer; nothing is added then.
    pub fn add_changes(
        &self,
        base: &Digest,
        upper: &Path,
        first: Option<u32>,
        outcome: Option<&Outcome>,
        name: &Reference,
        cancel: &Cancel,
    ) -> Result<Digest, ImageError> {
        let _adding = locks::adding(self.home()).map_err(at(self.home()))?;
        let (reader, writer) = io::pipe().map_err(at(upper))?;
        let changes = Changes {
            first,
            left_out: LEFT_OUT,
        };
        let layer = std::thread::scope(|scope| {
            let packing = scope.spawn(move || {
                let writer = io::BufWriter::with_capacity(256 * 1024, writer);
                pack::pack_changes(upper, changes, writer)
            });
            let added = self.add_diff(reader, cancel);
            let packed = packing.join().unwrap_or(Ok(()));
            match (added, packed) {
                // The reader sees only an end in the middle; the packer knows why.
                (_, Err(cause)) if !is_broken_pipe(&cause) => Err(ImageError::Layer {
                    layer: "of the step".to_owned(),
                    cause,
                }),
                (added, _) => added,
            }
        })?;
        self.add_state(base, Some(&layer), outcome, name)
    }

    /// Adds the image that is a base and what is to be said of it, under a name.
    ///
    /// # Errors
    ///
    /// Where the base is not here.
    pub fn add_state(
        &self,
        base: &Digest,
        layer: Option<&Digest>,
        outcome: Option<&Outcome>,
        name: &Reference,
    ) -> Result<Digest, ImageError> {
        let record = self
            .record(base)?
            .ok_or_else(|| ImageError::Unknown(base.to_string()))?;
        let config = config::built(&record.config, layer, outcome).map_err(ImageError::Useless)?;
        self.add_image(&config, None, std::slice::from_ref(name))
    }

    /// Removes all states of a lineage but these, as far as nobody uses them. How many names went.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read.
    pub fn supersede(
        &self,
        lineage: &Lineage,
        current: &BTreeSet<Reference>,
        kept: &BTreeSet<String>,
    ) -> Result<usize, ImageError> {
        let mut gone = 0;
        for (text, _) in self.names()? {
            let old = Reference::parse(&text).ok();
            let old = old.filter(|old| lineage.is_of(old) && !current.contains(old));
            let Some(old) = old else { continue };
            match self.remove(&old.to_string(), kept) {
                Ok(_) => gone += 1,
                Err(ImageError::InUse { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }
}

fn turn_of(lineage: &Digest) -> String {
    format!("build-{}", lineage.hex())
}

fn is_broken_pipe(error: &UnpackError) -> bool {
    matches!(error, UnpackError::Io(error) if error.kind() == io::ErrorKind::BrokenPipe)
}
