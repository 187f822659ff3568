//! From a recipe to an image, in sandboxes like any other: each step runs in a fresh one over what the steps before left,
//! and what it changed becomes a layer of the image store once all its processes have ended.
//!
//! States of a build are in the store under names of their own, so that a build that fails, is cancelled or loses its host
//! goes on behind the last step that was done. Package caches are the work directory of a build's sandboxes: one directory
//! for each recipe, so that what runs in one recipe's build cannot prepare anything for another's.

mod caches;
mod output;

pub use caches::{ForgottenCaches, forget_caches};

use super::image::{here, named};
use super::{Inner, create, ending, lock};
use crate::backends::{
    HostWorkspace, ImageDefaults, PrepareError, PreparedImage, SandboxSpec, Start,
};
use crate::clock::{Clock as _, SystemClock};
use crate::id::SandboxId;
use crate::limits::{BUILD_CA_BYTES_MAX, BUILD_OUTPUT_BYTES_MAX, CONNECT_SECONDS_MAX};
use crate::runtimes::build::BuildSettings;
use crate::runtimes::environment::PATH;
use crate::runtimes::images::digest::Digest;
use crate::runtimes::images::reference::Reference;
use crate::runtimes::images::{
    CancelOnDrop, Event, Image, ImageError, Lineage, Outcome, Progress, Watcher,
};
use crate::runtimes::recipe::{BuildPlan, BuildStep, CACHE_DIR, Recipe};
use caches::Caches;
use output::Heard;
use sandboxd_protocol::client::{Client, Output};
use sandboxd_protocol::message::{Ended, Exit, OutputLimit, PathRule, Run};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, timeout, timeout_at};

/// The file of certificates, and the words about it for Debian's installer, where caches are mounted.
const CA_FILE: &str = "ca.pem";
const APT_FILE: &str = "apt.conf";
/// What programs ask for certificates other than the system's.
const CA_VARIABLES: &[&str] = &[
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "PIP_CERT",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
];

/// What builds share.
#[derive(Debug)]
pub(super) struct Builds {
    settings: BuildSettings,
    caches: Caches,
    /// Sandboxes of builds; held only to look and to put.
    sandboxes: Mutex<BTreeSet<SandboxId>>,
    /// What was built since the start; likewise.
    fresh: Mutex<BTreeSet<Digest>>,
}

impl Builds {
    pub(super) fn new(state_dir: &Path, settings: BuildSettings) -> Self {
        let builds = Self {
            settings,
            caches: Caches::of(state_dir),
            sandboxes: Mutex::new(BTreeSet::new()),
            fresh: Mutex::new(BTreeSet::new()),
        };
        builds.caches.tidy(SystemClock.now());
        builds
    }

    /// Whether a sandbox is a build's.
    pub(super) fn has(&self, id: &SandboxId) -> bool {
        lock(&self.sandboxes).contains(id)
    }

    pub(super) fn forget(&self, id: &SandboxId) {
        lock(&self.sandboxes).remove(id);
    }

    fn certificates(&self) -> Result<Option<Vec<u8>>, String> {
        let Some(path) = &self.settings.ca_file else {
            return Ok(None);
        };
        let read = fs::File::open(path).and_then(|file| {
            let mut bytes = Vec::new();
            file.take(BUILD_CA_BYTES_MAX).read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        read.map(Some)
            .map_err(|error| format!("build_ca_file {}: {error}", path.display()))
    }
}

fn remove(tree: &Path) {
    if let Err(errno) = sandboxd_jail::remains::remove_tree(tree) {
        tracing::warn!(path = %tree.display(), %errno, "a package cache could not be removed");
    }
}

/// The image of a recipe, built unless it is here.
pub(super) async fn built(
    inner: &Arc<Inner>,
    recipe: &Recipe,
    label: &str,
    progress: &Watcher,
) -> Result<PreparedImage, PrepareError> {
    let broken = |cause: String| PrepareError::Broken {
        image: label.to_owned(),
        cause,
    };
    let plan = recipe.plan().map_err(|error| broken(error.to_string()))?;
    if let Some(path) = &recipe.base_path {
        let (base, path) = (&plan.base_image, path.display());
        return Err(PrepareError::Missing {
            image: label.to_owned(),
            how: format!(
                "{base} stands for {path} here, and a build starts from an image: sandboxd image import {path} --name \
                 {base} makes it one, and the setting images then leaves it out"
            ),
        });
    }
    let base = named(inner, &plan.base_image, label, progress).await?;
    let base_id = create::image_key(&base).to_owned();
    let key = plan.key(&base_id);
    let lineage = Lineage::of(&plan.name, plan.user);
    let name = lineage
        .name(&key)
        .map_err(|error| broken(error.to_string()))?;
    let may_be_old = recipe.cache_image || lock(&inner.builds.fresh).contains(&key);
    if may_be_old && let Some(found) = here(inner, &name, label).await? {
        return Ok(found);
    }
    let theirs = Arc::clone(inner);
    let work = Work {
        plan,
        lineage,
        anew: !recipe.cache_image,
    };
    let text = format!("recipe {} ({})", recipe.name, key.short());
    let once = &inner.pulls.once;
    let done = once.make(text.clone(), &text, progress, move |audience| async move {
        let seconds = theirs.builds.settings.seconds_max;
        let building = work.run(&theirs, base, &*audience);
        match timeout(Duration::from_secs(seconds), building).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("not built within {seconds} s (build_timeout)")),
        }
    });
    done.await.map_err(broken)?;
    let found = here(inner, &name, label).await?;
    found.ok_or_else(|| broken("it was removed at once".to_owned()))
}

