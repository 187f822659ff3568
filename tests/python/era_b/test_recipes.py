"""Recipes with real packages of every kind, from their registries, and what a session has of them: installed as an account
with `sandbox_uid`, as root inside, and by the build. One Debian root and one state directory for all; the tests of one run go
on from where those before them ended."""

import asyncio
import contextlib
import hashlib
import http.server
import io
import json
import pathlib
import shlex
import shutil
import socket
import subprocess
import tarfile
import threading
import time
import urllib.request
import zipfile
from collections.abc import Awaitable, Callable, Iterator

import pytest
from pydantic_ai_backends import SandboxdWorkspace

import debian
from backend import only_without_engine
from daemon import TOKEN, Daemon
from debian import IMAGE, command, needs_root

pytestmark = [needs_root, only_without_engine("an engine builds its own: test_engine_recipes")]

# What is built first, without a uid, for others to begin with. Debian's cargo of this name is the one that is new enough for
# today's index.
BASES = {"tools": ["python3-pip", "python3-venv", "nodejs"], "cargo": ["cargo-web"], "go": ["golang-go"]}
READY = "with-a-user:1"
READY_USER = 4242
MODULE = "modules.example/greeting"
NPM = "https://registry.npmjs.org/npm/-/npm-10.9.9.tgz"
# Node comes without npm, and Debian's brings half a thousand packages along.
INSTALL_NPM = (
    f"mkdir -p /usr/local/lib/node_modules && cd /usr/local/lib/node_modules && python3 -c \"import urllib.request as u, "
    f"shutil, sys; shutil.copyfileobj(u.urlopen('{NPM}'), sys.stdout.buffer)\" | tar -xz --no-same-owner && mv package npm && "
    "ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm"
)
UID = 1000


class Modules(http.server.BaseHTTPRequestHandler):
    """A proxy for Go with one module in one version, whose program says hello."""

    asked: list[str] = []

    def files(self) -> dict[str, bytes]:
        described = f"module {MODULE}\n\ngo 1.19\n".encode()
        program = b'package main\n\nimport "fmt"\n\nfunc main() { fmt.Println("hello from a module") }\n'
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr(f"{MODULE}@v1.0.0/go.mod", described)
            packed.writestr(f"{MODULE}@v1.0.0/main.go", program)
        version = json.dumps({"Version": "v1.0.0", "Time": "2026-01-01T00:00:00Z"}).encode()
        return {
            f"/{MODULE}/@latest": version,
            f"/{MODULE}/@v/list": b"v1.0.0\n",
            f"/{MODULE}/@v/v1.0.0.info": version,
            f"/{MODULE}/@v/v1.0.0.mod": described,
            f"/{MODULE}/@v/v1.0.0.zip": archive.getvalue(),
        }

    def do_GET(self) -> None:
        self.asked.append(self.path)
        content = self.files().get(self.path)
        self.send_response(404 if content is None else 200)
        self.end_headers()
        self.wfile.write(content or b"not found")

    def log_message(self, *_: object) -> None:
        pass


def own_address() -> str:
    """The address by which this host is on its network; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("198.51.100.1", 9))
        return probe.getsockname()[0]


@pytest.fixture(scope="module")
def modules() -> Iterator[str]:
    """Where Go's modules are asked for, as host and port: a build reaches it because `network_allow` names it."""
    with http.server.ThreadingHTTPServer((own_address(), 0), Modules) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{server.server_address[0]}:{server.server_address[1]}"
        server.shutdown()


