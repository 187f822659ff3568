//! Images that are being made ready: each once, however many wait for it, and to its end, whoever gives up waiting.

use crate::runtimes::images::{Audience, Logged, Watcher};
use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// What came of it; in words where nothing.
pub(super) type Made = Shared<BoxFuture<'static, Result<(), String>>>;

/// All that is being made ready. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Once(Arc<Inside>);

#[derive(Debug, Default)]
struct Inside {
    /// By what it is; held only to look and to put.
    running: Mutex<HashMap<String, (Made, Arc<Audience>)>>,
    /// Who does it; likewise.
    tasks: Mutex<JoinSet<()>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Once {
    /// Has `what` made, or joins those who wait for it. The log calls it `label`.
    pub(super) fn make<F>(
        &self,
        what: String,
        label: &str,
        progress: &Watcher,
        work: impl FnOnce(Arc<Audience>) -> F + Send + 'static,
    ) -> Made
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        let mut running = lock(&self.0.running);
        if let Some((made, audience)) = running.get(&what) {
            audience.join(progress);
            return made.clone();
        }
        let audience = Arc::new(Audience::default());
        audience.join(&Logged::watcher(label));
        audience.join(progress);
        let (done, told) = oneshot::channel();
        let made: Made = told
            .map(|told| told.unwrap_or_else(|_| Err("the service is ending".to_owned())))
            .boxed()
            .shared();
        running.insert(what.clone(), (made.clone(), Arc::clone(&audience)));
        drop(running);
        let (theirs, label) = (self.clone(), label.to_owned());
        let mut tasks = lock(&self.0.tasks);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(async move {
            let gone = Gone(&theirs, &what);
            let outcome = work(audience).await;
            if let Err(why) = &outcome {
                tracing::warn!(image = label, why, "an image could not be made ready");
            }
            drop(gone);
            let _ = done.send(outcome);
        });
        made
    }

    /// Ends what is being made.
    pub(super) async fn end(&self) {
        let mut tasks = std::mem::take(&mut *lock(&self.0.tasks));
        tasks.shutdown().await;
    }
}

/// Whatever becomes of the work, also a panic: who comes next has it made anew.
struct Gone<'a>(&'a Once, &'a str);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        lock(&self.0.0.running).remove(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::images::Untold;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn it_is_made_once_for_all_who_wait_and_to_its_end() {
        let (once, untold) = (Once::default(), Untold::watcher());
        let (times, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let ask = |what: &str| {
            let (times, gate) = (Arc::clone(&times), Arc::clone(&gate));
            once.make(what.to_owned(), what, &untold, move |_| async move {
                times.fetch_add(1, Ordering::Relaxed);
                let _permit = gate.acquire().await.map_err(|error| error.to_string())?;
                Ok(())
            })
        };
        let (one, two, other) = (ask("a"), ask("a"), ask("b"));
        // One gives up waiting.
        drop(one);
        gate.add_permits(1);
        assert_eq!(two.await, Ok(()));
        assert_eq!(other.await, Ok(()));
        assert_eq!(times.load(Ordering::Relaxed), 2);
        // What is done is made anew for who comes later.
        assert_eq!(ask("a").await, Ok(()));
        assert_eq!(times.load(Ordering::Relaxed), 3);
        let stuck = once.make("c".to_owned(), "c", &untold, |_| std::future::pending());
        once.end().await;
        assert_eq!(stuck.await, Err("the service is ending".to_owned()));
    }

    #[tokio::test]
    async fn work_that_panics_is_not_waited_for_for_ever() {
        let (once, untold) = (Once::default(), Untold::watcher());
        let broken = once.make("a".to_owned(), "a", &untold, |_| async {
            panic!("on purpose")
        });
        assert!(broken.await.is_err());
        let again = once.make("a".to_owned(), "a", &untold, |_| async { Ok(()) });
        assert_eq!(again.await, Ok(()));
    }
}
