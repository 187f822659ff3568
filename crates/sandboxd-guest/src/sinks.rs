//! Streams of runs that are over, which programs in the background still write to. Closing them would kill a server that
//! logs to its stdout, so they are read and thrown away until their writers have gone.

use crate::limits::{SINK_READ_BYTES, SINKS_MAX};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::task::AbortHandle;

/// All such streams; the oldest is closed when there are too many.
#[derive(Debug, Default)]
pub(crate) struct Sinks(Mutex<VecDeque<AbortHandle>>);

impl Sinks {
    /// Takes a stream over.
    pub(crate) fn take(&self, mut stream: Receiver) {
        let sink = tokio::spawn(async move {
            let mut bytes = vec![0; SINK_READ_BYTES];
            while stream.read(&mut bytes).await.is_ok_and(|read| read > 0) {}
        });
        let mut sinks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|sink| !sink.is_finished());
        sinks.push_back(sink.abort_handle());
        if sinks.len() > SINKS_MAX
            && let Some(oldest) = sinks.pop_front()
        {
            oldest.abort();
        }
    }
}

impl Drop for Sinks {
    fn drop(&mut self) {
        let sinks = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        sinks.iter().for_each(AbortHandle::abort);
    }
}
