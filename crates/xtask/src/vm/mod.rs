//! A machine of another kind: a Debian kernel in QEMU, with cgroups of the second version and nothing else, and ext4. The
//! root filesystem is this host's own, read-only, with memory over it: what the tests need is there, and nothing of them is
//! left.
//!
//! It emulates its processors, unless it is told that this host's can be used, so it takes half an hour and more: a command
//! of its own, and no step of `cargo xtask test`.

use crate::report::{run, say};
use crate::tools::{self, cargo, is_root};
use anyhow::{Context, bail};
use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the root of the machine, its disk, its control groups and file systems with quotas need.
const MODULES: [&str; 10] = [
    "virtio_pci",
    "virtio_blk",
    "9pnet_virtio",
    "9p",
    "overlay",
    "crc32c_generic",
    "ext4",
    "quota_v2",
    "xfs",
    "loop",
];
/// Of each program the tests that run, by whom, and what their names begin with.
const TESTS: [(&str, &str, &str); 9] = [
    ("root", "conformance", "namespaces::"),
    ("root", "namespaces", "limits::"),
    ("root", "namespaces", "images::"),
    ("root", "namespaces", "quota::"),
    ("root", "namespaces", "memory_root::"),
    ("root", "namespaces", "ordinary::"),
    ("root", "escape", "here::"),
    ("delegated", "conformance", "namespaces::"),
    ("delegated", "escape", "here::"),
];
/// What begins a line of the machine's own.
const MARK: &str = "machine: ";
/// Longest that the machine runs, in seconds.
const SECONDS_MAX: u32 = 2 * 60 * 60;
const DISK_BYTES: u64 = 4 << 30;

/// Boots the machine and runs the tests whose names contain one of these words; all where there is none.
pub(crate) fn machine(words: &[String], kvm: bool) -> anyhow::Result<()> {
    if !is_root() {
        bail!("the machine's root filesystem is this host's own, which only root can read");
    }
    tools::machine_packages()?;
    let place = tools::cache().join("vm");
    fs::create_dir_all(&place)?;
    let kernel = kernel(&place)?;
    programs(&place)?;
    let count = list(&place, words)?;
    fs::write(place.join("inside.sh"), include_str!("inside.sh"))?;
    first_files(&place, &kernel)?;
    let disk = place.join("disk");
    fs::File::create(&disk)?.set_len(DISK_BYTES)?;
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk))?;
    say(&format!("booting, to run {count} tests"));
    let outcome = boot(&place, &kernel, kvm, count);
    fs::remove_file(&disk)?;
    outcome
}

/// The kernel package of this Debian, unpacked and not installed: its name.
fn kernel(place: &Path) -> anyhow::Result<String> {
    let depends = Command::new("apt-cache")
        .args(["depends", "linux-image-amd64"])
        .output()
        .context("apt-cache does not start")?;
    let text = String::from_utf8_lossy(&depends.stdout).into_owned();
    let mut words = text.split_whitespace();
    let package =
        words.find(|word| word.starts_with("linux-image-") && *word != "linux-image-amd64");
    let package = package.context("there is no package linux-image-amd64")?;
    let name = package.trim_start_matches("linux-image-").to_owned();
    let root = place.join("kernel");
    if root.join("boot").join(format!("vmlinuz-{name}")).is_file() {
        return Ok(name);
    }
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    say(&format!("fetching {package}"));
    run(Command::new("apt-get")
        .args(["download", "-q", package])
        .current_dir(place))?;
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "deb") {
            run(Command::new("dpkg").arg("-x").arg(&path).arg(&root))?;
            fs::remove_file(path)?;
        }
    }
    run(Command::new("busybox")
        .arg("depmod")
        .arg("-b")
        .arg(&root)
        .arg(&name))?;
    Ok(name)
}

/// Builds the tests, and puts them where the machine finds them.
fn programs(place: &Path) -> anyhow::Result<()> {
    let mut build = cargo(&["test", "--no-run", "--package", "sandboxd-server"]);
    build.arg("--message-format=json-render-diagnostics");
    for (_, program, _) in &TESTS {
        build.args(["--test", program]);
    }
    let built = build.stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        bail!("the tests do not build");
    }
    let bin = place.join("bin");
    fs::create_dir_all(&bin)?;
    for line in String::from_utf8_lossy(&built.stdout).lines() {
        let message: serde_json::Value = serde_json::from_str(line)?;
        let (Some(file), Some(name)) = (
            message["executable"].as_str(),
            message["target"]["name"].as_str(),
        ) else {
            continue;
        };
        fs::copy(file, bin.join(name)).with_context(|| file.to_owned())?;
    }
    Ok(())
}

/// Writes down which tests run; how many.
fn list(place: &Path, words: &[String]) -> anyhow::Result<usize> {
    let mut lines = String::new();
    let mut count = 0;
    for (who, program, prefix) in TESTS {
        let said = Command::new(place.join("bin").join(program))
            .args(["--list", "--format", "terse"])
            .output()?;
        for line in String::from_utf8_lossy(&said.stdout).lines() {
            let Some(test) = line.strip_suffix(": test") else {
                continue;
            };
            let full = format!("{who} {program} {test}");
            let wanted = words.is_empty() || words.iter().any(|word| full.contains(word));
            if test.starts_with(prefix) && wanted {
                lines += &format!("{full}\n");
                count += 1;
            }
        }
    }
    if count == 0 {
        bail!("no test is named so: {words:?}");
    }
    fs::write(place.join("tests"), lines)?;
    Ok(count)
}

