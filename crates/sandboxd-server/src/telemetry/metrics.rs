//! What is counted and timed, under the names that operators' dashboards know. Each service has a registry of its own;
//! there is no global one.
//!
//! A label has few values, all of them chosen by the operator (an alias) or by this program (an outcome, a route, a code):
//! never a session's id, a tenant, a path or anything else that a client can make up.

use super::process;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The type of what [`Metrics::render`] gives.
pub const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

type Text = Cow<'static, str>;
type Labels<const N: usize> = [(&'static str, Text); N];
type Timings<const N: usize> = Family<Labels<N>, Histogram, Buckets>;
type Counts<const N: usize> = Family<Labels<N>, Counter>;
type Level = Gauge<i64, AtomicI64>;

/// Upper bounds in seconds, from a small operation on a socket to a run at its ceiling.
const SHORT: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
const LONG: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    120.0, 300.0, 600.0,
];

/// Makes the histograms of one family.
#[derive(Debug, Clone, Copy)]
struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// How a sandbox's start came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It runs.
    Ok,
    /// It does not.
    Failed,
}

impl Start {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
        }
    }
}

/// How a run came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunOutcome {
    /// Exit code 0.
    Ok,
    /// Another exit code, or a program that could not start.
    Nonzero,
    /// Its deadline came.
    TimedOut,
    /// Too much output.
    OutputLimited,
    /// Ended for memory.
    Oom,
    /// It failed, refused a process over its ceiling.
    Pids,
    /// It was ended, or failed, for what it stored.
    Disk,
    /// Somebody stopped it.
    Stopped,
    /// Its sandbox went, or it never came to the program.
    Failed,
}

impl RunOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Nonzero => "nonzero",
            Self::TimedOut => "timed_out",
            Self::OutputLimited => "output_limited",
            Self::Oom => "oom",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// Why a session lost its sandbox, or ended, without anybody having asked for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// Put to sleep: another one needed the slot.
    Slot,
    /// Put to sleep: idle for `hibernate_after`.
    HibernateAfter,
    /// Closed: another one needed room among the open sessions.
    OpenCeiling,
    /// Closed: idle for `idle_timeout`.
    Idle,
    /// Closed: its own time was over.
    Expired,
}

impl Eviction {
    const fn name(self) -> &'static str {
        match self {
            Self::Slot => "slot",
            Self::HibernateAfter => "hibernate_after",
            Self::OpenCeiling => "open_ceiling",
            Self::Idle => "idle",
            Self::Expired => "expired",
        }
    }
}

/// How many sessions there are of each kind, at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionStates {
    /// A sandbox is being made.
    pub starting: u64,
    /// A sandbox runs.
    pub resident: u64,
    /// A sandbox is being stopped.
    pub stopping: u64,
    /// Asleep.
    pub hibernated: u64,
    /// The sandbox went by itself.
    pub lost: u64,
}

/// All figures of one service.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    sessions: Family<Labels<1>, Level>,
    starts: Counts<2>,
    start_seconds: Timings<1>,
    wake_seconds: Timings<1>,
    pool_ready: Family<Labels<1>, Level>,
    pool_hits: Counts<1>,
    pool_misses: Counts<1>,
    run_seconds: Timings<1>,
    run_queue_seconds: Histogram,
    runs_in_flight: Level,
    file_op_seconds: Timings<1>,
    http_seconds: Timings<3>,
    evictions: Counts<1>,
    refusals: Counts<1>,
    oom_kills: Counter,
    panics: Counter,
    store_seconds: Timings<2>,
    workspace_bytes: Level,
    process: ProcessFigures,
}