def ready_image(folder: pathlib.Path) -> pathlib.Path:
    """A small OCI layout whose programs run as a user of its own."""
    root = debian.root()
    programs = ["/usr/bin/dash", "/usr/bin/id", "/usr/bin/touch"]
    linked = subprocess.run(["chroot", root, "ldd", *programs], check=True, capture_output=True, text=True, timeout=60)
    files = {word for word in linked.stdout.split() if word.startswith("/") and not word.endswith(":")}
    layout = folder / "ready"
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes, kind: str) -> dict[str, str | int]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, target in {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "usr/bin/sh": "dash"}.items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            tar.addfile(link)
        for name in {str(pathlib.PurePath("/usr") / file.removeprefix("/usr/").lstrip("/")) for file in [*files, *programs]}:
            tar.add((root / name.lstrip("/")).resolve(), name.lstrip("/"))
    layer = blob(packed.getvalue(), "application/vnd.oci.image.layer.v1.tar")
    described = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"User": str(READY_USER), "Env": ["PATH=/usr/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    config = blob(json.dumps(described).encode(), "application/vnd.oci.image.config.v1+json")
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}
    entry = blob(json.dumps(manifest).encode(), kind)
    (layout / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return layout


def recipe(alias: str, base: str, **fields: object) -> list[str]:
    lines = [f"[runtimes.{alias}]", 'network_mode = "bridge"', f"[runtimes.{alias}.runtime]", f'name = "{alias}"']
    lines.append(f'base_image = "{base}"')
    return lines + [f"{name} = {json.dumps(value)}" for name, value in fields.items()]


class Place:
    """A state directory, and the configuration of all runtimes that are built in it."""

    def __init__(self, folder: pathlib.Path, modules: str) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.config = folder / "sandboxd.toml"
        self.bases: dict[str, str] = {}
        go = {"GOPROXY": f"http://{modules}", "GONOSUMDB": "*", "GOSUMDB": "off"}
        self.settings = [
            "prewarm = false",
            'image_pull = "never"',
            "keep_layer = true",
            "cleanup_interval = 1",
            'mem_limit = "1g"',
            f"network_allow = [{json.dumps(modules)}]",
            *debian.build_settings(**go),
        ]
        command("image", "import", debian.root(), "--name", IMAGE, state=self.state)
        command("image", "import", ready_image(folder), "--name", READY, state=self.state)

    def build_base(self, alias: str) -> None:
        self.write([], recipe(alias, IMAGE, packages=BASES[alias], package_manager="apt"))
        self.prepare(alias)
        images = json.loads(command("image", "ls", "--json", state=self.state))
        named = [name for image in images for name in image["names"] if name.startswith(f"localhost/recipe/{alias}:")]
        assert len(named) == 1, images
        self.bases[alias] = named[0]
        if len(self.bases) == len(BASES):
            self.write([f"sandbox_uid = {UID}"], self.runtimes())

    def write(self, settings: list[str], runtimes: list[str]) -> None:
        self.config.write_text("\n".join([*self.settings, *settings, *runtimes]) + "\n")

    def runtimes(self) -> list[str]:
        tools = self.bases["tools"]
        return [
            *recipe("agent", tools, packages=["six==1.17.0", "uv==0.13.9"]),
            *recipe("lean", tools, setup_commands=["rm -r /usr/lib/python3*/ensurepip"]),
            *recipe(
                "node",
                tools,
                packages=["is-number@7.0.0", "semver@7.8.6"],
                package_manager="npm",
                setup_commands=[INSTALL_NPM],
            ),
            *recipe("rust", self.bases["cargo"], packages=["is_ci@1.2.0"], package_manager="cargo"),
            *recipe("golang", self.bases["go"], packages=[MODULE], package_manager="go"),
            "[runtimes.ready]",
            f'image = "{READY}"',
            "[runtimes.plain]",
            f'image = "{IMAGE}"',
            'network_mode = "bridge"',
        ]

    def prepare(self, alias: str) -> None:
        command("runtime", "prepare", alias, "--config", self.config, state=self.state)

    def session(self, alias: str, conversation: "Callable[[Says], Awaitable[None]]") -> None:
        """Opens one of this runtime by the unmodified client. Its image has to be here already."""
        with Daemon(self.folder, config=str(self.config)) as daemon:
            asyncio.run(conversation(Says(daemon, alias)))


class Says:
    """What a session's shell prints."""

    def __init__(self, daemon: Daemon, alias: str) -> None:
        self.daemon = daemon
        self.backend = SandboxdWorkspace(service_url=daemon.url, token=TOKEN, runtime=alias).backend()

    async def __call__(self, script: str) -> str:
        done = await self.backend.run(script, shell=True)
        assert done.exit_code == 0, (script, done)
        return done.stdout.strip()

    async def refuses(self, script: str, why: str) -> None:
        done = await self.backend.run(script, shell=True)
        assert done.exit_code != 0 and why in done.stderr, (script, done)

    async def registries(self) -> str:
        """What a script begins with whose programs reach and trust what this machine does."""
        variables = debian.settings()
        if debian.CERTIFICATES.is_file():
            await self.backend.write_bytes("/workspace/ca.pem", debian.CERTIFICATES.read_bytes())
            names = ["PIP_CERT", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"]
            variables |= dict.fromkeys(names, "/workspace/ca.pem")
        return "".join(f"export {name}={shlex.quote(value)}; " for name, value in variables.items())

    def ask(self, method: str, path: str, body: dict | None = None) -> dict:
        headers = {"X-Sandbox-Token": TOKEN, "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.daemon.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())

    def layer(self, session: str) -> str | None:
        """Where the session's write layer is kept, if it is."""
        listed = json.loads(command("session", "ls", "--json", state=self.daemon.state_dir))
        return next(one["layer"] for one in listed if one["session_id"] == session)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, modules: str) -> Iterator[Place]:
    """It goes, since toolchains are large."""
    folder = tmp_path_factory.mktemp("recipes")
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        yield Place(folder, modules)


@pytest.mark.parametrize("base", BASES)
def test_what_others_begin_with_is_installed_by_apt(place, base):
    place.build_base(base)


def test_an_account_installs_commits_and_changes_nothing_of_the_system(place):
    place.prepare("agent")
    place.session("agent", an_account)


async def an_account(says: Says) -> None:
    assert await says("id -u; id -un; echo $HOME; command -v python3; command -v pip") == (
        f"{UID}\nagent\n/home/agent\n/opt/venv/bin/python3\n/opt/venv/bin/pip"
    )
    # What the recipe installed is the system's, and seen.
    assert await says("python3 -c 'import six; print(six.__version__)'") == "1.17.0"
    registries = await says.registries()
    await says(f"{registries}pip install --no-cache-dir Pygments==2.21.0")
    assert await says("command -v pygmentize; pygmentize -V | cut -d, -f1") == (
        "/opt/venv/bin/pygmentize\nPygments version 2.21.0"
    )
    await says(f"{registries}uv pip install --no-cache iniconfig==2.3.1")
    assert await says("python3 -c 'import iniconfig; print(iniconfig.__file__.split(\"/lib/\")[0])'") == "/opt/venv"
    commit = "git init -q repo && cd repo && echo one >file && git add file && git commit -qm one && git log --format=%an:%s"
    assert await says(commit) == "Agent:one"
    site = "$(/usr/bin/python3 -c 'import os, six; print(os.path.dirname(six.__file__))')"
    for target in ["/etc/passwd", "/etc/new", f"{site}/new.py", f"{site}/six.py", "/usr/local/bin/new"]:
        await says.refuses(f"echo x >>{target}", "Permission denied")
    await says.refuses("python3 -m pip --python /usr/bin/python3 uninstall -y --break-system-packages six", "")
    assert await says("echo x >>~/new; echo x >>/opt/venv/new; cat ~/new; python3 -c 'import six'") == "x"
    await lasts_as_long_as_its_layer(says)


async def lasts_as_long_as_its_layer(says: Says) -> None:
    session = says.backend.ref.id
    slept = says.ask("POST", f"/sessions/{session}/hibernate")
    assert slept["state"] == "hibernated", slept
    assert await says("pygmentize -V | cut -d, -f1; python3 -c 'import iniconfig'; cat repo/file") == (
        "Pygments version 2.21.0\none"
    )
    slept = says.ask("POST", f"/sessions/{session}/hibernate")
    assert slept["state"] == "hibernated", slept
    says.ask("PUT", "/policy", {"container_ttl": 0})
    deadline = time.monotonic() + 120
    while (layer := says.layer(session)) is not None:
        assert time.monotonic() < deadline, layer
        await asyncio.sleep(0.2)
    # The workspace is there, and so is what the image has.
    assert await says("cat repo/file; python3 -c 'import six'; command -v pip; command -v pygmentize || echo gone") == (
        "one\n/opt/venv/bin/pip\ngone"
    )


def test_an_account_without_pythons_own_installer_installs_all_the_same(place):
    place.prepare("lean")
    place.session("lean", without_ensurepip)


async def without_ensurepip(says: Says) -> None:
    assert await says("id -u; echo $HOME; command -v python3; command -v pip") == (
        f"{UID}\n/home/agent\n/opt/venv/bin/python3\n/opt/venv/bin/pip"
    )
    registries = await says.registries()
    await says(f"{registries}pip install --no-cache-dir Pygments==2.21.0")
    assert await says("command -v pygmentize") == "/opt/venv/bin/pygmentize"


def test_a_ready_made_image_keeps_its_own_user(place):
    place.session("ready", a_ready_made_image)


async def a_ready_made_image(says: Says) -> None:
    assert await says("id -u; touch mine") == str(READY_USER)


def test_nodes_packages_are_found_with_a_workspace_mounted(place):
    place.prepare("node")
    place.session("node", nodes_packages)


async def nodes_packages(says: Says) -> None:
    assert await says("pwd; id -u; node -p 'require(\"is-number\")(\"5\")'") == f"/workspace\n{UID}\ntrue"
    assert await says("command -v semver; semver 1.2.3 --increment minor") == (
        "/opt/node-packages/node_modules/.bin/semver\n1.3.0"
    )
    registries = await says.registries()
    await says(f"{registries}npm install --no-audit --no-fund --cache /tmp/npm is-odd@3.0.1")
    assert await says("node -p 'require(\"is-odd\")(3)'; ls -d node_modules package.json") == "true\nnode_modules\npackage.json"


def test_root_inside_installs_system_packages(place):
    place.session("plain", system_packages)


async def system_packages(says: Says) -> None:
    assert await says("id -u; command -v hello || echo none") == "0\nnone"
    await says("apt-get update -qq && apt-get install -y --no-install-recommends hello")
    assert await says("hello; dpkg -s hello | grep ^Status") == "Hello, world!\nStatus: install ok installed"


def test_a_crates_program_is_in_the_path(place):
    place.prepare("rust")
    place.session("rust", a_crates_program)


async def a_crates_program(says: Says) -> None:
    assert await says("command -v is_ci; env -u CI is_ci; echo $?; CI=true is_ci; echo $?") == "/usr/local/bin/is_ci\n1\n0"
    # What it was built with is no part of the image.
    assert await says("ls -d /tmp/sandboxd-build /root/.cargo 2>/dev/null || echo nothing") == "nothing"


def test_a_modules_program_is_in_the_path(place):
    place.prepare("golang")
    assert f"/{MODULE}/@v/v1.0.0.zip" in Modules.asked
    place.session("golang", a_modules_program)


async def a_modules_program(says: Says) -> None:
    assert await says("command -v greeting; greeting") == "/usr/local/bin/greeting\nhello from a module"
