//! Images: bringing one in beside unpacking its tar, opening on it beside opening on the host's files, and what sessions
//! share of its pages.

use crate::bench::figures::{Figure, Findings, Samples, Target};
use crate::bench::http::Connection;
use crate::bench::place::{Bench, import, own_folder};
use crate::bench::processes::{Memory, below};
use crate::bench::requests::{close, open_with, run_in};
use crate::bench::rounds::Race;
use crate::bench::service::Service;
use anyhow::{Context, bail};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const IMPORT_SECONDS: f64 = 60.0;
const OPEN_SECONDS: f64 = 20.0;
const IMAGE_NAME: &str = "bench-large:1";
/// Bytes of the image's tar.
const IMAGE_BYTES: u64 = 400 * 1024 * 1024;
/// Bytes of one of the files that fill it up.
const FILLER_BYTES: usize = 64 * 1024;
const IMPORT: &str = "sandboxd image import";
const TAR: &str = "tar -x";
const TAR_SYNCED: &str = "tar -x, and sync";
const ON_IMAGE: &str = "sandboxd, image of 400 MiB";
const ON_HOST: &str = "sandboxd, host runtime";
/// Sessions that run the same Python at once.
const SHARERS: usize = 10;

pub(super) fn measure(bench: &Bench, findings: &mut Findings) -> anyhow::Result<()> {
    let root = match bench.root() {
        Ok(root) => root,
        Err(why) => {
            findings.note(format!("no image is measured: {why:#}"));
            return Ok(());
        }
    };
    let folder = Folder(own_folder("images")?);
    let tar = large_tar(root, &folder.0)?;
    importing(bench, findings, &folder.0, &tar)?;
    let settings = [
        ("SANDBOXD_MAX_SESSIONS", "100"),
        (
            "SANDBOXD_RUNTIMES",
            &*format!("host=host,image={IMAGE_NAME}"),
        ),
    ];
    let service = Service::start_prepared(&bench.binary, &settings, |state| {
        import(&bench.binary, state, &tar, IMAGE_NAME)
    })?;
    opening(bench, findings, &service)?;
    sharing(findings, &service)
}

/// A folder that goes with this.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn done(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}

/// The root filesystem as a tar, filled up with files that do not pack well.
fn large_tar(root: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let tar = folder.join("image.tar");
    let mut pack = Command::new("tar");
    pack.args(["--numeric-owner", "-cf"]).arg(&tar);
    done(pack.arg("-C").arg(root).arg("."))?;
    let filler = folder.join("filler/opt/filler");
    fs::create_dir_all(&filler)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let missing = IMAGE_BYTES.saturating_sub(fs::metadata(&tar)?.len());
    for number in 0..missing / u64::try_from(FILLER_BYTES)? {
        let mut content = Vec::with_capacity(FILLER_BYTES);
        while content.len() < FILLER_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            content.extend_from_slice(&state.to_le_bytes());
        }
        fs::write(filler.join(number.to_string()), content)?;
    }
    let mut add = Command::new("tar");
    add.args(["--numeric-owner", "-rf"]).arg(&tar);
    done(add.arg("-C").arg(folder.join("filler")).arg("./opt/filler"))?;
    fs::remove_dir_all(folder.join("filler"))?;
    Ok(tar)
}