/// Packs what the machine begins with: a shell, and modules in the order in which they need each other.
fn first_files(place: &Path, kernel: &str) -> anyhow::Result<()> {
    let tree = place.join("first");
    if tree.exists() {
        fs::remove_dir_all(&tree)?;
    }
    for directory in [
        "bin", "modules", "proc", "sys", "dev", "lower", "over", "root",
    ] {
        fs::create_dir_all(tree.join(directory))?;
    }
    fs::copy("/bin/busybox", tree.join("bin/busybox"))?;
    fs::write(tree.join("init"), include_str!("init.sh"))?;
    run(Command::new("chmod").arg("0755").arg(tree.join("init")))?;
    let modules = place.join("kernel/lib/modules").join(kernel);
    let table = fs::read_to_string(modules.join("modules.dep"))?;
    let mut names = String::new();
    for module in in_order(&table, &MODULES)? {
        let file = module.rsplit('/').next().unwrap_or(&module);
        fs::copy(modules.join(&module), tree.join("modules").join(file))?;
        names += &format!("{file}\n");
    }
    fs::write(tree.join("modules/order"), names)?;
    let pack = "find . | cpio --quiet -o -H newc | gzip -1 > ../first.gz";
    run(Command::new("sh").args(["-ec", pack]).current_dir(tree))
}

/// The files of modules by `modules.dep`, each after those that it needs. What is built in has none.
fn in_order(table: &str, wanted: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut needs: HashMap<&str, Vec<&str>> = HashMap::new();
    for line in table.lines() {
        let (module, others) = line.split_once(':').context("modules.dep is none")?;
        needs.insert(module, others.split_whitespace().collect());
    }
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let file = format!("{name}.ko");
        let found = needs.keys().find(|path| {
            let last = path.rsplit('/').next().unwrap_or_default();
            last.replace('-', "_") == file
        });
        let Some(found) = found else { continue };
        // A line names all that a module needs, the deepest last.
        let others = needs.get(found).into_iter().flatten().rev();
        for module in others.chain([found]) {
            if !order.iter().any(|known| known == module) {
                order.push((*module).to_owned());
            }
        }
    }
    Ok(order)
}

fn boot(place: &Path, kernel: &str, kvm: bool, count: usize) -> anyhow::Result<()> {
    let (accelerator, processor) = if kvm {
        ("kvm", "host")
    } else {
        (
            "tcg,thread=multi",
            "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+rdrand",
        )
    };
    let image: PathBuf = place.join("kernel/boot").join(format!("vmlinuz-{kernel}"));
    let mut machine = Command::new("timeout");
    machine
        .arg(SECONDS_MAX.to_string())
        .arg("qemu-system-x86_64")
        .args(["-accel", accelerator, "-cpu", processor])
        .args([
            "-m",
            "4G",
            "-smp",
            "2",
            "-nodefaults",
            "-nographic",
            "-no-reboot",
        ])
        .args(["-serial", "stdio", "-kernel"])
        .arg(image)
        .arg("-initrd")
        .arg(place.join("first.gz"))
        .arg("-append")
        .arg(format!(
            "console=ttyS0 quiet panic=-1 random.trust_cpu=on place={}",
            place.display()
        ))
        .args([
            "-fsdev",
            "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
        ])
        .args(["-device", "virtio-9p-pci,fsdev=host,mount_tag=host"])
        .arg("-drive")
        .arg(format!(
            "file={},format=raw,if=virtio",
            place.join("disk").display()
        ));
    let mut machine = machine
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("QEMU does not start")?;
    let console = machine.stdout.take().context("a console")?;
    let (mut passed, mut failed, mut ended) = (0, 0, false);
    for line in BufReader::new(console).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        say(line.trim_end());
        let Some((_, words)) = line.split_once(MARK) else {
            continue;
        };
        match words.split_whitespace().next() {
            Some("passed") => passed += 1,
            Some("failed") => failed += 1,
            Some("end") => ended = true,
            _ => {}
        }
    }
    machine.wait()?;
    say(&format!("{passed} passed, {failed} failed, of {count}"));
    if !ended || failed > 0 || passed != count {
        bail!("not all tests passed in the machine");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_after_what_it_needs_and_what_is_built_in_not_at_all() {
        let table = "fs/ext4.ko: fs/jbd2.ko lib/crc16.ko\nfs/jbd2.ko:\nlib/crc16.ko:\nx/crc32c-generic.ko:\n";
        let order = in_order(table, &["crc32c_generic", "ext4", "jbd2", "built_in"]).unwrap();
        assert_eq!(
            order,
            [
                "x/crc32c-generic.ko",
                "lib/crc16.ko",
                "fs/jbd2.ko",
                "fs/ext4.ko"
            ]
        );
        assert!(in_order("no table", &[]).is_err());
    }
}
