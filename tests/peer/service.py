"""One start of the binary, as the suites make it: on a free loopback port, and ended by SIGTERM in time."""

import contextlib
import os
import pathlib
import socket
import subprocess
import time
import urllib.request

START = pathlib.Path(__file__).with_name("start.sh")
TOKEN = "service-token-of-the-peer-tests"
START_SECONDS = 60
STOP_SECONDS = 30


class Service:
    """`with Service(run, log, settings) as service:` has it answering at `service.url`."""

    def __init__(self, run: dict[str, str], log: pathlib.Path, settings: dict[str, str]) -> None:
        self.run = run
        self.log_path = log
        self.settings = settings
        self.url = ""
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Service":
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXD_")}
        environment |= self.run | {f"SANDBOXD_{name.upper()}": value for name, value in self.settings.items()}
        environment |= {"SANDBOXD_HOST": "127.0.0.1", "SANDBOXD_PORT": str(port), "SANDBOXD_TOKEN": TOKEN}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [START], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self.url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                    if answer.status == 200:
                        return self
            if self.process.poll() is not None:
                raise RuntimeError(f"it ended with {self.process.returncode} at start: {self.log_end()}")
            if time.monotonic() > deadline:
                self.process.kill()
                raise RuntimeError(f"no answer within {START_SECONDS} s: {self.log_end()}")
            time.sleep(0.02)

    def log_end(self) -> str:
        return self.log_path.read_text(errors="replace")[-2000:]

    def stop(self) -> float:
        """Asks it to end; how many seconds that took. One that does not end in time is a failure."""
        assert self.process is not None
        began = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
            raise RuntimeError(f"it did not end within {STOP_SECONDS} s of SIGTERM: {self.log_end()}") from None
        return time.monotonic() - began

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.stop()