/// The image of a recipe, if it is here as [`built`] would take it: nothing is fetched or built.
pub(super) async fn local(
    inner: &Arc<Inner>,
    recipe: &Recipe,
    label: &str,
) -> Result<Option<PreparedImage>, PrepareError> {
    let broken = |cause: String| PrepareError::Broken {
        image: label.to_owned(),
        cause,
    };
    if recipe.base_path.is_some() {
        return Ok(None);
    }
    let plan = recipe.plan().map_err(|error| broken(error.to_string()))?;
    let base = Reference::parse(&plan.base_image).map_err(|error| broken(error.to_string()))?;
    let Some(base) = here(inner, &base, label).await? else {
        return Ok(None);
    };
    let key = plan.key(create::image_key(&base));
    if !recipe.cache_image && !lock(&inner.builds.fresh).contains(&key) {
        return Ok(None);
    }
    let name = Lineage::of(&plan.name, plan.user).name(&key);
    let name = name.map_err(|error| broken(error.to_string()))?;
    here(inner, &name, label).await
}

/// One build.
struct Work {
    plan: BuildPlan,
    lineage: Lineage,
    anew: bool,
}

/// How far a build is.
struct State {
    id: Digest,
    image: PreparedImage,
}

impl Work {
    async fn run(
        self,
        inner: &Arc<Inner>,
        base: PreparedImage,
        progress: &dyn Progress,
    ) -> Result<(), String> {
        let cancel = CancelOnDrop::default();
        let turn = {
            let (images, lineage) = (inner.pulls.images.clone(), self.lineage.clone());
            let cancel = cancel.0.clone();
            off(move || images.building(&lineage, &cancel)).await?
        };
        let base_id =
            Digest::parse(create::image_key(&base)).ok_or("its base image has no digest")?;
        let keys = self.plan.keys(&base_id.to_string());
        let names: Result<Vec<Reference>, _> =
            keys.iter().map(|key| self.lineage.name(key)).collect();
        let names = names.map_err(|error| error.to_string())?;
        let base_env = base.defaults().map(|defaults| defaults.env.clone());
        let outcome = Outcome {
            env: self.plan.image_env(&base_env.unwrap_or_default()),
            user: self.plan.user,
        };
        let mut state = State {
            id: base_id,
            image: base,
        };
        let mut done = 0;
        for (number, name) in names.iter().enumerate().skip(1) {
            // The last of them is the image itself.
            if !self.anew
                && let Some(found) = found(inner, name).await?
            {
                (state, done) = (found, number);
            }
        }
        let all = self.plan.steps.len();
        for (index, step) in self.plan.steps.iter().enumerate() {
            let number = index + 1;
            progress.event(Event::Step {
                number,
                all,
                label: &step.label,
                done: number <= done,
            });
            if number <= done {
                continue;
            }
            let name = names.get(number).ok_or("a step has no name")?;
            let said = (number == all).then_some(&outcome);
            let step = Step {
                inner,
                work: &self,
                step,
            };
            let id = step.run(&state, name, said, &cancel, progress).await;
            id.map_err(|cause| format!("step {number} of {all}, {}: {cause}", step.step.label))?;
            state = found(inner, name).await?.ok_or("it was removed at once")?;
        }
        if all == 0 {
            let (images, from) = (inner.pulls.images.clone(), state.id.clone());
            let name = names.first().ok_or("it has no name")?.clone();
            off(move || images.add_state(&from, None, Some(&outcome), &name)).await?;
        }
        if let Some(key) = keys.last() {
            lock(&inner.builds.fresh).insert(key.clone());
        }
        self.supersede(inner, names).await;
        drop(turn);
        Ok(())
    }

