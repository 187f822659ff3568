//! What is told while an image is made ready: fetched, or built.

use super::digest::Digest;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    /// Something that is imported is being read.
    Reading {
        /// What: a layer, or the whole.
        what: &'a str,
        /// Its bytes, where they are known beforehand.
        size: Option<u64>,
    },
    /// Some of it was read.
    Read {
        /// How many bytes.
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
    /// A step of a build begins.
    Step {
        /// The how manyeth it is, from 1 on.
        number: usize,
        /// How many there are.
        all: usize,
        /// What it does.
        label: &'a str,
        /// Whether an earlier build has done it already.
        done: bool,
    },
    /// A step of a build printed a line; escaped, and not too long.
    Said {
        /// It.
        line: &'a str,
    },
    /// What a step of a build did is being stored.
    Storing {
        /// What the step does.
        label: &'a str,
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

/// Who is told, for work that goes on whoever waits for it.
pub type Watcher = Arc<dyn Progress>;

/// Tells nobody.
#[derive(Debug)]
pub struct Untold;

impl Untold {
    /// As a watcher.
    pub fn watcher() -> Watcher {
        Arc::new(Self)
    }
}

impl Progress for Untold {
    fn event(&self, _: Event<'_>) {}
}

/// A reader of which it is told how far it came.
pub(super) struct Told<'a, R> {
    inner: R,
    progress: &'a dyn Progress,
}

impl<'a, R: io::Read> Told<'a, R> {
    /// From its beginning on.
    pub(super) fn reading(
        what: &str,
        size: Option<u64>,
        inner: R,
        progress: &'a dyn Progress,
    ) -> Self {
        progress.event(Event::Reading { what, size });
        Self { inner, progress }
    }
}

impl<R: io::Read> io::Read for Told<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        let bytes = read as u64;
        self.progress.event(Event::Read { bytes });
        Ok(read)
    }
}

/// Everybody who waits for the same image.
#[derive(Default)]
pub struct Audience(Mutex<Vec<Watcher>>);

impl Audience {
    /// One more; who comes late hears what is still to come.
    pub fn join(&self, watcher: &Watcher) {
        self.all().push(Arc::clone(watcher));
    }

    fn all(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Audience {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Audience")
    }
}

impl Progress for Audience {
    fn event(&self, event: Event<'_>) {
        for watcher in self.all().iter() {
            watcher.event(event);
        }
    }
}

/// Lines in the log, for a daemon.
#[derive(Debug)]
pub struct Logged {
    /// The image.
    pub image: String,
}

impl Logged {
    /// As a watcher.
    pub fn watcher(image: &str) -> Watcher {
        Arc::new(Self {
            image: image.to_owned(),
        })
    }
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
            Event::Reading { what, size } => {
                tracing::debug!(image, what, size, "importing");
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
            Event::Step {
                number,
                all,
                label,
                done,
            } => tracing::info!(image, number, all, label, done, "building an image"),
            Event::Storing { label } => tracing::debug!(image, label, "storing a step of a build"),
            // What programs print is never logged.
            Event::Fetched { .. } | Event::Read { .. } | Event::Said { .. } => {}
        }
    }
}
