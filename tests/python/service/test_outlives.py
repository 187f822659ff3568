"""What sessions outlive: a daemon that is killed in the middle of anything, many more sessions than sandboxes, a small host."""

import contextlib
import os
import pathlib
import random
import subprocess
import threading
import time
import uuid

import httpx
import pytest
from client import Service, Session
from processes import cgroups_of, kept_outside, mounts_below, running, within

import backend
from backend import only_without_engine
from daemon import TOKEN, Daemon

GONE_SECONDS = 15
ROOT = os.geteuid() == 0


class Client(threading.Thread):
    """Works in sessions of its own in random order, and knows for each what it was told. A daemon that goes away under a
    request is waited for; what that request came to is then found out, and must be one of the two things it can be."""

    def __init__(self, number: int, url: "Url", names: list[str], until: float, seed: int) -> None:
        super().__init__(name=f"client {number}")
        self.url, self.until = url, until
        self.dice = random.Random(seed)
        self.names = names
        self.files: dict[str, dict[str, str]] = {}
        self.tokens: dict[str, str] = {}
        self.failure: BaseException | None = None
        self.done: dict[str, int] = {}
        self.http = httpx.Client(timeout=90)

    def run(self) -> None:
        try:
            while time.monotonic() < self.until:
                self.act(self.dice.choice(self.names))
            for name in self.names:
                if name in self.files:
                    self.look(name)
        except BaseException as failure:  # noqa: BLE001 - told by whoever joins
            self.failure = failure

    def ask(self, method: str, path: str, **options) -> httpx.Response | None:
        """The answer; none where the daemon went away under the request."""
        headers = {"X-Sandbox-Token": TOKEN}
        try:
            return self.http.request(method, f"{self.url.now}{path}", headers=headers, **options)
        except httpx.TransportError:
            time.sleep(0.05)
            return None

    def sure(self, method: str, path: str, fine: tuple[int, ...], **options) -> httpx.Response:
        """Asks until there is an answer of those that are fine; for what may be asked twice. Busy is waited for."""
        deadline = time.monotonic() + 90
        while True:
            answer = self.ask(method, path, **options)
            if answer is not None and answer.status_code in fine:
                return answer
            # Full is said at once, and so is a sandbox that went with a daemon.
            if answer is not None and answer.status_code not in (409, 410, 429):
                raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
            if time.monotonic() > deadline:
                raise AssertionError(f"{method} {path}: no answer but {answer and answer.text}")
            time.sleep(0.02)

    def act(self, name: str) -> None:
        if name not in self.files:
            return self.open(name)
        action = self.dice.choices(
            ["write", "native", "look", "sleep", "reopen", "close"], [5, 3, 4, 2, 1, 0.3]
        )[0]
        self.done[action] = self.done.get(action, 0) + 1
        getattr(self, action)(name)

    def open(self, name: str) -> None:
        body = {"session_id": name, "reuse": True}
        token = self.sure("POST", "/sessions", (200,), json=body).json()["token"]
        assert self.tokens.setdefault(name, token) == token, f"{name} has another token"
        self.files.setdefault(name, {})
        self.done["open"] = self.done.get("open", 0) + 1

    def reopen(self, name: str) -> None:
        self.open(name)

    def shell(self, name: str, script: str) -> dict:
        body = {"argv": ["sh", "-c", script], "run_id": uuid.uuid4().hex}
        return self.sure("POST", f"/sessions/{name}/run", (200,), json=body).json()

    def write(self, name: str) -> None:
        """By a command. Written twice it is the same, so it may be asked again."""
        file, text = f"f{self.dice.randrange(6)}", uuid.uuid4().hex
        ran = self.shell(name, f"mkdir -p d; printf %s {text} > d/.{file} && mv d/.{file} d/{file}")
        assert ran["exit_code"] == 0, ran
        self.files[name][file] = text

    def native(self, name: str) -> None:
        file, text = f"f{self.dice.randrange(6)}", uuid.uuid4().hex
        # Whose files an engine's image has is not known before a sandbox has run from it: until then writes are handed back,
        # and clients write by a command.
        fine = (204, 409) if backend.ENGINE else (204,)
        answer = self.sure(
            "POST", f"/sessions/{name}/files/write", fine, params={"path": f"/workspace/d/{file}"}, content=text
        )
        if answer.status_code == 409:
            ran = self.shell(name, f"mkdir -p d; printf %s {text} > d/.{file} && mv d/.{file} d/{file}")
            assert ran["exit_code"] == 0, ran
        self.files[name][file] = text

    def look(self, name: str) -> None:
        files = self.files[name]
        script = "for f in d/f*; do [ -e $f ] && echo ${f#d/} $(cat $f); done; true"
        ran = self.shell(name, script)
        found = dict(line.split() for line in ran["stdout"].splitlines())
        assert found == files, f"{name} has {found}, not {files}"

    def sleep(self, name: str) -> None:
        self.sure("POST", f"/sessions/{name}/hibernate", (200, 204, 404, 409, 400))

    def close(self, name: str) -> None:
        """With its files: it begins anew."""
        answer = self.ask("DELETE", f"/sessions/{name}", params={"purge": True})
        if answer is None or answer.status_code != 204:
            # Whether it is gone is not known: make sure.
            self.sure("DELETE", f"/sessions/{name}", (204, 404), params={"purge": True})
        del self.files[name], self.tokens[name]


