//! Files: read, written, listed, looked at.

use crate::bench::figures::{Figure, Findings, Target};
use crate::bench::http::Connection;
use crate::bench::peers::python::{PYTHON, PythonService};
use crate::bench::peers::static_files::{STATIC, StaticFiles};
use crate::bench::place::{Bench, own_folder};
use crate::bench::requests::{ask_file, close, hibernate, open, read_file, run_in, write_file};
use crate::bench::rounds::{Race, Results};
use crate::bench::service::Service;
use anyhow::anyhow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SECONDS: f64 = 4.0;
/// The same where one turn takes a tenth of a second.
const SECONDS_OF_LARGE: f64 = 20.0;
const LIVE: &str = "sandboxd, live";
const STORED: &str = "sandboxd, stored";
const PLAIN: &str = "plain files";
const KIB: usize = 1024;
const SIZES: [(usize, &str); 4] = [
    (0, "0 B"),
    (KIB, "1 KiB"),
    (KIB * KIB, "1 MiB"),
    (64 * KIB * KIB, "64 MiB"),
];
const LARGEST: usize = 64 * KIB * KIB;
/// Makes a directory of 10,000 files.
const MAKE_MANY: &str = "mkdir many && cd many && seq 10000 | sed s/^/f/ | xargs -n 5000 touch";
const SETTINGS: [(&str, &str); 3] = [
    ("SANDBOXD_MAX_SESSIONS", "100"),
    ("SANDBOXD_MAX_READ_BYTES", "134217728"),
    ("SANDBOXD_MAX_BODIES_BYTES", "536870912"),
];

/// A session with its connection.
struct Held {
    connection: Connection,
    session: String,
}

impl Held {
    /// With a file of each size, and a directory of many.
    fn new(mut connection: Connection, contents: &[Vec<u8>]) -> anyhow::Result<Self> {
        let session = open(&mut connection)?;
        run_in(&mut connection, &session, &["sh", "-c", MAKE_MANY], "")?;
        for content in contents {
            let name = format!("f{}", content.len());
            write_file(&mut connection, &session, &name, content)?;
        }
        Ok(Self {
            connection,
            session,
        })
    }

    fn read(&mut self, size: usize) -> anyhow::Result<Duration> {
        let length = u64::try_from(size)?;
        read_file(
            &mut self.connection,
            &self.session,
            &format!("f{size}"),
            length,
        )
    }

    fn write(&mut self, content: &[u8]) -> anyhow::Result<Duration> {
        let name = format!("w{}", content.len());
        write_file(&mut self.connection, &self.session, &name, content)
    }

    fn ask(&mut self, route: &str, path: &str) -> anyhow::Result<Duration> {
        ask_file(&mut self.connection, &self.session, route, path)
    }
}

/// The Python service and a session of it.
struct Peer {
    held: Held,
    /// Ends it.
    _service: PythonService,
}

/// Everybody.
struct Everybody {
    live: Held,
    stored: Held,
    python: anyhow::Result<Peer>,
    statics: Connection,
    plain: PathBuf,
}

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let folder = own_folder("files")?;
    let measured = in_folder(bench, &folder, findings);
    fs::remove_dir_all(&folder)?;
    measured
}

fn in_folder(bench: &Bench, folder: &Path, findings: &mut Findings) -> anyhow::Result<()> {
    let contents: Vec<Vec<u8>> = SIZES.iter().map(|(size, _)| vec![b'x'; *size]).collect();
    for content in &contents {
        fs::write(folder.join(format!("f{}", content.len())), content)?;
    }
    fs::create_dir(folder.join("many"))?;
    for number in 0..10_000 {
        fs::write(folder.join(format!("many/f{number}")), "")?;
    }
    let service = Service::start_with(&bench.binary, &SETTINGS)?;
    let statics = StaticFiles::start(folder)?;
    let mut stored = Held::new(service.connect()?, &contents)?;
    hibernate(&mut stored.connection, &stored.session)?;
    let mut everybody = Everybody {
        live: Held::new(service.connect()?, &contents)?,
        stored,
        python: python(bench, &contents),
        statics: statics.connect()?,
        plain: folder.to_owned(),
    };
    for ((size, words), content) in SIZES.iter().zip(&contents) {
        let results = read(bench, &mut everybody, *size)?;
        results.notes(findings);
        judge(findings, &results, &format!("read of {words}"), *size);
        let results = write(bench, &mut everybody, content)?;
        results.notes(findings);
        judge(findings, &results, &format!("write of {words}"), *size);
    }
    for (route, path, words) in [
        ("stat", "/workspace/f1024", "stat of a file"),
        ("list", "/workspace/many", "listing of 10,000 files"),
    ] {
        let results = ask(bench, &mut everybody, route, path)?;
        results.notes(findings);
        judge(findings, &results, words, 0);
    }
    let Everybody {
        mut live, stored, ..
    } = everybody;
    close(&mut live.connection, &live.session)?;
    close(&mut live.connection, &stored.session)?;
    findings.note(
        "The static file is served, taken, looked at and listed by the same HTTP stack with nothing behind it but the file; \
         plain files are read and written by a program on the host. Both sides of a transfer run on this machine. \
         Before each write of 64 MiB everything written before is on the disk.",
    );
    Ok(())
}