    /// What this build takes the place of goes, as far as nobody uses it.
    async fn supersede(&self, inner: &Arc<Inner>, names: Vec<Reference>) {
        let (images, lineage) = (inner.pulls.images.clone(), self.lineage.clone());
        let state_dir = inner.state_dir.clone();
        let gone = off(move || {
            let kept = super::kept_images(&state_dir);
            images.supersede(&lineage, &names.into_iter().collect(), &kept)
        });
        match gone.await {
            Ok(0) => {}
            Ok(gone) => tracing::info!(recipe = self.plan.name, gone, "removed former builds"),
            Err(error) => tracing::info!(recipe = self.plan.name, error, "former builds stay"),
        }
    }
}

/// A state of a build, if it is here.
async fn found(inner: &Arc<Inner>, name: &Reference) -> Result<Option<State>, String> {
    let (images, name) = (inner.pulls.images.clone(), name.clone());
    let image = off(move || match images.find(&name)? {
        Some(id) => images.open(&id),
        None => Ok(None),
    });
    Ok(image.await?.map(|image: Image| State {
        id: image.id.clone(),
        image: super::image::prepared(image),
    }))
}

/// Work that blocks, off the async threads.
async fn off<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, String> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())
}

/// One step of a build, about to be taken.
#[derive(Clone, Copy)]
struct Step<'a> {
    inner: &'a Arc<Inner>,
    work: &'a Work,
    step: &'a BuildStep,
}

/// A sandbox of a build: gone when this is, whatever ends the build.
struct Workbench<'a> {
    inner: &'a Arc<Inner>,
    id: SandboxId,
}

impl Drop for Workbench<'_> {
    fn drop(&mut self) {
        ending::destroy_later(self.inner, self.id.clone());
    }
}

