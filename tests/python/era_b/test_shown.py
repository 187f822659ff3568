"""From a Debian root to a session that sleeps and wakes, by the built command, a real registry and the unmodified client:
imported, pushed, pulled on a state directory that has nothing yet, built upon by a recipe, opened, put to sleep. Each test
goes on from where the one before it ended."""

import asyncio
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import pytest
from pydantic_ai_backends import SandboxdWorkspace

import debian
from backend import only_without_engine
from daemon import TOKEN, Daemon, free_port
from debian import IMAGE, command, needs_root

pytestmark = only_without_engine("images are imported into and pulled into the service's own store")

PACKAGES = {"six": "1.17.0", "iniconfig": "2.3.1"}
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"

@contextlib.contextmanager
def registry(folder: pathlib.Path) -> Iterator[str]:
    """Debian's registry on a loopback port; where it is asked."""
    assert shutil.which("docker-registry"), "docker-registry is missing; cargo xtask test installs it"
    address = f"127.0.0.1:{free_port()}"
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {"addr": address},
    }
    file = folder / "registry.json"
    file.write_text(json.dumps(config))
    process = subprocess.Popen(["docker-registry", "serve", file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/v2/", timeout=5):
                break
            assert time.monotonic() < deadline, "the registry does not answer"
            time.sleep(0.05)
        yield f"http://{address}"
    finally:
        process.kill()
        process.wait(10)


def digest(file: pathlib.Path) -> str:
    with file.open("rb") as content:
        return "sha256:" + hashlib.file_digest(content, "sha256").hexdigest()


def push(url: str, repository: str, tag: str, layer: pathlib.Path, folder: pathlib.Path) -> None:
    """Puts what a directory holds into a registry, as an image of one layer."""
    tar, packed, config = folder / "layer.tar", folder / "layer.tar.gz", folder / "config.json"
    subprocess.run(["tar", "--numeric-owner", "--xattrs", "-C", layer, "-cf", tar, "."], check=True, timeout=600)
    with packed.open("wb") as out:
        subprocess.run(["gzip", "-1", "-c", tar], stdout=out, check=True, timeout=600)
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    described = {
        "architecture": machine,
        "os": "linux",
        "config": {"Env": ["LANG=C.UTF-8"]},
        "rootfs": {"type": "layers", "diff_ids": [digest(tar)]},
    }
    config.write_text(json.dumps(described))
    tar.unlink()

    def send(method: str, address: str, content: pathlib.Path | bytes, kind: str) -> str:
        body = content if isinstance(content, bytes) else content.open("rb")
        length = len(content) if isinstance(content, bytes) else content.stat().st_size
        headers = {"Content-Type": kind, "Content-Length": str(length)}
        request = urllib.request.Request(address, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return answer.headers.get("Location", "")

    def blob(file: pathlib.Path, kind: str) -> dict[str, str | int]:
        place = send("POST", f"{url}/v2/{repository}/blobs/uploads/", b"", "application/octet-stream")
        send("PUT", f"{place}&digest={digest(file)}", file, "application/octet-stream")
        return {"mediaType": kind, "digest": digest(file), "size": file.stat().st_size}

    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blob(config, CONFIG),
        "layers": [blob(packed, LAYER)],
    }
    send("PUT", f"{url}/v2/{repository}/manifests/{tag}", json.dumps(manifest).encode(), MANIFEST)
    packed.unlink()


def configuration(folder: pathlib.Path, mirror: str) -> pathlib.Path:
    """One runtime: a recipe on the image, whose packages come from the index that this machine uses."""
    # Debian keeps pip apart from its Python, and marks that Python as its own.
    pip = "apt-get install -y --no-install-recommends python3-pip && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED"
    packages = [f"{name}=={version}" for name, version in PACKAGES.items()]
    lines = [
        "keep_layer = true",
        f"registry_mirrors = {json.dumps(['docker.io=' + mirror])}",
        *debian.build_settings(),
        "[runtimes.python]",
        'description = "Debian with two packages"',
        "[runtimes.python.runtime]",
        'name = "shown"',
        f'base_image = "{IMAGE}"',
        f"setup_commands = {json.dumps(['apt-get update && ' + pip + ' && rm -rf /var/lib/apt/lists/*'])}",
        f"packages = {json.dumps(packages)}",
        'package_manager = "pip"',
    ]
    file = folder / "sandboxd.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def ask(daemon: Daemon, method: str, path: str) -> dict:
    request = urllib.request.Request(f"{daemon.url}{path}", headers={"X-Sandbox-Token": TOKEN}, method=method)
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    """Where all of it happens; it goes, since images are large."""
    folder = tmp_path_factory.mktemp("shown")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def mirror(folder: pathlib.Path) -> Iterator[str]:
    with registry(folder) as url:
        yield url


@needs_root
def test_a_debian_root_is_imported_and_pushed(folder, mirror):
    state = folder / "first"
    imported = command("image", "import", debian.root(), "--name", IMAGE, state=state)
    assert imported.startswith(f"{IMAGE}  sha256:"), imported
    layer = json.loads(command("image", "inspect", IMAGE, state=state))["layers"][0]
    push(mirror, "library/python", "3.12-slim", pathlib.Path(layer["path"]), folder)


@needs_root
def test_it_is_pulled_on_a_fresh_state_directory(folder, mirror):
    file = configuration(folder, mirror)
    pulled = command("image", "pull", IMAGE, "--config", file, state=folder / "state")
    assert re.fullmatch(rf"{re.escape(IMAGE)}  sha256:[0-9a-f]{{64}}\n", pulled), pulled


@needs_root
def test_a_recipe_on_it_installs_two_packages(folder, mirror):
    file = configuration(folder, mirror)
    command("runtime", "prepare", "--config", file, state=folder / "state")


@needs_root
def test_the_unmodified_client_finds_the_packages_also_after_sleep(folder):
    # Nothing is fetched any more: what is needed is here.
    file = configuration(folder, "http://127.0.0.1:9")
    with Daemon(folder, config=str(file)) as daemon:
        asyncio.run(conversation(daemon))


async def conversation(daemon: Daemon) -> None:
    backend = SandboxdWorkspace(service_url=daemon.url, token=TOKEN).backend()

    async def says(script: str) -> str:
        done = await backend.run(script, shell=True)
        assert done.exit_code == 0, (script, done)
        return done.stdout

    versions = "python3 -c 'import six, importlib.metadata as m; print(six.__version__, m.version(\"iniconfig\"))'"
    expected = f"{PACKAGES['six']} {PACKAGES['iniconfig']}\n"
    assert await says(versions) == expected
    assert "Debian" in await says("cat /etc/os-release")
    assert backend.ref is not None
    session = backend.ref.id
    # What the session itself installs lies in its own layer, beside nothing else.
    site = "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()[\"purelib\"])')"
    await says(f"mkdir -p {site} && echo 'ANSWER = 42' > {site}/installed_later.py && echo kept > note.txt")
    slept = ask(daemon, "POST", f"/sessions/{session}/hibernate")
    assert slept["state"] == "hibernated", slept
    stored = json.loads(command("session", "du", session, "--json", state=daemon.state_dir))["sessions"][0]
    assert stored["state"] == "hibernated" and stored["layer"]["kept"], stored
    assert stored["layer"]["bytes"] < 1 << 20, "nothing of the image is in the session's own layer"
    assert stored["image"]["bytes"] > 100 << 20, stored
    later = "python3 -c 'import installed_later; print(installed_later.ANSWER)'"
    assert await says(f"{versions}; {later}; cat note.txt") == f"{expected}42\nkept\n"
