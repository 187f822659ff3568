"""What makes the sandboxes, as `start.sh` is told it; and what of it a suite has left behind."""

import dataclasses
import json
import pathlib
import subprocess

import rootfs

SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Namespaces:
    """The service itself, on root filesystems of these names."""

    images: str
    name: str = "namespaces"

    def variables(self) -> dict[str, str]:
        return {"PEER_IMAGES": self.images}

    def left_running(self, folder: pathlib.Path) -> list[str]:
        """Nothing but processes, which are looked for on every backend."""
        return []


@dataclasses.dataclass(frozen=True)
class Docker:
    """A container engine with images of these names."""

    host: str
    name: str = "docker"

    def __post_init__(self) -> None:
        here = self.says("image", "ls", "--format", "{{.Repository}}:{{.Tag}}").split()
        missing = [name for name in rootfs.NAMES if name not in here]
        if missing:
            raise SystemExit(f"the engine at {self.host} lacks {missing}: cargo xtask engine makes them")

    def says(self, *words: str) -> str:
        command = ["docker", "--host", self.host, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS).stdout

    def variables(self) -> dict[str, str]:
        return {"PEER_DOCKER_HOST": self.host}

    def left_running(self, folder: pathlib.Path) -> list[str]:
        """Containers of the suite's services that still run. Those that stopped and are kept for a next start of the same
        state directory, which there will not be, are removed."""
        complaints = []
        for file in folder.glob("state.*/engine-state"):
            filters = ["--all", "--no-trunc", "--filter", f"label=sandboxd.state={file.read_text().strip()}"]
            for row in self.says("ps", *filters, "--format", "{{json .}}").splitlines():
                container = json.loads(row)
                if container["State"] not in ("exited", "created"):
                    complaints.append(f"container {container['ID']} outlived its service: {container['Status']}")
                self.says("rm", "--force", "--volumes", container["ID"])
        return complaints


Backend = Namespaces | Docker
