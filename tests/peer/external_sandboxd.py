"""pytest plugin: the peer's own tests, unmodified, against the binary instead of the Python service.

`create_app(config, sandbox_builder=...)` is replaced by an ASGI reverse proxy. When its lifespan starts (a test client is
entered, or uvicorn starts), `start.sh` is run with the SANDBOXD_* variables that describe `config`; when it ends, that one
process is asked to end, and must do so in time. So everything that a test does over HTTP reaches the binary, and
everything it does by reaching inside the Python process (`app.state.service`, `harness.built`, ...) is turned into a skip:
what is left is the part that a client could see.

PEER_START is what to run; PEER_STOPS is a file that gets one line per start: how long its end took, and the test.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time
from types import SimpleNamespace

import httpx
import pytest

START = os.environ["PEER_START"]
STOPS = pathlib.Path(os.environ["PEER_STOPS"])
RUN = os.environ["PEER_RUN"]
START_SECONDS = 60
STOP_SECONDS = 30
HOP_BY_HOP = {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade"}


def white_box(what: str):
    raise pytest.skip.Exception(f"white-box: {what}", _use_item_location=True)


class Inside:
    """Stands for `app.state.service`: whoever uses it tests the Python objects, not the service."""

    def __getattr__(self, name):
        white_box(f"app.state.service.{name}")


class NoFakes(dict):
    """Stands for `harness.built`: the binary never calls the Python builder."""

    def __missing__(self, key):
        white_box(f"built[{key!r}]")

    def values(self):
        white_box("built.values()")


RUNTIME_FIELDS = (
    "image", "description", "mem_limit", "memswap_limit", "cpus", "cpu_shares", "pids_limit", "network_mode", "oci_runtime",
)


def runtime_entry(entry):
    if isinstance(entry, str):
        return entry
    fields = {name: getattr(entry, name) for name in RUNTIME_FIELDS}
    row = {name: value for name, value in fields.items() if value not in (None, "")}
    if entry.runtime is not None:
        named = isinstance(entry.runtime, str)
        row["runtime"] = entry.runtime if named else entry.runtime.model_dump(mode="json")
    return row


def variables(config) -> dict[str, str]:
    """The SANDBOXD_* variables that describe a `SandboxdConfig`."""
    found = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        key = "SANDBOXD_" + field.name.upper()
        if field.name == "runtimes":
            found[key] = json.dumps({alias: runtime_entry(entry) for alias, entry in value.items()})
        elif isinstance(value, bool):
            found[key] = "1" if value else "0"
        else:
            found[key] = "" if value is None else str(value)
    return found


class Proxy:
    """What `create_app` gives instead of the Python service."""

    def __init__(self, config, sandbox_builder=None):
        self.config = config
        self.state = SimpleNamespace(service=Inside())
        self.process = None
        self.base = ""
        self.injected = sandbox_builder is not None
        harness = getattr(sandbox_builder, "__self__", None)
        if harness is not None and hasattr(harness, "built"):
            harness.built = NoFakes()
            for hook in ("next_start_error", "next_start_gate"):
                if hook in vars(harness):
                    harness.__dict__.pop(hook)
                    setattr(type(harness), hook, property(lambda self: None, refuse(hook)))

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXD_")}
        environment |= variables(self.config)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        environment |= {"SANDBOXD_HOST": "127.0.0.1", "SANDBOXD_PORT": str(port)}
        if self.injected:
            environment["SANDBOXD_PREWARM"] = "0"  # with a builder of its own the Python service makes nothing ready
        with tempfile.NamedTemporaryFile("wb", dir=RUN, prefix="log.", delete=False) as log:
            self.process = subprocess.Popen([START], env=environment, stdout=log, stderr=subprocess.STDOUT)
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                if httpx.get(base + "/healthz", timeout=5, trust_env=False).status_code == 200:
                    self.base = base
                    return
            except httpx.HTTPError:
                pass
            if self.process.poll() is not None or time.monotonic() > deadline:
                end = pathlib.Path(log.name).read_text(errors="replace")[-500:]
                raise RuntimeError(f"the binary did not start; {log.name} ends with: {end}")
            time.sleep(0.02)

    def stop(self) -> None:
        if self.process is None:
            return
        test = os.environ.get("PYTEST_CURRENT_TEST", "?")
        began = time.monotonic()
        ended_early = self.process.poll()
        self.process.terminate()
        try:
            self.process.wait(timeout=STOP_SECONDS)
            took = f"{time.monotonic() - began:.2f}"
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(timeout=10)
            took = "never"
        if ended_early is not None:
            took = f"early({ended_early})"
        self.process = None
        with STOPS.open("a") as stops:
            stops.write(f"{took} {test}\n")

    async def __call__(self, scope, receive, send):
        if scope["type"] == "lifespan":
            await self.lifespan(receive, send)
        elif scope["type"] == "http":
            if not self.base:
                white_box("a request before the lifespan started")
            await self.forward(scope, receive, send)

    async def lifespan(self, receive, send):
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await asyncio.to_thread(self.start)
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            else:
                await asyncio.to_thread(self.stop)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def forward(self, scope, receive, send):
        async def body():
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return
                if message.get("body"):
                    yield message["body"]
                if not message.get("more_body"):
                    return

        url = self.base + scope.get("raw_path", scope["path"].encode()).decode("ascii").split("?")[0]
        if scope["query_string"]:
            url += "?" + scope["query_string"].decode("ascii")
        headers = [(name, value) for name, value in scope["headers"] if name not in HOP_BY_HOP and name != b"host"]
        sends_body = any(
            (name == b"content-length" and value != b"0") or name == b"transfer-encoding"
            for name, value in scope["headers"]
        )
        async with httpx.AsyncClient(trust_env=False, timeout=httpx.Timeout(600)) as client:
            content = body() if sends_body else None
            request = client.build_request(scope["method"], url, headers=headers, content=content)
            response = await client.send(request, stream=True)
            answered = [(name.lower(), value) for name, value in response.headers.raw if name.lower() not in HOP_BY_HOP]
            await send({"type": "http.response.start", "status": response.status_code, "headers": answered})
            async for chunk in response.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await response.aclose()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def routes(self):
        white_box("app.routes")


def refuse(hook: str):
    def setter(self, value):
        if value is not None:
            white_box(hook)

    return setter


def install() -> None:
    from pydantic_ai_backends.remote import server

    def create_app(config, *, sandbox_builder=None):
        return Proxy(config, sandbox_builder)

    server.create_app = create_app


install()
