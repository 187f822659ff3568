//! Memory: of idle sandboxes, and of the daemon.

use crate::bench::figures::{Figure, Findings, Samples, Target, number};
use crate::bench::peers::cgroups::Empty;
use crate::bench::peers::python::PYTHON;
use crate::bench::place::Bench;
use crate::bench::processes::{Memory, below, guests};
use crate::bench::requests::{close, open, run_in};
use crate::bench::service::Service;
use anyhow::{Context, bail};
use std::time::{Duration, Instant};

const RESIDENT: [usize; 4] = [1, 20, 100, 1_000];
const ASLEEP: usize = 10_000;
/// Sandboxes that there may be beside ten thousand sleepers.
const RESIDENT_BESIDE: usize = 16;
/// Sessions that the Python service is measured with.
const OF_PYTHON: usize = 20;
const LIST_ROUNDS: usize = 30;
/// Until what was done last is written, and the daemon has given back what only work takes.
const QUIET: Duration = Duration::from_secs(12);
/// As many as tell one's size beside what else goes on.
const EMPTY_CGROUPS: usize = 500;
const KIB_PER_GIB: f64 = 1024.0 * 1024.0;

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let with_twenty = resident(bench, findings)?;
    if let Err(why) = python(bench, findings, with_twenty) {
        findings.note(format!("{PYTHON} is left out: {why:#}"));
    }
    asleep(bench, findings)?;
    Ok(())
}

/// Up to a thousand sandboxes at once, all idle. Returns what the daemon and all below it hold with twenty, in MiB.
fn resident(bench: &Bench, findings: &mut Findings) -> anyhow::Result<f64> {
    let service = Service::start(&bench.binary)?;
    let mut connection = service.connect()?;
    let warm = open(&mut connection)?;
    run_in(&mut connection, &warm, &["/bin/true"], "")?;
    close(&mut connection, &warm)?;
    std::thread::sleep(QUIET);
    let idle = Memory::of(service.pid())?;
    findings.figure(
        Figure::new(
            "idle daemon, PSS",
            "MiB",
            &Samples::one(idle.pss_kib / 1024.0),
        )
        .target(Target::AtMost(20.0)),
    );
    let mut free = vec![(0, available_kib()?)];
    let (mut opened, mut with_twenty) = (0, f64::NAN);
    for count in RESIDENT {
        while opened < count {
            open(&mut connection)?;
            opened += 1;
        }
        std::thread::sleep(QUIET);
        free.push((count, available_kib()?));
        let guests = guests(service.pid())?;
        if guests.len() != count {
            bail!("{count} sandboxes have {} guests", guests.len());
        }
        let (mut private, mut shared) = (Samples::default(), Samples::default());
        for pid in &guests {
            let memory = Memory::of(*pid)?;
            private.push_value(memory.private_kib);
            shared.push_value(memory.pss_kib);
        }
        let what = format!("idle sandbox, private, of {count}");
        findings.figure(Figure::new(&what, "KiB", &private).target(Target::AtMost(150.0)));
        let what = format!("idle sandbox, PSS, of {count}");
        findings.figure(Figure::new(&what, "KiB", &shared));
        let daemon = Samples::one(Memory::of(service.pid())?.pss_kib / 1024.0);
        findings.figure(Figure::new(
            &format!("daemon with {count} sandboxes, PSS"),
            "MiB",
            &daemon,
        ));
        if count == OF_PYTHON {
            with_twenty = pss_mib(&below(service.pid())?)?;
        }
    }
    let (most, after) = *free.last().context("none was opened")?;
    let each = (free[0].1 - after) / number(most);
    findings.figure(
        Figure::new(
            "idle sandboxes for each GiB, kernel memory counted",
            "",
            &Samples::one(KIB_PER_GIB / each),
        )
        .target(Target::AtLeast(1_500.0)),
    );
    let empty = empty_cgroup_kib()?;
    findings.figure(Figure::new(
        "of which an empty memory cgroup takes here",
        "KiB",
        &Samples::one(empty),
    ));
    findings.note(format!(
        "Kernel memory is counted by what the machine has less of with {most} sandboxes ({each:.0} KiB each); whatever \
         else the machine does falls into it. An empty memory cgroup is measured beside them: it takes more on a machine that \
         ever had more file systems at once since its start, and never less again (decision 81)."
    ));
    findings.note(
        "Private is what a sandbox's processes have written themselves; pages of the guest's program are shared, also where \
         one sandbox is alone. The daemon is measured twelve seconds after the last request.",
    );
    let mut usage = Samples::default();
    for _ in 0..bench.times(LIST_ROUNDS) {
        let began = Instant::now();
        connection.must("GET", "/sessions?usage=true", "")?;
        usage.push(began.elapsed());
    }
    findings.figure(Figure::new(
        "GET /sessions?usage=true of 1,000",
        "ms",
        &usage,
    ));
    Ok(with_twenty)
}

