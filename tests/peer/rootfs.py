"""A Debian root filesystem under the image names that the suites ask for, made once and kept in the cache.

The suites need `sh`, coreutils, `setsid`, `find`, `grep`, `git` and `python3` inside; no particular version of any.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess

SUITE = "bookworm"
INCLUDE = "ca-certificates,git,python3"
# What a change of makes the kept one worthless.
STAMP = f"{SUITE} minbase {INCLUDE} 1\n"
MINUTES = 20

# The names that the suites and the recordings use.
NAMES = ("python:3.12-slim", "node:20-slim", "debian-with-git:1")


def mirror() -> list[str]:
    """The mirror that this machine's own package lists name; none leaves the choice to debootstrap."""
    lists = [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*"))]
    for path in lists:
        text = path.read_text(errors="replace") if path.is_file() else ""
        for line in text.splitlines():
            found = re.match(r"(?:URIs:|deb(?:\s+\[.*?\])?)\s+(https?://\S+/debian)/?(?:\s|$)", line)
            if found:
                return [found.group(1)]
    return []


def names(cache: pathlib.Path) -> str:
    """The root filesystem under all its names, as `SANDBOXD_IMAGES` takes them; made where it is not there yet."""
    place = cache / "rootfs"
    stamp = cache / "rootfs.txt"
    if not (place.is_dir() and stamp.is_file() and stamp.read_text() == STAMP):
        stamp.unlink(missing_ok=True)
        make(place)
        stamp.write_text(STAMP)
    return json.dumps({name: str(place) for name in NAMES})


def make(place: pathlib.Path) -> None:
    if os.geteuid() != 0:
        raise SystemExit("a root filesystem can be made by root only")
    apt = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if shutil.which("debootstrap") is None:
        print("installing system packages: debootstrap (for the root filesystem of the sandboxes)", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], env=apt, check=True, timeout=MINUTES * 60)
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap"]
        subprocess.run(install, env=apt, check=True, timeout=MINUTES * 60)
    unfinished = place.with_name("rootfs.unfinished")
    for old in (unfinished, place):
        if old.exists():
            shutil.rmtree(old)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    print(f"making a root filesystem in {place}", flush=True)
    log = place.with_name("rootfs.log")
    command = ["debootstrap", "--variant=minbase", f"--include={INCLUDE}", SUITE, str(unfinished), *mirror()]
    with log.open("wb") as out:
        made = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, check=False, timeout=MINUTES * 60)
    if made.returncode != 0:
        raise SystemExit(f"debootstrap failed: {log.read_text(errors='replace')[-2000:]}")
    for left in ("var/cache/apt/archives", "var/lib/apt/lists"):
        for path in (unfinished / left).rglob("*"):
            if path.is_file():
                path.unlink()
    (unfinished / "workspace").mkdir(exist_ok=True)
    unfinished.rename(place)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Makes the root filesystem where it is not there yet.")
    arguments.add_argument("--cache", type=pathlib.Path, required=True, help="where it is kept")
    names(arguments.parse_args().cache.resolve())
