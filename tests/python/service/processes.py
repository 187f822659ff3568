"""What the host's /proc, mounts and cgroups say about a daemon and what it started, or had its container engine start."""

import dataclasses
import pathlib
import time
from collections.abc import Callable

import backend
from daemon import Daemon

PROC = pathlib.Path("/proc")


@dataclasses.dataclass(frozen=True)
class Process:
    """A process, told from a later one with the same number by when it began."""

    pid: int
    began: str

    def lives(self) -> bool:
        status = stat(self.pid)
        return status is not None and status[19] == self.began and status[0] not in ("Z", "X")


def stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def descendants(pid: int) -> list[Process]:
    """Every process below `pid`, itself left out."""
    parents: dict[int, list[Process]] = {}
    for entry in PROC.iterdir():
        status = stat(int(entry.name)) if entry.name.isdigit() else None
        if status is not None:
            found = Process(int(entry.name), status[19])
            parents.setdefault(int(status[1]), []).append(found)
    below, open_pids = [], [pid]
    while open_pids:
        for found in parents.get(open_pids.pop(), []):
            below.append(found)
            open_pids.append(found.pid)
    return below


def pid_inside(process: Process) -> int | None:
    """The number that a process has in its own pid namespace."""
    try:
        for line in (PROC / str(process.pid) / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    except OSError:
        pass
    return None


def running(daemon: Daemon) -> list[Process]:
    """Every process of a daemon's, itself left out: those below it, and those in containers that it had made."""
    return of(daemon.pid, daemon.state_dir)


def of(pid: int, state_dir: pathlib.Path) -> list[Process]:
    """The same of a process with this state directory."""
    found = descendants(pid)
    for pid in backend.first_processes(state_dir):
        status = stat(pid)
        if status is not None:
            found += [Process(pid, status[19]), *descendants(pid)]
    return found


def guests(daemon: Daemon) -> list[Process]:
    """The guests of a daemon: those of its processes that are number 1 in a pid namespace of their own."""
    return [found for found in running(daemon) if pid_inside(found) == 1]


def kept_outside(daemon: Daemon) -> list[str]:
    """What is kept of sessions beside their workspaces: write layers, or whole containers."""
    if backend.ENGINE:
        return backend.containers(daemon.state_dir, "--all")
    return [layer.name for layer in (daemon.state_dir / "layers").iterdir()]


def mounts_below(folder: pathlib.Path) -> list[str]:
    """What is mounted below a folder, as our own mount namespace sees it."""
    places = [line.split()[4] for line in (PROC / "self/mountinfo").read_text().splitlines()]
    return [place for place in places if place.startswith(str(folder))]


def cgroups_of(processes: list[Process]) -> set[pathlib.Path]:
    """The cgroup directories that these processes are in, and this one is not."""
    return {group for found in processes for group in groups(found.pid)} - groups("self")


def groups(pid: int | str) -> set[pathlib.Path]:
    """The cgroup directories of one process, over every hierarchy."""
    try:
        lines = (PROC / str(pid) / "cgroup").read_text().splitlines()
    except OSError:
        return set()
    base = pathlib.Path("/sys/fs/cgroup")
    found = set()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        below = controllers.removeprefix("name=") or ("unified" if (base / "unified").is_dir() else "")
        found.add((base / below / path.lstrip("/")).resolve())
    return found


def memory_bytes(pid: int) -> int:
    """Resident memory."""
    for line in (PROC / str(pid) / "status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has no memory")


def within(seconds: float, condition: Callable[[], bool], what: str) -> None:
    """Waits until `condition` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