#[derive(Debug, Default)]
struct ProcessFigures {
    cpu_seconds: Counter<f64, AtomicU64>,
    resident_bytes: Level,
    virtual_bytes: Level,
    open_fds: Level,
    max_fds: Level,
    threads: Level,
    start_seconds: Gauge<f64, AtomicU64>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            sessions: Family::default(),
            starts: Family::default(),
            start_seconds: Family::new_with_constructor(Buckets(LONG)),
            wake_seconds: Family::new_with_constructor(Buckets(LONG)),
            pool_ready: Family::default(),
            pool_hits: Family::default(),
            pool_misses: Family::default(),
            run_seconds: Family::new_with_constructor(Buckets(LONG)),
            run_queue_seconds: Buckets(SHORT).new_metric(),
            runs_in_flight: Level::default(),
            file_op_seconds: Family::new_with_constructor(Buckets(SHORT)),
            http_seconds: Family::new_with_constructor(Buckets(LONG)),
            evictions: Family::default(),
            refusals: Family::default(),
            oom_kills: Counter::default(),
            panics: Counter::default(),
            store_seconds: Family::new_with_constructor(Buckets(SHORT)),
            workspace_bytes: Level::default(),
            process: ProcessFigures::default(),
        };
        let mut registry = Registry::default();
        metrics.register(registry.sub_registry_with_prefix("sandboxd"));
        metrics.process.register(&mut registry);
        metrics.registry = registry;
        metrics
    }
}

impl Metrics {
    fn register(&self, to: &mut Registry) {
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        to.register("build", "What this is", Info::new(version));
        to.register("sessions", "Sessions by state", self.sessions.clone());
        to.register(
            "session_starts",
            "First sandboxes of sessions, by runtime and outcome",
            self.starts.clone(),
        );
        to.register(
            "session_start_seconds",
            "Time to a session's first sandbox, its image and its guest's first word included",
            self.start_seconds.clone(),
        );
        to.register(
            "wake_seconds",
            "Time to another sandbox of a session that slept or whose sandbox died",
            self.wake_seconds.clone(),
        );
        to.register(
            "pool_ready",
            "Sandboxes that are kept ready and are no session's, by runtime",
            self.pool_ready.clone(),
        );
        to.register(
            "pool_hits",
            "Sessions that got a sandbox that was kept ready, by runtime",
            self.pool_hits.clone(),
        );
        to.register(
            "pool_misses",
            "Sessions of a runtime with a pool that waited for a sandbox all the same, by runtime",
            self.pool_misses.clone(),
        );
        to.register(
            "run_seconds",
            "Runs and commands, from the request to their end, a wake included",
            self.run_seconds.clone(),
        );
        to.register(
            "run_queue_seconds",
            "How long runs waited for their turn",
            self.run_queue_seconds.clone(),
        );
        to.register(
            "runs_in_flight",
            "Programs that run now",
            self.runs_in_flight.clone(),
        );
        to.register(
            "file_op_seconds",
            "File operations, by kind",
            self.file_op_seconds.clone(),
        );
        to.register(
            "http_request_duration_seconds",
            "Requests until their answer's head, by method, route and status",
            self.http_seconds.clone(),
        );
        to.register(
            "evictions",
            "Sessions put to sleep or closed without being asked to, by reason",
            self.evictions.clone(),
        );
        to.register(
            "refusals",
            "Requests refused, by the word in X-Error-Code",
            self.refusals.clone(),
        );
        to.register(
            "oom_kills",
            "Programs that the kernel ended for memory, as far as was seen",
            self.oom_kills.clone(),
        );
        to.register(
            "panics",
            "Mistakes of this program that ended one request or one operation",
            self.panics.clone(),
        );
        to.register(
            "store_seconds",
            "Writes and reads of the store, by operation and outcome",
            self.store_seconds.clone(),
        );
        to.register(
            "workspace_bytes",
            "Bytes that running sandboxes have stored in workspaces and layers, as last counted",
            self.workspace_bytes.clone(),
        );
    }

