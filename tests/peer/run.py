#!/usr/bin/env python3
"""The tests of the Python service of the same name, unmodified, against the built binary.

    run.py --binary target/release/sandboxd --cache .cache/peer [--suite NAME ...] [--docker-host unix:///...]

With `--docker-host` sandboxes are containers of that engine, which has to have images of the names in rootfs.py. Fetches the packages and their own tests by name, makes a root filesystem, and runs every suite below; each must pass at
least as many tests as the Python service itself passes this way, and fail none. Ends with what passed, by suite.
"""

import argparse
import dataclasses
import os
import pathlib
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree

import backend
import golden.compare
import packages
import rootfs
import schema
import service

HERE = pathlib.Path(__file__).resolve().parent
SUITE_MINUTES = 20
# One of them waits for a command of two minutes.
TEST_SECONDS = 240


@dataclasses.dataclass(frozen=True)
class Suite:
    """One suite: in which era's environment it runs, and how many tests must pass (what the Python service reaches)."""

    name: str
    era: str
    kind: str
    files: tuple[str, ...] = ()
    at_least: int = 0


SUITES = (
    Suite("conformance-url", "b", "url", ("test_conformance_url.py",), 39),
    Suite("remote-url", "a", "url", ("test_remote_sandbox_url.py",), 14),
    Suite("agent-a", "a", "url", ("test_agent.py",), 2),
    Suite("versions-b", "b", "versions", ("test_client_version.py",), 2 * len(packages.OLDER)),
    Suite("conformance-b", "b", "peer", ("tests/test_workspace_sandboxd_conformance.py",), 39),
    Suite("workspace-b", "b", "peer", ("tests/test_workspace_sandboxd.py",), 96),
    Suite("remote-b", "b", "peer", ("tests/test_remote_sandbox.py",), 198),
    Suite("policy-b", "b", "peer", ("tests/test_policy_updates.py",), 48),
    Suite("remote-a", "a", "peer", ("tests/test_remote_sandbox.py",), 201),
    Suite("golden-a", "a", "golden", at_least=220),
    Suite("golden-b", "b", "golden", at_least=364),
    Suite("schema", "", "schema", at_least=60),
)


# Left out on a container engine unless it is asked for: some minutes for requests that `remote-b` makes of the same routes, and
# what its client does of its own is in `remote-url`, `agent-a` and `golden-a`.
LONG_ON_DOCKER = ("remote-a",)


@dataclasses.dataclass
class Result:
    """What came of a suite."""

    passed: int
    failed: int
    skipped: int
    complaints: list[str]


class Place:
    """Where one suite runs: its folder, and what `start.sh` is told."""

    def __init__(self, suite: Suite, binary: pathlib.Path, cache: pathlib.Path, backend: backend.Backend) -> None:
        self.folder = cache / "run" / backend.name / suite.name
        self.backend = backend
        if self.folder.exists():
            shutil.rmtree(self.folder)
        self.folder.mkdir(parents=True)
        self.stops = self.folder / "stops.txt"
        self.report = self.folder / "report.xml"
        self.log = self.folder / "service.log"
        self.variables = {"PEER_BINARY": str(binary), "PEER_RUN": str(self.folder)} | backend.variables()

    def settings(self) -> dict[str, str]:
        """What the direct suites and the recordings want of a service."""
        workspaces = self.folder / "workspaces"
        workspaces.mkdir()
        return {
            "workspace_root": str(workspaces),
            "prewarm": "0",
            "max_sessions": "20",
        }

    def left_over(self) -> list[str]:
        """Processes and containers of this suite's services that outlived them."""
        found = self.backend.left_running(self.folder)
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit() and entry.name != str(os.getpid()):
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if f"{self.folder}/state.".encode() in words:
                    found.append(f"process {entry.name} outlived its service: {words[:200]!r}")
        return found


def pytest(suite: Suite, place: Place, cache: pathlib.Path, words: list[str], folder: pathlib.Path, env: dict) -> Result:
    """Runs it, and reads what it reports."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXD_")}
    environment |= place.variables | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(HERE)} | env
    command = [
        packages.python(cache, f"era-{suite.era}"), "-m", "pytest", "-q", "-rfE", "--tb=short", "-p", "no:cacheprovider",
        f"--timeout={TEST_SECONDS}", f"--basetemp={place.folder}/tmp", f"--junitxml={place.report}", *words,
    ]
    ended = subprocess.run(command, cwd=folder, env=environment, check=False, timeout=SUITE_MINUTES * 60)
    if not place.report.is_file():
        return Result(0, 0, 0, [f"pytest ended with {ended.returncode} and reported nothing"])
    counts = xml.etree.ElementTree.parse(place.report).getroot().find("testsuite")
    assert counts is not None
    total, failed, errors, skipped = (int(counts.get(key, "0")) for key in ("tests", "failures", "errors", "skipped"))
    complaints = [] if ended.returncode == 0 else [f"pytest ended with {ended.returncode}"]
    return Result(total - failed - errors - skipped, failed + errors, skipped, complaints)


def run_url(suite: Suite, place: Place, cache: pathlib.Path) -> Result:
    settings = place.settings() | {"runtimes": "python=python:3.12-slim,node=node:20-slim", "execute_timeout": "60"}
    with service.Service(place.variables, place.log, settings) as running:
        env = {"SANDBOXD_URL": running.url, "SANDBOXD_TOKEN": service.TOKEN}
        result = pytest(suite, place, cache, ["-c", "pytest.ini", *suite.files], HERE / "url", env)
        running.stop()
    return result


def run_versions(suite: Suite, place: Place, cache: pathlib.Path) -> Result:
    """The same checks with each older release of the client, in front of the environment's own on the path."""
    settings = place.settings() | {"runtimes": "python=python:3.12-slim"}
    total = Result(0, 0, 0, [])
    with service.Service(place.variables, place.log, settings) as running:
        for version in packages.OLDER:
            env = {
                "SANDBOXD_URL": running.url,
                "SANDBOXD_TOKEN": service.TOKEN,
                "PEER_VERSION": version,
                "PYTHONPATH": str(packages.older(cache, version)),
            }
            result = pytest(suite, place, cache, ["-c", "pytest.ini", *suite.files], HERE / "url", env)
            total.passed += result.passed
            total.failed += result.failed
            total.skipped += result.skipped
            total.complaints += [f"{version}: {complaint}" for complaint in result.complaints]
        running.stop()
    return total


