//! The two programs that travel inside the daemon.

use std::fmt;

/// The guest and the jail program, as static executables.
#[derive(Clone, Copy)]
pub struct Programs {
    /// Runs inside a sandbox as its first process.
    pub guest: &'static [u8],
    /// Makes sandboxes.
    pub jail: &'static [u8],
}

/// This build carries no programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this build of sandboxd carries no guest (it was made with SANDBOXD_EMBED=empty)")]
pub struct NotEmbedded;

impl Programs {
    /// The ones that were built with this crate.
    ///
    /// # Errors
    ///
    /// Where the build was told to embed nothing.
    pub const fn embedded() -> Result<Self, NotEmbedded> {
        let programs = Self {
            guest: include_bytes!(concat!(env!("OUT_DIR"), "/guest")),
            jail: include_bytes!(concat!(env!("OUT_DIR"), "/jail")),
        };
        if programs.guest.is_empty() || programs.jail.is_empty() {
            return Err(NotEmbedded);
        }
        Ok(programs)
    }
}

impl fmt::Debug for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Programs")
            .field("guest_bytes", &self.guest.len())
            .field("jail_bytes", &self.jail.len())
            .finish()
    }
}