fn python(bench: &Bench, contents: &[Vec<u8>]) -> anyhow::Result<Peer> {
    let service = bench.python()?;
    Ok(Peer {
        held: Held::new(service.connect()?, contents)?,
        _service: service,
    })
}

fn of_peer(
    peer: &mut anyhow::Result<Peer>,
    act: impl FnOnce(&mut Held) -> anyhow::Result<Duration>,
) -> anyhow::Result<Duration> {
    match peer {
        Ok(peer) => act(&mut peer.held),
        Err(why) => Err(anyhow!("{why:#}")),
    }
}

fn read(bench: &Bench, all: &mut Everybody, size: usize) -> anyhow::Result<Results> {
    let mut race = Race::default();
    let length = u64::try_from(size)?;
    race.ours(LIVE, || all.live.read(size));
    race.ours(STORED, || all.stored.read(size));
    race.beside(STATIC, || {
        let began = Instant::now();
        all.statics
            .drain("GET", &format!("/files/f{size}"), "", length)?;
        Ok(began.elapsed())
    });
    race.beside(PYTHON, || of_peer(&mut all.python, |held| held.read(size)));
    race.beside(PLAIN, || {
        let began = Instant::now();
        fs::read(all.plain.join(format!("f{size}")))?;
        Ok(began.elapsed())
    });
    bench.race(race, seconds(size))
}

fn write(bench: &Bench, all: &mut Everybody, content: &[u8]) -> anyhow::Result<Results> {
    let settle = || {
        // Replacing a file makes the kernel write it out, and nobody is to wait for what another one has written.
        if content.len() == LARGEST {
            rustix::fs::sync();
        }
    };
    let mut race = Race::default();
    race.ours(LIVE, || {
        settle();
        all.live.write(content)
    });
    race.ours(STORED, || {
        settle();
        all.stored.write(content)
    });
    race.beside(STATIC, || {
        settle();
        let began = Instant::now();
        all.statics.send("PUT", "/upload/up", content)?;
        Ok(began.elapsed())
    });
    race.beside(PYTHON, || {
        settle();
        of_peer(&mut all.python, |held| held.write(content))
    });
    race.beside(PLAIN, || {
        settle();
        let began = Instant::now();
        fs::write(all.plain.join("unfinished"), content)?;
        fs::rename(all.plain.join("unfinished"), all.plain.join("w"))?;
        Ok(began.elapsed())
    });
    bench.race(race, seconds(content.len()))
}

/// How long a race over a file of this size may take.
const fn seconds(size: usize) -> f64 {
    if size == LARGEST {
        SECONDS_OF_LARGE
    } else {
        SECONDS
    }
}

fn ask(bench: &Bench, all: &mut Everybody, route: &str, path: &str) -> anyhow::Result<Results> {
    let mut race = Race::default();
    race.ours(LIVE, || all.live.ask(route, path));
    race.ours(STORED, || all.stored.ask(route, path));
    race.beside(STATIC, || {
        let name = path.trim_start_matches("/workspace/");
        let began = Instant::now();
        all.statics.must("GET", &format!("/{route}/{name}"), "")?;
        Ok(began.elapsed())
    });
    race.beside(PYTHON, || {
        of_peer(&mut all.python, |held| held.ask(route, path))
    });
    race.beside(PLAIN, || {
        let began = Instant::now();
        if route == "stat" {
            fs::symlink_metadata(all.plain.join("f1024"))?;
        } else {
            for entry in fs::read_dir(all.plain.join("many"))? {
                entry?.metadata()?;
            }
        }
        Ok(began.elapsed())
    });
    bench.race(race, SECONDS)
}

/// One figure for the live session and one for the stored, with what is asked of them.
fn judge(findings: &mut Findings, results: &Results, what: &str, size: usize) {
    for (ours, state) in [(LIVE, "live"), (STORED, "stored")] {
        let Some(figure) =
            results.figure(&format!("{what}, {state}"), ours, &[STATIC, PYTHON, PLAIN])
        else {
            continue;
        };
        findings.figure(with_target(figure, what, state, size));
    }
}

fn with_target(figure: Figure, what: &str, state: &str, size: usize) -> Figure {
    match (what, state, size) {
        ("read of 1 KiB", "live", _) => figure.target(Target::SmallerBy(5.0, PYTHON.to_owned())),
        (_, _, LARGEST) => figure.target(Target::TimesOf(2.0, STATIC.to_owned())),
        _ => figure,
    }
}
