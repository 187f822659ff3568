"""The peer's packages, from the registry by name: a virtual environment per era, and the sources with its own tests."""

import hashlib
import pathlib
import shutil
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).parent
MINUTES = 15

VERSIONS = {"a": "0.2.29", "b": "0.2.37"}
# The releases between the two whose client asks for other things than its predecessor's.
OLDER = ("0.2.30", "0.2.32", "0.2.34", "0.2.35", "0.2.36")
# SHA-256 of the source distributions.
SOURCES = {
    "a": "acf2abd1aceeb40cfd9f1a2076123df0bce19c82a45288fd1cdde60b831acbec",
    "b": "e17509a069fcfe9fa63e0dd72a231a138fb7e324a7ae0f880bcdcb476919961b",
}


def python(cache: pathlib.Path, name: str) -> pathlib.Path:
    """The Python of a virtual environment with what `environments/{name}.txt` lists, made anew when the list changed."""
    wanted = (HERE / "environments" / f"{name}.txt").read_text()
    place = cache / "python" / name
    stamp = place / "installed.txt"
    program = place / "bin/python"
    if stamp.is_file() and stamp.read_text() == wanted:
        return program
    print(f"installing Python packages into {place}", flush=True)
    if place.exists():
        shutil.rmtree(place)
    subprocess.run([sys.executable, "-m", "venv", place], check=True, timeout=MINUTES * 60)
    pip(program, "install", "--requirement", str(HERE / "environments" / f"{name}.txt"))
    stamp.write_text(wanted)
    return program


def tests(cache: pathlib.Path, era: str) -> pathlib.Path:
    """The unpacked source distribution, unmodified: the tests are not in the wheel."""
    name = f"pydantic_ai_backend-{VERSIONS[era]}"
    place = cache / "sources" / name
    if place.is_dir():
        return place
    archive = place.with_name(f"{name}.tar.gz")
    if not archive.is_file():
        print(f"fetching the sources of pydantic-ai-backend {VERSIONS[era]}", flush=True)
        archive.parent.mkdir(parents=True, exist_ok=True)
        only = ["--no-deps", "--no-binary", "pydantic-ai-backend", "--dest", str(archive.parent)]
        pip(python(cache, f"era-{era}"), "download", *only, f"pydantic-ai-backend=={VERSIONS[era]}")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SOURCES[era]:
        raise SystemExit(f"{archive} is not the one that was tried: its SHA-256 is {digest}")
    unfinished = place.with_name(f"{name}.unfinished")
    if unfinished.exists():
        shutil.rmtree(unfinished)
    with tarfile.open(archive) as packed:
        packed.extractall(unfinished, filter="data")
    (unfinished / name).rename(place)
    unfinished.rmdir()
    return place


def older(cache: pathlib.Path, version: str) -> pathlib.Path:
    """A folder with that release of the package alone; what it needs is era B's."""
    place = cache / "releases" / version
    if not place.is_dir():
        print(f"fetching pydantic-ai-backend {version}", flush=True)
        unfinished = place.with_name(f"{version}.unfinished")
        if unfinished.exists():
            shutil.rmtree(unfinished)
        only = ["--no-deps", "--only-binary", "pydantic-ai-backend", "--target", str(unfinished)]
        pip(python(cache, "era-b"), "install", *only, f"pydantic-ai-backend=={version}")
        unfinished.rename(place)
    return place


def pip(program: pathlib.Path, *words: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check", "--no-input"]
    subprocess.run([program, "-m", "pip", words[0], *quiet, *words[1:]], check=True, timeout=MINUTES * 60)