/// What the Python service, and all that Docker runs for it, hold with twenty sessions.
fn python(bench: &Bench, findings: &mut Findings, ours_mib: f64) -> anyhow::Result<()> {
    let service = bench.python()?;
    let mut connection = service.connect()?;
    let before = shims()?;
    for _ in 0..OF_PYTHON {
        open(&mut connection)?;
    }
    std::thread::sleep(QUIET);
    let daemon = pss_mib(&[service.pid()])?;
    let mut theirs: Vec<u32> = shims()?;
    theirs.retain(|shim| !before.contains(shim));
    let mut all = below(service.pid())?;
    for shim in &theirs {
        all.extend(below(*shim)?);
    }
    let what = format!("everything that runs for {OF_PYTHON} sandboxes, PSS");
    findings.figure(
        Figure::new(&what, "MiB", &Samples::one(ours_mib))
            .beside(PYTHON, &Samples::one(pss_mib(&all)?))
            .target(Target::SmallerBy(5.0, PYTHON.to_owned())),
    );
    findings.note(format!(
        "Of {PYTHON}, the service alone holds {daemon:.1} MiB and each container's shim {:.1} MiB; Docker's own daemon \
         is not counted.",
        pss_mib(&theirs)? / number(theirs.len().max(1))
    ));
    Ok(())
}

/// The processes that Docker keeps beside each container.
fn shims() -> anyhow::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if name.starts_with("containerd-shim") {
            found.extend(entry.file_name().to_string_lossy().parse::<u32>());
        }
    }
    Ok(found)
}

fn pss_mib(pids: &[u32]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for pid in pids {
        sum += Memory::of(*pid)?.pss_kib / 1024.0;
    }
    Ok(sum)
}

/// What programs could still have, in KiB.
fn available_kib() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"));
    let value = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(value.context("no MemAvailable")?.parse()?)
}

/// What the kernel takes for a memory cgroup with nobody in it.
fn empty_cgroup_kib() -> anyhow::Result<f64> {
    let before = available_kib()?;
    let empty = Empty::make(EMPTY_CGROUPS)?;
    let with = available_kib()?;
    drop(empty);
    Ok((before - with) / number(EMPTY_CGROUPS))
}

/// Ten thousand sessions of which hardly any has a sandbox.
fn asleep(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let settings = [
        ("SANDBOXD_MAX_SESSIONS", "16"),
        ("SANDBOXD_EVICT_IDLE_AFTER", "0"),
        ("SANDBOXD_MAX_OPEN_SESSIONS", ""),
    ];
    let mut service = Service::start_with(&bench.binary, &settings)?;
    std::thread::sleep(QUIET);
    service.restart()?;
    // Those that stay resident are not what is measured.
    let mut connection = service.connect()?;
    for _ in 0..RESIDENT_BESIDE {
        open(&mut connection)?;
    }
    std::thread::sleep(QUIET);
    let none = Memory::of(service.pid())?;
    open_sleepers(&service)?;
    for (when, restarted) in [("", false), (", after a restart", true)] {
        if restarted {
            let began = Instant::now();
            service.restart()?;
            let took = Samples::one(began.elapsed().as_secs_f64() * 1e3);
            findings.figure(Figure::new("end and start with 10,000 asleep", "ms", &took));
        }
        std::thread::sleep(QUIET);
        let many = Memory::of(service.pid())?;
        let each = (many.pss_kib - none.pss_kib) / number(ASLEEP);
        let what = format!("daemon, for each of 10,000 asleep{when}");
        findings.figure(Figure::new(&what, "KiB", &Samples::one(each)).target(Target::AtMost(2.0)));
        let what = format!("daemon with 10,000 asleep, PSS{when}");
        let pss = Samples::one(many.pss_kib / 1024.0);
        findings.figure(Figure::new(&what, "MiB", &pss));
        let mut connection = service.connect()?;
        let mut lists = Samples::default();
        for _ in 0..bench.times(LIST_ROUNDS) {
            let began = Instant::now();
            connection.must("GET", "/sessions", "")?;
            lists.push(began.elapsed());
        }
        let what = format!("GET /sessions of 10,000{when}");
        findings.figure(Figure::new(&what, "ms", &lists).target(Target::AtMost(50.0)));
    }
    Ok(())
}

fn open_sleepers(service: &Service) -> anyhow::Result<()> {
    let opened: Vec<anyhow::Result<()>> = std::thread::scope(|scope| {
        let opening = |_| {
            scope.spawn(|| -> anyhow::Result<()> {
                let mut connection = service.connect()?;
                for _ in 0..ASLEEP / 2 {
                    open(&mut connection)?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..2).map(opening).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended
            .map(|ended| ended.unwrap_or_else(|_| bail!("a thread panicked")))
            .collect()
    });
    opened.into_iter().collect()
}
