"""The built binary as a service, on a free loopback port, with a state directory of its own."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.request

import backend

BINARY = os.environ.get("SANDBOXD_BINARY", "")
TOKEN = "service-token-of-the-tests"
START_SECONDS = 30
STOP_SECONDS = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Daemon:
    """One `sandboxd serve`. Leaving the `with` block ends it, and fails if it does not end in time."""

    def __init__(self, folder: pathlib.Path, **settings: str) -> None:
        self.state_dir = folder / "state"
        self.workspace_root = folder / "workspaces"
        self.log_path = folder / "log.txt"
        self.settings = backend.settings() | settings
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.workspace_root.mkdir(parents=True, exist_ok=True)

    def environment(self) -> dict[str, str]:
        ours = {
            "SANDBOXD_TOKEN": TOKEN,
            "SANDBOXD_WORKSPACE_ROOT": str(self.workspace_root),
            "PATH": os.environ["PATH"],
        }
        return ours | {f"SANDBOXD_{name.upper()}": value for name, value in self.settings.items()}

    def start(self) -> "Daemon":
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [BINARY, "serve", "--listen", f"127.0.0.1:{port}", "--state-dir", str(self.state_dir)]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log()}")
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                    if answer.status == 200:
                        return self
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the daemon does not answer:\n{self.log()}")
            time.sleep(0.02)

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def terminate(self) -> float:
        """Asks it to end; how many seconds that took."""
        assert self.process is not None
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"no end within {STOP_SECONDS} s of SIGTERM:\n{self.log()}") from None
        return time.monotonic() - began

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> "Daemon":
        return self.start()

    def __exit__(self, *_: object) -> None:
        try:
            if self.process is not None and self.process.poll() is None:
                self.terminate()
        finally:
            self.remove_kept()

    def remove_kept(self) -> None:
        """Containers that wait for a next start of this state directory, which there will not be."""
        for container in backend.containers(self.state_dir, "--all"):
            backend.docker("rm", "--force", "--volumes", container)