class Url:
    """Where the daemon is now."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    @property
    def now(self) -> str:
        return self.daemon.url


def nothing_is_left(daemon: Daemon, folder: pathlib.Path, before: list, grouped: set) -> None:
    within(GONE_SECONDS, lambda: not any(p.lives() for p in before), "every process of it ends")
    within(GONE_SECONDS, lambda: not any(g.exists() for g in grouped), "its cgroups are removed")
    assert mounts_below(folder) == []
    instances = daemon.state_dir / "instances"
    within(GONE_SECONDS, lambda: not any(instances.iterdir()), "its instance is removed")


def crowd(daemon: Daemon, sessions: int, clients: int, seconds: float, kills: int) -> list[Client]:
    """Many clients on many sessions while the daemon is killed and started again so many times."""
    until = time.monotonic() + seconds
    url = Url(daemon)
    names = [f"s{n}" for n in range(sessions)]
    crowd = [Client(n, url, names[n::clients], until, seed=n) for n in range(clients)]
    for client in crowd:
        client.start()
    for n in range(kills):
        time.sleep(max(0.0, until - time.monotonic()) / (kills - n + 1))
        everything = running(daemon)
        daemon.kill()
        within(GONE_SECONDS, lambda all=everything: not any(p.lives() for p in all), "every process of it ends")
        daemon.start()
    for client in crowd:
        client.join(seconds + 180)
        if client.failure is not None:
            raise client.failure
        assert not client.is_alive(), f"{client.name} hangs"
    return crowd


def test_killed_again_and_again_in_the_middle_of_everything(tmp_path):
    """Short lives: whatever a daemon was doing, it was killed while doing it."""
    settings = {"max_sessions": "4", "evict_idle_after": "0", "persist_containers": "1", "max_open_sessions": ""}
    with Daemon(tmp_path, **settings) as daemon:
        crowd(daemon, sessions=16, clients=8, seconds=20, kills=14)
        everything = running(daemon)
        grouped = cgroups_of(everything)
        daemon.terminate()
        nothing_is_left(daemon, tmp_path, everything, grouped)
        kept = kept_outside(daemon)
        assert len(kept) <= 16, kept
    assert "panicked" not in daemon.log()


@only_without_engine("an engine makes too few containers in two minutes; the test before this one kills as often")
def test_two_hundred_sessions_on_twenty_sandboxes_and_three_kills(tmp_path):
    """Two minutes of sixteen clients who open, run, read, sleep and come back."""
    settings = {"max_sessions": "20", "max_open_sessions": "200", "evict_idle_after": "0"}
    with Daemon(tmp_path, **settings) as daemon:
        done = crowd(daemon, sessions=200, clients=16, seconds=120, kills=3)
        count = sum(sum(client.done.values()) for client in done)
        assert count > 1_000, f"only {count} operations in two minutes"
        listed = Service(daemon.url).http.get("/sessions").json()["sessions"]
        assert sum(len(client.files) for client in done) == len(listed)
        everything = running(daemon)
        grouped = cgroups_of(everything)
        daemon.terminate()
        nothing_is_left(daemon, tmp_path, everything, grouped)
    assert "panicked" not in daemon.log()


MIB = 1024 * 1024
EATER = "import sys; b = bytearray(int(sys.argv[1])); b[::4096] = b'x' * len(b[::4096]); print(len(b))"


@contextlib.contextmanager
def memory_cgroup(limit: int):
    """A cgroup with so much memory and no swap beyond it; the function enters it."""
    base = pathlib.Path("/sys/fs/cgroup")
    first = (base / "memory").is_dir()
    group = (base / "memory" if first else base) / f"sandboxd-test-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        if first:
            (group / "memory.limit_in_bytes").write_text(str(limit))
            with contextlib.suppress(OSError):
                (group / "memory.memsw.limit_in_bytes").write_text(str(limit))
        else:
            (group / "memory.max").write_text(str(limit))
            with contextlib.suppress(OSError):
                (group / "memory.swap.max").write_text("0")
        yield group
    finally:
        within(GONE_SECONDS, lambda: not (group / "cgroup.procs").read_text(), "nobody is in it")
        for below in sorted(group.rglob("*/"), key=lambda path: -len(path.parts)):
            if below.is_dir():
                below.rmdir()
        group.rmdir()


@only_without_engine("its containers are not in the daemon's cgroup")
@pytest.mark.skipif(not ROOT, reason="a cgroup with a memory ceiling is made by root")
def test_a_small_host_carries_two_hundred_sessions(tmp_path):
    """4 GiB in all, ten sandboxes of 384 MiB, two hundred sessions: each uses most of its memory in its turn, none is lost,
    and nothing is killed but what asks for more than its own ceiling."""
    settings = {
        "max_sessions": "10",
        "max_open_sessions": "200",
        "evict_idle_after": "0",
        "mem_limit": "384m",
    }
    with memory_cgroup(4096 * MIB) as group:
        daemon = Daemon(tmp_path, **settings)
        with entered(group), daemon:
            service = Service(daemon.url)
            sessions = [turn(service, f"s{n}", n) for n in range(200)]
            assert len(service.http.get("/sessions").json()["sessions"]) == 200
            together = [threading.Thread(target=eat, args=(session, 300)) for session in sessions[-10:]]
            for thread in together:
                thread.start()
            for thread in together:
                thread.join(120)
            greedy = sessions[7].run("python3", "-c", EATER, str(600 * MIB), timeout=60)
            assert greedy["exit_code"] not in (0, None), greedy
            for n, session in enumerate(sessions):
                assert session.sh("cat mine") == f"{n}\n"
            resident = [s for s in service.http.get("/sessions").json()["sessions"] if s["state"] == "running"]
            assert len(resident) <= 10


@contextlib.contextmanager
def entered(group: pathlib.Path):
    """Whatever this thread starts meanwhile is in the cgroup."""
    here = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
    is_first = (group / "memory.limit_in_bytes").exists()
    own = next(
        line.split(":", 2)[2]
        for line in here
        if (line.split(":", 2)[1] == "memory" if is_first else line.startswith("0::"))
    )
    back = group.parent / own.lstrip("/")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (back / "cgroup.procs").write_text(str(os.getpid()))


def eat(session: Session, mebibytes: int) -> None:
    ran = session.run("python3", "-c", EATER, str(mebibytes * MIB), timeout=60)
    assert ran["exit_code"] == 0, (session.id, ran, session.info())


def turn(service: Service, name: str, number: int) -> Session:
    session = service.open(session_id=name)
    session.sh(f"echo {number} > mine")
    eat(session, 250)
    return session
