//! Building a recipe's image: by BuildKit where the engine has it, which keeps the packages that were fetched for the next
//! build; by the engine's older builder otherwise.

use super::dockerfile::{self, Base};
use super::{Inner, LABEL_KEY, LABEL_RECIPE, lock};
use crate::backends::Network;
use crate::backends::docker::connect::{failed, printable};
use crate::limits::{ENGINE_BUILD_AGAIN_SECONDS, ENGINE_BUILD_LINES_KEPT};
use crate::runtimes::images::{Event, Progress};
use crate::runtimes::recipe::BuildPlan;
use bollard::errors::Error;
use bollard::models::{BuildInfo, BuildInfoAux};
use bollard::query_parameters::{BuildImageOptionsBuilder, BuilderVersion};
use bytes::Bytes;
use futures::StreamExt as _;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// What is to be built.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) plan: BuildPlan,
    pub(super) base: Base,
    /// The digest that names the result.
    pub(super) key: String,
    /// The engine's name for it.
    pub(super) tag: String,
}

/// Builds it. What fails is tried once more: a first build on an engine can fail for no reason of its own.
pub(super) async fn build(
    inner: &Inner,
    order: &Order,
    progress: &dyn Progress,
) -> Result<(), String> {
    // Builders take all of the engine's host, and the directory that they keep is one.
    let _turn = inner.images.building.acquire().await;
    let why = match attempt(inner, order, progress).await {
        Ok(()) => return Ok(()),
        Err(why) => why,
    };
    let wait = Duration::from_secs(ENGINE_BUILD_AGAIN_SECONDS);
    progress.event(Event::Again { why: &why, wait });
    tokio::time::sleep(wait).await;
    attempt(inner, order, progress).await
}

async fn attempt(inner: &Inner, order: &Order, progress: &dyn Progress) -> Result<(), String> {
    let buildkit = inner.engine.abilities().buildkit;
    let text = dockerfile::render(&order.plan, &order.base, buildkit)
        .map_err(|why| format!("the base image {}: {why}", order.plan.base_image))?;
    let context = dockerfile::context(&text).map_err(|error| error.to_string())?;
    let labels = [
        (LABEL_RECIPE, order.plan.name.as_str()),
        (LABEL_KEY, order.key.as_str()),
        (super::LABEL_BASE, order.base.id.as_str()),
    ];
    let mut options = BuildImageOptionsBuilder::default()
        .dockerfile("Dockerfile")
        .t(&order.tag)
        .rm(true)
        .forcerm(true)
        .labels(&HashMap::from(labels));
    if inner.images.builds.network == Network::None {
        options = options.networkmode("none");
    }
    if buildkit {
        let session = crate::id::SandboxId::generate().to_string();
        options = options
            .version(BuilderVersion::BuilderBuildKit)
            .session(&session);
    }
    let body = bollard::body_full(Bytes::from(context));
    let client = inner.engine.client();
    let mut told = client.build_image(options.build(), None, Some(body));
    let mut listener = Listener::new(&order.plan, progress);
    while let Some(step) = told.next().await {
        match step {
            Ok(step) => listener.hear(&step),
            Err(error) => {
                return Err(listener.explain(&why(&error)));
            }
        }
    }
    drop(told);
    lock(&inner.images.built).insert(order.key.clone());
    Ok(())
}

/// Why a builder stopped. Both repeat the whole program that failed, and end with how it ended.
fn why(error: &Error) -> String {
    if let Error::DockerStreamError { error } = error {
        for mark in ["exit code: ", "returned a non-zero code: "] {
            if let Some((_, code)) = error.rsplit_once(mark) {
                return format!("it ended with exit code {}", printable(code));
            }
        }
    }
    failed("building the image", error).to_string()
}

/// Hears both builders.
struct Listener<'a> {
    plan: &'a BuildPlan,
    progress: &'a dyn Progress,
    /// How many steps have begun.
    begun: usize,
    /// BuildKit's names of those.
    seen: HashSet<String>,
    /// The last lines that were printed.
    last: VecDeque<String>,
}

impl<'a> Listener<'a> {
    fn new(plan: &'a BuildPlan, progress: &'a dyn Progress) -> Self {
        Self {
            plan,
            progress,
            begun: 0,
            seen: HashSet::new(),
            last: VecDeque::new(),
        }
    }

