"""What makes the sandboxes in this run of the tests, and what of it can be seen on this host.

`TESTS_DOCKER_HOST` names a container engine that makes them, with images of the names in tests/peer/rootfs.py; without it the
service makes them itself. The engine has to be on this host, since its processes are looked at.
"""

import os
import pathlib
import subprocess

import pytest

NAME = "docker" if os.environ.get("TESTS_DOCKER_HOST") else "namespaces"
ENGINE = os.environ.get("TESTS_DOCKER_HOST", "")
SECONDS = 120


def settings() -> dict[str, str]:
    """What every daemon of the tests is told."""
    return {"backend": "docker", "docker_host": ENGINE} if ENGINE else {}


def environment() -> dict[str, str]:
    """The environment of a command that makes its sandboxes as the daemons of this run do."""
    return os.environ | {f"SANDBOXD_{name.upper()}": value for name, value in settings().items()}


def only_without_engine(why: str) -> pytest.MarkDecorator:
    """For tests of what a service on a container engine has not got, or does not do itself."""
    return pytest.mark.skipif(bool(ENGINE), reason=f"not on a container engine: {why}")


def docker(*words: str) -> str:
    """What Docker's command prints that ends well."""
    done = subprocess.run(
        ["docker", "--host", ENGINE, *words], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, f"{words}: {done.returncode}: {done.stderr}"
    return done.stdout


def containers(state_dir: pathlib.Path, *more: str) -> list[str]:
    """The ids of the containers of a state directory: those that run, with `--all` those that do not as well."""
    file = state_dir / "engine-state"
    if not ENGINE or not file.is_file():
        return []
    label = f"label=sandboxd.state={file.read_text().strip()}"
    return docker("ps", "--quiet", "--no-trunc", "--filter", label, *more).split()


def first_processes(state_dir: pathlib.Path) -> list[int]:
    """The first process of each container that runs, by its number on this host."""
    found = containers(state_dir)
    if not found:
        return []
    # One that ended meanwhile has none.
    done = subprocess.run(
        ["docker", "--host", ENGINE, "inspect", "--format", "{{.State.Pid}}", *found],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )
    return [int(word) for word in done.stdout.split() if word != "0"]
