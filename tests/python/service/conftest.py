"""What the tests of the service share."""

import os
import pathlib
import shutil
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import backend  # noqa: E402
import daemon as service_process  # noqa: E402
from client import Service  # noqa: E402

ORDINARY_UID = 65534


@pytest.fixture
def service(daemon) -> Service:
    return Service(daemon.url)


@pytest.fixture
def session(service):
    opened = service.open()
    yield opened
    opened.close()


@pytest.fixture
def ordinary() -> Iterator[list[str]]:
    """The beginning of a command that runs the binary as a user without rights.

    As root, such a user is made up; otherwise it is ourselves.
    """
    if backend.ENGINE:
        pytest.skip("not on a container engine: its socket is root's")
    if os.geteuid() != 0:
        yield [service_process.BINARY]
        return
    folder = pathlib.Path("/var/tmp") / f"sandboxd-tests-{os.getpid()}"
    folder.mkdir(mode=0o755, exist_ok=True)
    binary = folder / "sandboxd"
    if not binary.exists():
        shutil.copy(service_process.BINARY, binary)
        binary.chmod(0o755)
    home = folder / "home"
    home.mkdir(exist_ok=True)
    os.chown(home, ORDINARY_UID, ORDINARY_UID)
    who = ["setpriv", f"--reuid={ORDINARY_UID}", f"--regid={ORDINARY_UID}", "--clear-groups"]
    yield [*who, "--inh-caps=-all", "--bounding-set=-all", "env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin", str(binary)]
    shutil.rmtree(folder, ignore_errors=True)
