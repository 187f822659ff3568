"""Recipes that a container engine builds, with real packages from their registries, and what the unmodified client's sessions
have of them, also after sleep and after their container is gone. An engine's builder is not told of registries by the
service, so the base image says where they are, as an operator's does."""

import asyncio
import contextlib
import json
import pathlib
import shutil
import time
import urllib.request
import uuid
from collections.abc import Iterator

import pytest
from pydantic_ai_backends import SandboxdWorkspace

import backend
import debian
from daemon import TOKEN, Daemon

pytestmark = pytest.mark.skipif(not backend.ENGINE, reason="only a container engine builds them: test_recipes has the others")

UID = 1000
# Debian keeps pip apart from its Python.
TOOLS = "apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-pip python3-venv && rm -rf /var/lib/apt/lists/*"


class Place:
    """A base image of these tests' own, and a configuration of recipes upon it."""

    def __init__(self, folder: pathlib.Path) -> None:
        debian.wait_longer()
        self.folder = folder
        self.mark = uuid.uuid4().hex[:12]
        self.base = f"registries-{self.mark}:1"
        self.config = folder / "sandboxd.toml"
        self.config.write_text("\n".join(self.lines()) + "\n")

    def build_base(self) -> None:
        """The Debian root, and what this machine knows of registries and whom to believe."""
        context = self.folder / "base"
        context.mkdir()
        lines = [f"FROM {debian.IMAGE}"]
        variables = debian.settings()
        if debian.CERTIFICATES.is_file():
            shutil.copy(debian.CERTIFICATES, context / "ca.pem")
            lines.append(f"COPY ca.pem {debian.CERTIFICATES}")
            variables |= dict.fromkeys(["PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"], str(debian.CERTIFICATES))
        lines += [f"ENV {name}={json.dumps(value)}" for name, value in variables.items()]
        (context / "Dockerfile").write_text("\n".join(lines) + "\n")
        backend.docker("build", "--quiet", "--tag", self.base, str(context))

    def lines(self) -> list[str]:
        settings = [
            *(f"{name} = {json.dumps(value)}" for name, value in backend.settings().items()),
            "prewarm = false",
            'image_pull = "never"',
            "persist_containers = true",
            "cleanup_interval = 1",
            f"sandbox_uid = {UID}",
        ]
        pip = {"setup_commands": [TOOLS], "packages": ["six==1.17.0", "Pygments==2.21.0"], "package_manager": "pip"}
        apt = {"packages": ["hello"], "package_manager": "apt"}
        for alias, fields in {"agent": pip, "system": apt}.items():
            settings += [f"[runtimes.{alias}]", f"[runtimes.{alias}.runtime]", f'name = "{alias}-{self.mark}"']
            settings.append(f'base_image = "{self.base}"')
            settings += [f"{name} = {json.dumps(value)}" for name, value in fields.items()]
        return settings

    def built(self, alias: str) -> list[str]:
        label = f"label=sandboxd.recipe={alias}-{self.mark}"
        return backend.docker("image", "ls", "--filter", label, "--format", "{{.Repository}}:{{.Tag}}").split()

    def prepare(self, alias: str) -> None:
        debian.command("runtime", "prepare", alias, "--config", self.config, state=self.folder / "state")

    def remove(self) -> None:
        """Images are large."""
        for name in [*self.built("agent"), *self.built("system"), self.base]:
            with contextlib.suppress(AssertionError):
                backend.docker("image", "rm", name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("engine-recipes"))
    try:
        place.build_base()
        yield place
    finally:
        place.remove()


def ask(daemon: Daemon, method: str, path: str, body: dict | None = None) -> dict:
    headers = {"X-Sandbox-Token": TOKEN, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{daemon.url}{path}", data, headers, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def test_a_system_package_is_installed_by_the_engine(place):
    place.prepare("system")
    assert len(place.built("system")) == 1
    # It is there now: once more builds nothing.
    before = place.built("system")
    place.prepare("system")
    assert place.built("system") == before


def test_packages_of_an_index_are_there_for_an_account_also_after_sleep(place):
    place.prepare("agent")
    with Daemon(place.folder, config=str(place.config)) as daemon:
        asyncio.run(an_account(daemon))


async def an_account(daemon: Daemon) -> None:
    workspace = SandboxdWorkspace(service_url=daemon.url, token=TOKEN, runtime="agent").backend()

    async def says(script: str) -> str:
        done = await workspace.run(script, shell=True)
        assert done.exit_code == 0, (script, done)
        return done.stdout.strip()

    packages = "python3 -c 'import six; print(six.__version__)'; pygmentize -V | cut -d, -f1"
    found = "1.17.0\nPygments version 2.21.0"
    assert await says("id -u; id -un; echo $HOME; command -v python3; command -v pip") == (
        f"{UID}\nagent\n/home/agent\n/opt/venv/bin/python3\n/opt/venv/bin/pip"
    )
    assert await says(packages) == found
    refused = await workspace.run("echo x >>/etc/passwd", shell=True)
    assert refused.exit_code != 0 and "Permission denied" in refused.stderr, refused
    # The account's own Python takes what it is given.
    site = "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')"
    await says(f"echo 'ANSWER = 42' > {site}/later.py; echo kept > note.txt")
    assert workspace.ref is not None
    session = workspace.ref.id
    slept = ask(daemon, "POST", f"/sessions/{session}/hibernate")
    assert slept["state"] == "hibernated", slept
    later = "python3 -c 'import later; print(later.ANSWER)'"
    assert await says(f"{packages}; {later}; cat note.txt") == f"{found}\n42\nkept"
    slept = ask(daemon, "POST", f"/sessions/{session}/hibernate")
    assert slept["state"] == "hibernated", slept
    ask(daemon, "PUT", "/policy", {"container_ttl": 0})
    deadline = time.monotonic() + 120
    while backend.containers(daemon.state_dir, "--all"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    # Its files are there, and so is what the image has.
    assert await says(f"{packages}; cat note.txt; {later} 2>/dev/null || echo gone") == f"{found}\nkept\ngone"


def test_the_system_package_is_there_for_a_session(place):
    with Daemon(place.folder, config=str(place.config)) as daemon:
        assert ask(daemon, "GET", "/policy")["buildkit"] is True

        async def hello() -> None:
            workspace = SandboxdWorkspace(service_url=daemon.url, token=TOKEN, runtime="system").backend()
            done = await workspace.run(["hello"])
            assert (done.exit_code, done.stdout) == (0, "Hello, world!\n"), done

        asyncio.run(hello())
