"""WorkspaceArchive of pydantic-ai-backend 0.2.37, unmodified, over what a session left behind."""

import asyncio

import pytest
from pydantic_ai.workspaces import Workspace
from pydantic_ai_backends import SandboxdWorkspace
from pydantic_ai_backends.remote import WorkspaceArchive, WorkspaceArchiveError

from daemon import TOKEN

PICTURE = bytes(range(256))


@pytest.fixture(scope="module")
def left_behind(daemon) -> str:
    """The id of a session that wrote some files."""

    async def write() -> str:
        backend = SandboxdWorkspace(service_url=daemon.url, token=TOKEN).backend()
        workspace = Workspace(backend)
        await workspace.write_bytes("notes/today.md", b"# Today\nsun\nwind\n")
        await workspace.write_bytes("picture.bin", PICTURE)
        await backend.run("ln -s /etc/passwd stolen; ln -s notes/today.md alias", shell=True)
        assert backend.ref is not None
        return backend.ref.id

    return asyncio.run(write())


@pytest.fixture(scope="module")
def archive(daemon):
    client = WorkspaceArchive(daemon.url, token=TOKEN)
    yield client
    client.close()


def test_listing_leaves_out_links(archive, left_behind):
    rows = archive.ls(left_behind)
    assert [(row["name"], row["path"], row["is_dir"], row["size"]) for row in rows] == [
        ("notes", "notes", True, None),
        ("picture.bin", "picture.bin", False, 256),
    ]
    assert rows[1]["modified_at"].endswith("+00:00")


def test_reading_text(archive, left_behind):
    assert archive.read(left_behind, "notes/today.md") == "# Today\nsun\nwind"
    cut = archive.read(left_behind, "/workspace/notes/today.md", offset=1, limit=1)
    assert cut == "sun\n\n[... 1 more lines. Use offset=2 to read more.]"


def test_reading_bytes(archive, left_behind):
    assert archive.read_bytes(left_behind, "picture.bin") == PICTURE


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("absent.txt", 404),
        ("stolen", 400),
        ("alias", 400),
        ("../" * 8 + "etc/passwd", 400),
        ("/etc/passwd", 404),
    ],
)
def test_what_is_not_given_out(archive, left_behind, path, status):
    with pytest.raises(WorkspaceArchiveError) as refusal:
        archive.read_bytes(left_behind, path)
    assert refusal.value.status_code == status
    assert "root:" not in str(refusal.value)


def test_an_unknown_session_and_a_wrong_token(daemon, archive):
    with pytest.raises(WorkspaceArchiveError) as refusal:
        archive.ls("never-was")
    assert refusal.value.status_code == 404
    stranger = WorkspaceArchive(daemon.url, token="not the token")
    with pytest.raises(WorkspaceArchiveError) as refusal:
        stranger.ls("never-was")
    assert refusal.value.status_code == 401
    stranger.close()
