//! What an instance changes on the host so that its sandboxes reach the network: a table of rules of its own, and
//! forwarding where that was off. And how both go again.

use crate::network::{HOST_PREFIX, HostRules};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::process::{Command, Stdio};

/// Where instances of one host agree about it.
const PLACE: &str = "/run/sandboxd";
/// Whether the host forwards.
const FORWARDING: &str = "/proc/sys/net/ipv4/ip_forward";
/// The first line of a note.
const SWITCHED_ON: &str = "switched on, between none of these:\n";
/// Longest words of `nft` that are repeated.
const WORDS_BYTES_MAX: usize = 1024;

/// Loads rules: all of them, or none.
///
/// # Errors
///
/// The words of `nft`, or why it cannot be run.
pub fn load(nft: &str, text: &str) -> Result<(), String> {
    let mut child = Command::new(nft)
        .args(["-f", "-"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{nft}: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // One that refuses to read says why.
        let _ = input.write_all(text.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| format!("{nft}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    let words: String = words.trim().chars().take(WORDS_BYTES_MAX / 4).collect();
    Err(format!("nft: {words}"))
}

/// Removes the table and, if nobody else needs it, our forwarding. A table that is not there is fine.
///
/// # Errors
///
/// As [`load`], or why forwarding could not be given back.
pub fn remove(rules: &HostRules) -> Result<(), String> {
    let table = &rules.table;
    load(
        &rules.nft,
        &format!("table inet {table} {{\n}}\ndelete table inet {table}\n"),
    )?;
    stop_forwarding().map_err(|error| format!("{FORWARDING}: {error}"))
}

/// Makes the host forward. The answer is the interfaces between which it did not before.
///
/// # Errors
///
/// Where that is not possible.
pub fn forward() -> io::Result<Vec<String>> {
    let mut note = Note::open()?;
    let noted = note.read()?;
    if std::fs::read_to_string(FORWARDING)?.trim() != "0" {
        note.remove_if(noted.is_none())?;
        return Ok(noted.unwrap_or_default());
    }
    let apart = interfaces()?;
    note.write(&apart)?;
    std::fs::write(FORWARDING, "1")?;
    Ok(apart)
}

/// Switches forwarding off where we switched it on, no instance is left, and no interface has come since whose owner may
/// have found it switched on.
fn stop_forwarding() -> io::Result<()> {
    let mut note = Note::open()?;
    let Some(apart) = note.read()? else {
        return note.remove_if(true);
    };
    if all_interfaces()?.iter().any(|name| is_uplink(name)) {
        return Ok(());
    }
    let nobody_new = interfaces()?.iter().all(|name| apart.contains(name));
    if nobody_new {
        std::fs::write(FORWARDING, "0")?;
    }
    note.remove_if(true)
}

/// The file that says that we switched forwarding on in this network namespace, and between which interfaces; locked
/// until it is closed.
struct Note {
    path: String,
    file: File,
}

impl Note {
    fn open() -> io::Result<Self> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(PLACE)?;
        let namespace = std::fs::metadata("/proc/self/ns/net")?.ino();
        let path = format!("{PLACE}/forwarding-{namespace}");
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))?;
            rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockExclusive))?;
            let file = File::from(file);
            // Whoever had it locked may have removed it.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { path, file });
            }
        }
    }

    /// The interfaces, where we switched it on; there may be none.
    fn read(&mut self) -> io::Result<Option<Vec<String>>> {
        let mut text = String::new();
        self.file.rewind()?;
        self.file.read_to_string(&mut text)?;
        let names = text.strip_prefix(SWITCHED_ON);
        Ok(names.map(|names| names.lines().map(str::to_owned).collect()))
    }

    fn write(&mut self, names: &[String]) -> io::Result<()> {
        let mut text = SWITCHED_ON.to_owned();
        text.extend(names.iter().map(|name| format!("{name}\n")));
        self.file.set_len(0)?;
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())
    }

    fn remove_if(self, needless: bool) -> io::Result<()> {
        if needless {
            std::fs::remove_file(&self.path)?;
        }
        Ok(())
    }
}

fn is_uplink(name: &str) -> bool {
    name.starts_with(HOST_PREFIX)
}

/// The interfaces that others have made.
fn interfaces() -> io::Result<Vec<String>> {
    let all = all_interfaces()?.into_iter();
    Ok(all
        .filter(|name| name != "lo" && !is_uplink(name))
        .collect())
}

fn all_interfaces() -> io::Result<Vec<String>> {
    let text = std::fs::read_to_string("/proc/self/net/dev")?;
    Ok(names(&text))
}

/// The names in the kernel's table of interfaces.
fn names(text: &str) -> Vec<String> {
    let lines = text.lines().skip(2);
    let names = lines.filter_map(|line| line.rsplit_once(':').map(|(name, _)| name.trim()));
    // What could end a quoted name in a rule, or a line of the note, is nobody's name.
    names
        .filter(|name| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'"')
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let text = "Inter-|   Receive |  Transmit\n face |bytes |bytes\n    lo: 1 2 3\n  eth0: 1 2\nsbx-12: 0 0\n";
        assert_eq!(names(text), ["lo", "eth0", "sbx-12"]);
        assert!(is_uplink("sbx-12") && !is_uplink("eth0"));
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let why = load("/nonexistent/nft", "").unwrap_err();
        assert!(why.contains("/nonexistent/nft"), "{why}");
    }
}