impl Step<'_> {
    async fn run(
        self,
        state: &State,
        name: &Reference,
        outcome: Option<&Outcome>,
        cancel: &CancelOnDrop,
        progress: &dyn Progress,
    ) -> Result<(), String> {
        let builds = &self.inner.builds;
        let deadline = Instant::now() + Duration::from_secs(builds.settings.seconds_max);
        let certificates = builds.certificates()?;
        let cache = builds.caches.take(&self.work.lineage);
        let cache = cache.map_err(|error| format!("its package caches: {error}"))?;
        let spec = self.spec(&state.image, cache.clone(), certificates.is_some());
        let id = SandboxId::generate();
        lock(&builds.sandboxes).insert(id.clone());
        let bench = Workbench {
            inner: self.inner,
            id,
        };
        let running = create::create(self.inner, &bench.id, &spec, Start::Fresh).await;
        let running = running.map_err(|error| error.to_string())?;
        let patience = Duration::from_secs(CONNECT_SECONDS_MAX);
        let client = timeout(patience, Client::connect(running.link)).await;
        let (client, _) = client
            .map_err(|_| "its sandbox did not answer".to_owned())?
            .map_err(|error| error.to_string())?;
        if let Some(certificates) = certificates {
            give(&client, CA_FILE, certificates).await?;
            let words = format!("Acquire::https::CAInfo \"{CACHE_DIR}/{CA_FILE}\";\n");
            give(&client, APT_FILE, words.into_bytes()).await?;
        }
        let mut heard = Heard::default();
        let exit = timeout_at(deadline, self.carry_out(&client, &mut heard, progress)).await;
        let exit = exit.map_err(|_| "not done in time".to_owned())??;
        if exit.ended == Ended::Disk {
            // They count with it, and may be what filled it.
            let cache = cache.clone();
            let _ = tokio::task::spawn_blocking(move || remove(&cache)).await;
        }
        if let Some(how) = failure(exit) {
            return Err(format!("{how}{}", heard.tail()));
        }
        client.close();
        ending::halt(self.inner, &bench.id).await?;
        progress.event(Event::Storing {
            label: &self.step.label,
        });
        let range = self
            .inner
            .sandbox(&bench.id)
            .and_then(|sandbox| sandbox.range);
        let upper = self.inner.layers.scratch_upper(&bench.id);
        let (images, from) = (self.inner.pulls.images.clone(), state.id.clone());
        let (name, outcome, cancel) = (name.clone(), outcome.cloned(), cancel.0.clone());
        off(move || images.add_changes(&from, &upper, range, outcome.as_ref(), &name, &cancel))
            .await?;
        Ok(())
    }

    fn spec(&self, image: &PreparedImage, cache: PathBuf, certificates: bool) -> SandboxSpec {
        let settings = &self.inner.builds.settings;
        let mut env = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        let of_image = image.defaults().into_iter();
        env.extend(of_image.flat_map(|ImageDefaults { env, .. }| env.clone()));
        env.extend(BuildPlan::step_env(true));
        if certificates {
            let file = format!("{CACHE_DIR}/{CA_FILE}");
            let all = CA_VARIABLES.iter();
            env.extend(all.map(|&name| (name.to_owned(), file.clone())));
            env.insert("APT_CONFIG".to_owned(), format!("{CACHE_DIR}/{APT_FILE}"));
        }
        env.extend(settings.env.clone());
        SandboxSpec {
            image: image.clone(),
            env,
            work_dir: CACHE_DIR.to_owned(),
            workspace: Some(HostWorkspace {
                path: cache,
                managed: true,
            }),
            hostname: "build".to_owned(),
            session: None,
            memory_bytes: settings.memory_bytes,
            memory_swap_bytes: None,
            cpus: settings.cpus,
            cpu_shares: None,
            pids: settings.pids,
            disk_bytes: settings.disk_bytes,
            disk_files: None,
            tmpfs_bytes: None,
            network: settings.network.clone(),
            oci_runtime: None,
            user: None,
            group: None,
            keep_layer: false,
            allow_unenforced: settings.allow_unenforced.clone(),
            unmet: Vec::new(),
        }
    }

    async fn carry_out(
        &self,
        client: &Client,
        heard: &mut Heard,
        progress: &dyn Progress,
    ) -> Result<Exit, String> {
        let argv = self.step.argv().into_iter().map(String::into_bytes);
        let run = Run {
            argv: argv.collect(),
            env: Vec::new(),
            cwd: Some(b"/".to_vec()),
            stdin: false,
            timeout_millis: None,
            output: OutputLimit::Stop(BUILD_OUTPUT_BYTES_MAX),
        };
        let lost = |error: &dyn std::fmt::Display| format!("its sandbox has ended: {error}");
        let (_input, mut events) = client.run(run).await.map_err(|error| lost(&error))?;
        loop {
            match events.next().await.map_err(|error| lost(&error))? {
                Some(Output::Started) => {}
                Some(Output::Stdout(bytes) | Output::Stderr(bytes)) => {
                    heard.take(&bytes, |line| progress.event(Event::Said { line }));
                }
                Some(Output::NotStarted(why)) => {
                    return Err(format!(
                        "the base image has no /bin/sh that starts: {why:?}"
                    ));
                }
                Some(Output::Exited(exit)) => return Ok(exit),
                None => return Err(lost(&"nothing was said of its end")),
            }
        }
    }
}

/// A file beside the package caches, written by the guest: what else is there is none of the daemon's to trust.
async fn give(client: &Client, name: &str, content: Vec<u8>) -> Result<(), String> {
    let path = format!("{CACHE_DIR}/{name}");
    let written = client.write(
        PathRule::Follow,
        path.as_bytes(),
        content.into(),
        0o644,
        false,
    );
    let written = timeout(Duration::from_secs(CONNECT_SECONDS_MAX), written).await;
    written
        .map_err(|_| format!("{path}: not written in time"))?
        .map_err(|error| format!("{path}: {error}"))
}

/// What went wrong with a run, if anything did.
fn failure(exit: Exit) -> Option<String> {
    match (exit.ended, exit.code) {
        (Ended::Itself, 0) => None,
        (Ended::Itself, code) => Some(format!("exit code {code}")),
        (Ended::Memory, _) => Some("ended for memory (build_memory)".to_owned()),
        (Ended::Disk, _) => Some("its disk is full (build_disk)".to_owned()),
        (Ended::Output, _) => Some("it printed without end".to_owned()),
        (Ended::Timeout | Ended::Stopped, _) => Some("it was ended".to_owned()),
    }
}
