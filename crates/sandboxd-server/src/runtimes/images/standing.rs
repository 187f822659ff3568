//! Whether what a runtime is made from is here, without fetching or building anything.

use super::build::Lineage;
use super::digest::Digest;
use super::error::ImageError;
use super::reference::Reference;
use super::store::Images;
use crate::runtimes::Source;

/// Whether it is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// It is, and is no image of the store.
    Ready,
    /// It is, as this image.
    Here(Digest),
    /// It is not.
    Missing,
}

impl Standing {
    /// Whether a session would have to wait for nothing.
    pub fn is_ready(&self) -> bool {
        *self != Self::Missing
    }

    /// The image, where it is one.
    pub fn image(&self) -> Option<String> {
        match self {
            Self::Here(id) => Some(id.to_string()),
            Self::Ready | Self::Missing => None,
        }
    }
}

impl Images {
    /// Looks for what a runtime is made from.
    ///
    /// # Errors
    ///
    /// Where the store cannot be read, or a name is none.
    pub fn standing(&self, source: &Source) -> Result<Standing, ImageError> {
        let found = |id: Option<Digest>| id.map_or(Standing::Missing, Standing::Here);
        Ok(match source {
            Source::Host => Standing::Ready,
            Source::Directory(path) | Source::Tar(path) if path.exists() => Standing::Ready,
            Source::Directory(_) | Source::Tar(_) => Standing::Missing,
            Source::Image(name) => found(self.find(&Reference::parse(name)?)?),
            Source::Recipe(recipe) => {
                let plan = recipe.plan();
                let plan = plan.map_err(|error| ImageError::Useless(error.to_string()))?;
                match self.find(&Reference::parse(&plan.base_image)?)? {
                    None => Standing::Missing,
                    Some(base) => {
                        let key = plan.key(&base.to_string());
                        let name = Lineage::of(&plan.name, plan.user).name(&key)?;
                        found(self.find(&name)?)
                    }
                }
            }
        })
    }
}
