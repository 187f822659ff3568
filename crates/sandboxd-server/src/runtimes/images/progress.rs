//! What is told while an image is fetched.

use super::digest::Digest;
use std::time::Duration;

/// Something happened.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// So many layers make the image, so many of which have to be fetched, so many bytes.
    Layers {
        /// All of them.
        all: usize,
        /// Those that are not here.
        missing: usize,
        /// Bytes to fetch.
        bytes: u64,
    },
    /// A blob is being fetched from somewhere in it on.
    Fetching {
        /// Which.
        blob: &'a Digest,
        /// Its bytes.
        size: u64,
        /// How many of them are here already.
        had: u64,
    },
    /// Some of it came.
    Fetched {
        /// Which.
        blob: &'a Digest,
        /// How many bytes came.
        bytes: u64,
    },
    /// It is all here, and being unpacked.
    Unpacking {
        /// Which.
        blob: &'a Digest,
    },
    /// It is unpacked.
    Ready {
        /// Which.
        blob: &'a Digest,
    },
    /// Something failed, and is tried again.
    Again {
        /// What.
        why: &'a str,
        /// In how long.
        wait: Duration,
    },
}

/// Who is told.
pub trait Progress: Send + Sync {
    /// Something happened. Must not block.
    fn event(&self, event: Event<'_>);
}

/// Lines in the log, for a daemon.
#[derive(Debug)]
pub struct Logged {
    /// The image.
    pub image: String,
}

impl Progress for Logged {
    fn event(&self, event: Event<'_>) {
        let image = &self.image;
        match event {
            Event::Layers {
                all,
                missing,
                bytes,
            } => {
                tracing::info!(image, all, missing, bytes, "fetching an image");
            }
            Event::Fetching { blob, size, had } => {
                tracing::debug!(image, blob = blob.short(), size, had, "fetching a layer");
            }
            Event::Unpacking { blob } => {
                tracing::debug!(image, blob = blob.short(), "unpacking a layer");
            }
            Event::Ready { blob } => {
                tracing::info!(image, blob = blob.short(), "a layer is ready");
            }
            Event::Again { why, wait } => {
                let millis = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(image, why, millis, "fetching failed, and is tried again");
            }
            Event::Fetched { .. } => {}
        }
    }
}