def run_peer(suite: Suite, place: Place, cache: pathlib.Path) -> Result:
    sources = packages.tests(cache, suite.era)
    left_out = (HERE / "deselect" / f"era-{suite.era}.txt").read_text().splitlines()
    words = ["-p", "external_sandboxd", "-m", "", *suite.files]
    for name in left_out:
        if name and not name.startswith("#") and name.startswith(suite.files):
            words += ["--deselect", name]
    env = {"PEER_START": str(service.START), "PEER_STOPS": str(place.stops)}
    result = pytest(suite, place, cache, words, sources, env)
    stops = place.stops.read_text().splitlines() if place.stops.is_file() else []
    took = [line.split(" ", 1)[0] for line in stops]
    result.complaints += [f"not ended properly: {line}" for line in stops if not line[0].isdigit()]
    slowest = max((float(text) for text in took if text[0].isdigit()), default=0.0)
    print(f"{suite.name}: {len(stops)} starts, the slowest end took {slowest:.2f} s", flush=True)
    return result


def run_golden(suite: Suite, place: Place, cache: pathlib.Path) -> Result:
    settings = place.settings() | {
        "runtimes": "python=debian-with-git:1,node=debian-with-git:1",
        "execute_timeout": "20",
    }
    with service.Service(place.variables, place.log, settings) as running:
        asked = (suite.era, place.backend.name, running.url, service.TOKEN, place.folder)
        matched, complaints = golden.compare.run(*asked)
        running.stop()
    return Result(matched, len(complaints), 0, complaints)


def run_schema(suite: Suite, place: Place, cache: pathlib.Path) -> Result:
    settings = place.settings() | {"runtimes": "python=python:3.12-slim", "execute_timeout": "5"}
    python = packages.python(cache, suite.name)
    with service.Service(place.variables, place.log, settings) as running:
        passed, complaints = schema.run(python, running.url, service.TOKEN, place.folder)
        running.stop()
    return Result(passed, len(complaints), 0, complaints)


KINDS = {"schema": run_schema, "url": run_url, "versions": run_versions, "peer": run_peer, "golden": run_golden}


def run(suite: Suite, binary: pathlib.Path, cache: pathlib.Path, backend: backend.Backend) -> Result:
    place = Place(suite, binary, cache, backend)
    try:
        result = KINDS[suite.kind](suite, place, cache)
    except (RuntimeError, subprocess.SubprocessError) as error:
        result = Result(0, 0, 0, [str(error)])
    result.complaints += place.left_over()
    if result.passed < suite.at_least:
        result.complaints.append(f"{result.passed} passed, {suite.at_least} must")
    if not result.complaints and not result.failed:
        shutil.rmtree(place.folder)
    return result


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--binary", type=pathlib.Path, required=True, help="the built binary")
    arguments.add_argument("--cache", type=pathlib.Path, required=True, help="where what was fetched and made is kept")
    arguments.add_argument("--suite", action="append", choices=[suite.name for suite in SUITES], help="only this one")
    arguments.add_argument("--all", action="store_true", help=f"on a container engine {', '.join(LONG_ON_DOCKER)} too")
    arguments.add_argument("--docker-host", help="the container engine that makes the sandboxes; else none does")
    given = arguments.parse_args()
    binary, cache = given.binary.resolve(), given.cache.resolve()
    if not binary.is_file():
        arguments.error(f"{binary} is not there")
    cache.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "unittest", "-q", "test_comparison"], cwd=HERE, check=True, timeout=60)
    if given.docker_host:
        chosen = backend.Docker(given.docker_host)
    else:
        chosen = backend.Namespaces(rootfs.names(cache))
    lines, passed, failed = [], 0, 0
    for suite in SUITES:
        if given.suite and suite.name not in given.suite:
            continue
        if given.docker_host and suite.name in LONG_ON_DOCKER and not (given.all or given.suite):
            lines.append(f"{suite.name:16} left out on a container engine, since it is long: --all runs it")
            continue
        print(f"== {suite.name}", flush=True)
        began = time.monotonic()
        result = run(suite, binary, cache, chosen)
        passed += result.passed
        failed += max(result.failed, 1 if result.complaints else 0)
        took = time.monotonic() - began
        lines.append(
            f"{suite.name:16} {result.passed:4} passed ({suite.at_least} must), {result.failed} failed, "
            f"{result.skipped} skipped, {took:.0f} s"
        )
        lines += [f"    {complaint}" for complaint in result.complaints]
    print("\n".join(lines))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
