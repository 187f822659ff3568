"""What every suite has: the binary, and a daemon per test module."""

import pathlib

import pytest

import daemon as service


def pytest_configure(config: pytest.Config) -> None:
    if not service.BINARY or not pathlib.Path(service.BINARY).is_file():
        raise pytest.UsageError("SANDBOXD_BINARY names the built binary: run `cargo xtask test python`")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory):
    with service.Daemon(tmp_path_factory.mktemp("sandboxd")) as running:
        yield running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo):
    """A failure shows the end of the daemon's log, which says why."""
    report = yield
    running = getattr(item, "funcargs", {}).get("daemon")
    if report.when == "call" and report.failed and running is not None:
        report.sections.append(("end of the daemon's log", running.log()[-1500:]))
    return report