fn importing(
    bench: &Bench,
    findings: &mut Findings,
    folder: &Path,
    tar: &Path,
) -> anyhow::Result<()> {
    // What a turn made is removed before the next one, and not in its time.
    let fresh = |name: &str| -> anyhow::Result<PathBuf> {
        let place = folder.join(name);
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::create_dir(&place)?;
        Ok(place)
    };
    let unpack = |synced: bool| -> anyhow::Result<Duration> {
        let place = fresh("unpacked")?;
        let began = Instant::now();
        done(
            Command::new("tar")
                .arg("-xf")
                .arg(tar)
                .arg("-C")
                .arg(&place),
        )?;
        if synced {
            done(Command::new("sync").arg("-f").arg(&place))?;
        }
        let took = began.elapsed();
        fs::remove_dir_all(place)?;
        Ok(took)
    };
    let mut race = Race::default();
    race.ours(IMPORT, || {
        let state = fresh("state")?;
        let began = Instant::now();
        import(&bench.binary, &state, tar, IMAGE_NAME)?;
        let took = began.elapsed();
        fs::remove_dir_all(state)?;
        Ok(took)
    });
    race.beside(TAR, || unpack(false));
    race.beside(TAR_SYNCED, || unpack(true));
    let results = bench.race(race, IMPORT_SECONDS)?;
    results.notes(findings);
    if let Some(figure) = results.figure(
        "an image of 400 MiB from its tar",
        IMPORT,
        &[TAR, TAR_SYNCED],
    ) {
        findings.figure(figure.target(Target::TimesOf(2.0, TAR.to_owned())));
    }
    findings.note(
        "An import verifies what it reads by its digest, and is on the disk before it counts; `tar -x` alone leaves that to \
         the kernel.",
    );
    Ok(())
}

fn opening(bench: &Bench, findings: &mut Findings, service: &Service) -> anyhow::Result<()> {
    let (mut image, mut host) = (service.connect()?, service.connect()?);
    let mut race = Race::default();
    race.ours(ON_IMAGE, || round(&mut image, "image"));
    race.beside(ON_HOST, || round(&mut host, "host"));
    let results = bench.race(race, OPEN_SECONDS)?;
    results.notes(findings);
    if let Some(figure) = results.figure(
        "open to first output, image of 400 MiB",
        ON_IMAGE,
        &[ON_HOST],
    ) {
        findings.figure(figure.target(Target::TimesOf(1.3, ON_HOST.to_owned())));
    }
    Ok(())
}

fn round(connection: &mut Connection, runtime: &str) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let session = open_with(connection, &json!({ "runtime": runtime }))?;
    run_in(connection, &session, &["/bin/echo", "hi"], "hi\n")?;
    let took = began.elapsed();
    close(connection, &session)?;
    Ok(took)
}

/// The same Python in one session, and then in ten: what is shared counts for each a part.
fn sharing(findings: &mut Findings, service: &Service) -> anyhow::Result<()> {
    let script = "python3 -c 'import decimal, email, http.client, json, time; open(\"/tmp/ready\", \"w\"); time.sleep(600)' \
                  >/dev/null 2>&1 & until [ -e /tmp/ready ]; do sleep 0.05; done";
    let mut connection = service.connect()?;
    let mut sessions = Vec::new();
    let mut begin = |connection: &mut Connection| -> anyhow::Result<()> {
        let session = open_with(connection, &json!({ "runtime": "image" }))?;
        run_in(connection, &session, &["sh", "-c", script], "")?;
        sessions.push(session);
        Ok(())
    };
    begin(&mut connection)?;
    let alone = pythons(service.pid(), 1)?;
    for _ in 1..SHARERS {
        begin(&mut connection)?;
    }
    let together = pythons(service.pid(), SHARERS)?;
    for session in &sessions {
        close(&mut connection, session)?;
    }
    let mebibytes = |all: &[Memory], part: fn(&Memory) -> f64| {
        let mut samples = Samples::default();
        for one in all {
            samples.push_value(part(one) / 1024.0);
        }
        samples
    };
    let figure = Figure::new(
        "a Python process in each of 10 sessions over one image, PSS",
        "MiB",
        &mebibytes(&together, |one| one.pss_kib),
    );
    findings.figure(
        figure
            .beside(
                "PSS in one session alone",
                &mebibytes(&alone, |one| one.pss_kib),
            )
            .beside("RSS", &mebibytes(&together, |one| one.rss_kib))
            .beside("private", &mebibytes(&together, |one| one.private_kib)),
    );
    Ok(())
}

/// What the Python processes below the daemon hold.
fn pythons(daemon: u32, wanted: usize) -> anyhow::Result<Vec<Memory>> {
    let mut found = Vec::new();
    for pid in below(daemon)? {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        if name.starts_with("python") {
            found.push(Memory::of(pid)?);
        }
    }
    if found.len() != wanted {
        bail!("{wanted} sessions have {} Python processes", found.len());
    }
    Ok(found)
}
