"""One older release of the client, unmodified: it opens, runs, writes and reads, and comes back to what it left."""

import importlib.metadata
import os

import pytest
from pydantic_ai.workspaces import Workspace
from pydantic_ai_backends.remote import WorkspaceArchive
from pydantic_ai_backends.workspaces import SandboxdWorkspace

URL, TOKEN = os.environ["SANDBOXD_URL"], os.environ["SANDBOXD_TOKEN"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_it_is_the_release_that_was_asked_for():
    assert importlib.metadata.version("pydantic-ai-backend") == os.environ["PEER_VERSION"]


@pytest.mark.anyio
async def test_it_opens_runs_writes_reads_and_comes_back():
    capability = SandboxdWorkspace(service_url=URL, token=TOKEN)
    backend = capability.backend()
    assert await backend.working_dir() == "/workspace"
    result = await backend.run("echo out; echo err >&2; exit 3", shell=True)
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")

    files = Workspace(backend)
    every_byte = bytes(range(256))
    await files.write_bytes("deep/er/blob.bin", every_byte)
    assert await files.read_bytes("/workspace/deep/er/blob.bin") == every_byte
    entries = await files.list_dir("deep/er")
    assert [(entry.name, entry.is_dir) for entry in entries] == [("blob.bin", False)]
    assert entries[0].size in (256, None)  # releases that list through the shell know none
    assert await files.exists("deep") and not await files.exists("absent")
    with pytest.raises(FileNotFoundError):
        await files.read_bytes("absent")

    assert backend.ref is not None
    again = Workspace(capability.backend(backend.ref))
    assert await again.read_bytes("deep/er/blob.bin") == every_byte

    archive = WorkspaceArchive(URL, token=TOKEN)
    assert archive.read_bytes(backend.ref.id, "deep/er/blob.bin") == every_byte
    archive.close()
    await capability.destroy(backend.ref)