    fn hear(&mut self, step: &BuildInfo) {
        if let Some(text) = &step.stream {
            for line in text.lines() {
                // The older builder numbers all instructions; those that run something are ours.
                match line
                    .strip_prefix("Step ")
                    .and_then(|rest| rest.split_once(" : "))
                {
                    Some((_, instruction)) if instruction.starts_with("RUN ") => self.begins(false),
                    Some(_) => {}
                    None => self.said(line),
                }
            }
        }
        let Some(BuildInfoAux::BuildKit(status)) = &step.aux else {
            return;
        };
        for vertex in &status.vertexes {
            let runs = vertex.name.contains("] RUN ");
            if runs
                && (vertex.cached || vertex.started.is_some())
                && self.seen.insert(vertex.digest.clone())
            {
                self.begins(vertex.cached);
            }
        }
        for log in &status.logs {
            for line in String::from_utf8_lossy(&log.msg).lines() {
                self.said(line);
            }
        }
    }

    fn begins(&mut self, done: bool) {
        let Some(step) = self.plan.steps.get(self.begun) else {
            return;
        };
        self.begun += 1;
        self.progress.event(Event::Step {
            number: self.begun,
            all: self.plan.steps.len(),
            label: &step.label,
            done,
        });
    }

    fn said(&mut self, line: &str) {
        let line = printable(line);
        if line.is_empty() || line.starts_with("---> ") {
            return;
        }
        self.progress.event(Event::Said { line: &line });
        if self.last.len() == ENGINE_BUILD_LINES_KEPT {
            self.last.pop_front();
        }
        self.last.push_back(line);
    }

    /// A failure, with what was printed before it.
    fn explain(&self, why: &str) -> String {
        let at = match self.plan.steps.get(self.begun.saturating_sub(1)) {
            Some(step) if self.begun > 0 => format!("{}: ", step.label),
            _ => String::new(),
        };
        let lines: Vec<&str> = self.last.iter().map(String::as_str).collect();
        match lines.is_empty() {
            true => format!("{at}{why}"),
            false => format!("{at}{why}; it printed: {}", lines.join(" | ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::recipe::Recipe;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Progress for Heard {
        fn event(&self, event: Event<'_>) {
            self.0.lock().unwrap().push(format!("{event:?}"));
        }
    }

    fn plan() -> BuildPlan {
        let recipe = Recipe {
            setup_commands: vec!["one".to_owned(), "two".to_owned()],
            ..Recipe::of("x", "base")
        };
        recipe.plan().unwrap()
    }

    #[test]
    fn the_older_builder_is_understood() {
        let (plan, heard) = (plan(), Heard::default());
        let mut listener = Listener::new(&plan, &heard);
        for text in [
            "Step 1/6 : FROM base\n",
            " ---> 0123\n",
            "Step 4/6 : RUN [\"/bin/sh\"]\n",
            "hello\n",
            "Step 5/6 : RUN [\"/bin/sh\"]\n",
        ] {
            listener.hear(&BuildInfo {
                stream: Some(text.to_owned()),
                ..BuildInfo::default()
            });
        }
        let said = listener.explain("exit code 1");
        assert_eq!(
            said,
            "set-up command 2 of 2: exit code 1; it printed: hello"
        );
        let heard = heard.0.into_inner().unwrap();
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[2].contains("number: 2, all: 2"));
    }

    #[test]
    fn a_program_that_failed_is_not_repeated() {
        for error in [
            "executor failed running [/bin/sh -c x exit code: 1 y]: exit code: 7",
            "The command '/bin/sh -c x' returned a non-zero code: 7",
        ] {
            let error = Error::DockerStreamError {
                error: error.to_owned(),
            };
            assert_eq!(why(&error), "it ended with exit code 7");
        }
        let other = Error::DockerStreamError {
            error: "no space left on device".to_owned(),
        };
        assert!(why(&other).contains("no space left"));
    }

    #[test]
    fn no_more_than_the_last_lines_are_kept() {
        let (plan, heard) = (plan(), Heard::default());
        let mut listener = Listener::new(&plan, &heard);
        for number in 0..1_000 {
            listener.said(&format!("line {number}"));
        }
        assert_eq!(listener.last.len(), ENGINE_BUILD_LINES_KEPT);
        assert!(listener.explain("x").ends_with("line 999"));
    }
}