    /// A session's first sandbox was made, or was not.
    pub fn started(&self, runtime: &str, outcome: Start, took: Duration) {
        let outcome = Text::from(outcome.name());
        let labels = [
            ("runtime", Text::from(runtime.to_owned())),
            ("outcome", outcome.clone()),
        ];
        self.starts.get_or_create(&labels).inc();
        let labels = [("outcome", outcome)];
        self.start_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A session got another sandbox, or did not.
    pub fn woke(&self, outcome: Start, took: Duration) {
        let labels = [("outcome", Text::from(outcome.name()))];
        self.wake_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// How many sandboxes are kept ready, by runtime.
    pub fn pool_holds(&self, ready: BTreeMap<String, usize>) {
        self.pool_ready.clear();
        for (runtime, count) in ready {
            let labels = [("runtime", Text::from(runtime))];
            let count = u64::try_from(count).unwrap_or(u64::MAX);
            self.pool_ready.get_or_create(&labels).set(level(count));
        }
    }

    /// A session of a runtime with a pool got its sandbox, from there or not.
    pub fn pool_asked(&self, runtime: &str, hit: bool) {
        let labels = [("runtime", Text::from(runtime.to_owned()))];
        let counts = if hit {
            &self.pool_hits
        } else {
            &self.pool_misses
        };
        counts.get_or_create(&labels).inc();
    }

    /// A run is over.
    pub fn ran(&self, outcome: RunOutcome, took: Duration) {
        let labels = [("outcome", Text::from(outcome.name()))];
        self.run_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A run's turn has come.
    pub fn queued(&self, took: Duration) {
        self.run_queue_seconds.observe(took.as_secs_f64());
    }

    /// A program runs for as long as what this gives lives.
    pub fn in_flight(&self) -> InFlight {
        self.runs_in_flight.inc();
        InFlight(self.runs_in_flight.clone())
    }

    /// A file operation is over. `op` is a name of ours.
    pub fn file_op(&self, op: &'static str, took: Duration) {
        let labels = [("op", Text::from(op))];
        self.file_op_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A request was answered. `method` and `route` are names of ours: the template, not the path.
    pub fn answered(&self, method: &'static str, route: &'static str, status: u16, took: Duration) {
        let labels = [
            ("method", Text::from(method)),
            ("route", Text::from(route)),
            ("code", Text::from(status.to_string())),
        ];
        self.http_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A session was put to sleep, or closed.
    pub fn evicted(&self, reason: Eviction) {
        let labels = [("reason", Text::from(reason.name()))];
        self.evictions.get_or_create(&labels).inc();
    }

    /// A request was refused. `code` is a word of ours.
    pub fn refused(&self, code: String) {
        let labels = [("code", Text::from(code))];
        self.refusals.get_or_create(&labels).inc();
    }

    /// The kernel ended so many programs for memory.
    pub fn oom_killed(&self, programs: u64) {
        self.oom_kills.inc_by(programs);
    }

    /// A request or an operation ended in a panic: a mistake of ours.
    pub fn panicked(&self) {
        self.panics.inc();
    }

    /// The store did something, or failed at it. `op` is a name of ours.
    pub fn stored(&self, op: &'static str, ok: bool, took: Duration) {
        let outcome = if ok { "ok" } else { "failed" };
        let labels = [("op", Text::from(op)), ("outcome", Text::from(outcome))];
        self.store_seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// What the measured workspaces hold together.
    pub fn workspaces_hold(&self, bytes: u64) {
        self.workspace_bytes.set(level(bytes));
    }

    /// Everything, as text. Reads a few small files of the kernel's: not on a thread that others wait for.
    #[must_use]
    pub fn render(&self, sessions: SessionStates) -> String {
        let states = [
            ("starting", sessions.starting),
            ("resident", sessions.resident),
            ("stopping", sessions.stopping),
            ("hibernated", sessions.hibernated),
            ("lost", sessions.lost),
        ];
        for (state, count) in states {
            let labels = [("state", Text::from(state))];
            self.sessions.get_or_create(&labels).set(level(count));
        }
        self.process.look();
        let mut text = String::new();
        // Writing into a text does not fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }
}

/// Counts as one program that runs.
#[derive(Debug)]
pub struct InFlight(Level);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn level(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl ProcessFigures {
    fn register(&self, to: &mut Registry) {
        to.register(
            "process_cpu_seconds",
            "CPU time of this process",
            self.cpu_seconds.clone(),
        );
        to.register(
            "process_resident_memory_bytes",
            "Resident memory of this process",
            self.resident_bytes.clone(),
        );
        to.register(
            "process_virtual_memory_bytes",
            "Address space of this process",
            self.virtual_bytes.clone(),
        );
        to.register(
            "process_open_fds",
            "Open descriptors of this process",
            self.open_fds.clone(),
        );
        to.register(
            "process_max_fds",
            "Most descriptors that this process may have open",
            self.max_fds.clone(),
        );
        to.register(
            "process_threads",
            "Threads of this process",
            self.threads.clone(),
        );
        to.register(
            "process_start_time_seconds",
            "When this process began, since the Unix epoch",
            self.start_seconds.clone(),
        );
    }

    /// What the kernel says now; what it does not say stays as it was.
    fn look(&self) {
        let Some(now) = process::look() else { return };
        let bits = now.cpu_seconds.to_bits();
        self.cpu_seconds.inner().store(bits, Ordering::Relaxed);
        self.resident_bytes.set(level(now.resident_bytes));
        self.virtual_bytes.set(level(now.virtual_bytes));
        self.open_fds.set(level(now.open_fds));
        self.max_fds.set(level(now.max_fds));
        self.threads.set(level(now.threads));
        self.start_seconds.set(now.start_seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_name_and_no_name_comes_twice() {
        let metrics = Metrics::default();
        metrics.started("python", Start::Ok, Duration::from_millis(6));
        metrics.woke(Start::Failed, Duration::from_millis(3));
        metrics.ran(RunOutcome::Oom, Duration::from_secs(2));
        metrics.queued(Duration::ZERO);
        metrics.file_op("read", Duration::from_micros(100));
        metrics.answered("GET", "/sessions", 200, Duration::from_micros(300));
        metrics.evicted(Eviction::Slot);
        metrics.refused("session_limit".to_owned());
        metrics.oom_killed(2);
        metrics.panicked();
        metrics.stored("put", true, Duration::from_micros(90));
        metrics.workspaces_hold(4096);
        metrics.pool_holds(BTreeMap::from([("gone".to_owned(), 1)]));
        metrics.pool_holds(BTreeMap::from([("python".to_owned(), 2)]));
        metrics.pool_asked("python", true);
        metrics.pool_asked("node", false);
        let running = metrics.in_flight();
        let text = metrics.render(SessionStates {
            resident: 3,
            hibernated: 7,
            ..SessionStates::default()
        });
        let version = env!("CARGO_PKG_VERSION");
        for line in [
            &format!("sandboxd_build_info{{version=\"{version}\"}} 1"),
            "sandboxd_sessions{state=\"resident\"} 3",
            "sandboxd_sessions{state=\"hibernated\"} 7",
            "sandboxd_sessions{state=\"starting\"} 0",
            "sandboxd_session_starts_total{runtime=\"python\",outcome=\"ok\"} 1",
            "sandboxd_session_start_seconds_count{outcome=\"ok\"} 1",
            "sandboxd_wake_seconds_count{outcome=\"failed\"} 1",
            "sandboxd_pool_ready{runtime=\"python\"} 2",
            "sandboxd_pool_hits_total{runtime=\"python\"} 1",
            "sandboxd_pool_misses_total{runtime=\"node\"} 1",
            "sandboxd_run_seconds_count{outcome=\"oom\"} 1",
            "sandboxd_run_queue_seconds_count 1",
            "sandboxd_runs_in_flight 1",
            "sandboxd_file_op_seconds_count{op=\"read\"} 1",
            "sandboxd_evictions_total{reason=\"slot\"} 1",
            "sandboxd_refusals_total{code=\"session_limit\"} 1",
            "sandboxd_oom_kills_total 2",
            "sandboxd_panics_total 1",
            "sandboxd_store_seconds_count{op=\"put\",outcome=\"ok\"} 1",
            "sandboxd_workspace_bytes 4096",
        ] {
            assert!(
                text.lines().any(|found| found == line),
                "{line} is not in\n{text}"
            );
        }
        assert!(text.contains(
            "sandboxd_http_request_duration_seconds_count{method=\"GET\",route=\"/sessions\",code=\"200\"} 1"
        ));
        assert!(!text.contains("gone"), "{text}");
        assert!(text.contains("\nprocess_resident_memory_bytes "), "{text}");
        let mut names: Vec<_> = text.lines().filter(|l| l.starts_with("# TYPE ")).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);

        drop(running);
        let text = metrics.render(SessionStates::default());
        assert!(text.contains("\nsandboxd_runs_in_flight 0\n"));
        assert!(text.contains("sandboxd_sessions{state=\"resident\"} 0"));
    }
}
