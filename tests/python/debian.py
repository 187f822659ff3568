"""A Debian root filesystem as an image, and how builds on it reach the registries that this machine reaches."""

import faulthandler
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from daemon import BINARY

PROJECT = pathlib.Path(__file__).resolve().parents[2]
IMAGE = "python:3.12-slim"
# This machine's own, which may know more than an image's: a proxy's, for instance.
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
MINUTES = 20
# What installers go by to find their registry.
SETTINGS = ("PIP_INDEX_URL", "npm_config_registry", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a Debian root filesystem")


def wait_longer() -> None:
    """What is fetched and built takes minutes on a busy machine: the watch for tests that hang goes by our own deadlines."""
    faulthandler.dump_traceback_later((MINUTES + 1) * 60, exit=True, file=sys.__stderr__)


def root() -> pathlib.Path:
    """The root filesystem that the tests of the Python service run in as well; made where it is not there yet."""
    wait_longer()
    spec = importlib.util.spec_from_file_location("rootfs", PROJECT / "tests/peer/rootfs.py")
    assert spec is not None and spec.loader is not None
    rootfs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rootfs)
    return pathlib.Path(json.loads(rootfs.names(PROJECT / ".cache/peer"))[IMAGE])


def command(*words: str | pathlib.Path, state: pathlib.Path, env: dict[str, str] | None = None) -> str:
    """What the command prints that ends well."""
    wait_longer()
    environment = {"PATH": os.environ["PATH"]} | (env or {})
    done = subprocess.run(
        [BINARY, *words, "--state-dir", state], env=environment, capture_output=True, text=True, timeout=MINUTES * 60
    )
    assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def settings() -> dict[str, str]:
    """What this machine's installers are told about where their registries are."""
    return {name: os.environ[name] for name in SETTINGS if name in os.environ}


def build_settings(**more: str) -> list[str]:
    """Lines of a configuration: builds reach what this machine reaches."""
    return [
        f"build_env = {json.dumps(json.dumps(settings() | more))}",
        *([f'build_ca_file = "{CERTIFICATES}"'] if CERTIFICATES.is_file() else []),
    ]
