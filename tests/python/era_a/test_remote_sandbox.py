"""RemoteSandbox of pydantic-ai-backend 0.2.29, unmodified, against the built binary.

The client never raises but in `start()`: a refusal and a crash look alike to it. So every test asserts the value that a
working service gives, never just the absence of an exception.
"""

import uuid

import pytest
from pydantic_ai_backends.remote import RemoteSandbox, WorkspaceArchive, WorkspaceArchiveError

from daemon import TOKEN


def fresh_id() -> str:
    return f"era-a-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def rent(daemon):
    """Rents a sandbox; whatever a test leaves open is purged."""
    opened = []

    def rent(**options) -> RemoteSandbox:
        options.setdefault("token", TOKEN)
        options.setdefault("session_id", fresh_id())
        opened.append(RemoteSandbox(daemon.url, **options))
        return opened[-1]

    yield rent
    for sandbox in opened:
        sandbox.stop(purge=True)


@pytest.fixture(scope="module")
def archive(daemon):
    client = WorkspaceArchive(daemon.url, token=TOKEN)
    yield client
    client.close()


def test_nothing_is_opened_before_the_first_operation(rent):
    sandbox = rent()
    assert not sandbox.is_alive()
    assert sandbox.execute("echo here").output == "here\n"
    assert sandbox.is_alive()


def test_a_command_gives_both_streams_and_its_exit_code(rent):
    ran = rent().execute("echo one; echo two >&2; exit 7")
    assert sorted(ran.output.splitlines()) == ["one", "two"]
    assert (ran.exit_code, ran.truncated) == (7, False)


def test_commands_start_in_the_work_directory_with_an_empty_stdin(rent):
    ran = rent().execute("pwd; cat; echo end")
    assert (ran.output, ran.exit_code) == ("/workspace\nend\n", 0)


def test_python_runs(rent):
    assert rent().execute("python3 -c 'print(6 * 7)'").output == "42\n"


def test_a_deadline_keeps_what_was_printed_and_ends_the_tree(rent):
    sandbox = rent()
    ran = sandbox.execute("echo begun; (sleep 77 & setsid sleep 78 &) ; sleep 79", timeout=1)
    assert (ran.output, ran.exit_code) == ("begun\n", 124)
    left = sandbox.execute("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 7[789]'")
    assert left.output == "0\n", left.output


def test_output_is_cut_at_100_000_bytes_and_says_so(rent):
    ran = rent().execute("head -c 300000 /dev/zero | tr '\\0' z")
    assert (len(ran.output), ran.truncated) == (100_000, True)


def test_bytes_that_are_no_text_are_replaced(rent):
    assert rent().execute("printf 'a\\377b'").output == "a\ufffdb"


def test_every_byte_survives_write_and_read(rent):
    sandbox = rent()
    content = bytes(range(256)) * 300
    written = sandbox.write("some/folder/all.bin", content)
    assert (written.path, written.error) == ("/workspace/some/folder/all.bin", None)
    assert sandbox.read_bytes("some/folder/all.bin") == content
    assert sandbox.execute("wc -c < some/folder/all.bin").output.strip() == str(len(content))


def test_a_file_that_a_command_wrote_is_read(rent):
    sandbox = rent()
    sandbox.execute("printf 'from inside' > inside.txt")
    assert sandbox.read_bytes("/workspace/inside.txt") == b"from inside"
    assert sandbox.read("inside.txt") == "from inside"


def test_reading_gives_slices_and_says_what_is_left(rent):
    sandbox = rent()
    sandbox.write("five.txt", "1\n2\n3\n4\n5\n")
    assert sandbox.read("five.txt") == "1\n2\n3\n4\n5"
    cut = sandbox.read("five.txt", offset=1, limit=2)
    assert cut == "2\n3\n\n[... 2 more lines. Use offset=3 to read more.]"
    assert sandbox.read("five.txt", offset=5) == "[End of file]"


def test_what_is_not_there_is_told(rent):
    sandbox = rent()
    assert sandbox.read("absent.txt") == "Error: File 'absent.txt' not found"
    assert sandbox.read_bytes("absent.txt") == b""
    assert sandbox.edit("absent.txt", "a", "b").error == "File 'absent.txt' not found"
    assert not sandbox.exists("absent.txt")
    assert sandbox.ls_info("/absent") == []


def test_editing(rent):
    sandbox = rent()
    sandbox.write("e.txt", "red\ngreen\nred\n")
    once = sandbox.edit("e.txt", "green", "blue\nyellow")
    assert (once.path, once.error, once.occurrences) == ("/workspace/e.txt", None, 1)
    assert sandbox.edit("e.txt", "black", "x").error == "String 'black' not found in file"
    assert "found 2 times" in sandbox.edit("e.txt", "red", "x").error
    assert sandbox.edit("e.txt", "red", "grey", replace_all=True).occurrences == 2
    assert sandbox.read_bytes("e.txt") == b"grey\nblue\nyellow\ngrey\n"


def test_only_a_regular_file_exists(rent):
    sandbox = rent()
    sandbox.write("it.txt", "x")
    assert [sandbox.exists(p) for p in ("it.txt", "/workspace/it.txt", "/workspace")] == [True, True, False]


def test_listing_globbing_searching(rent):
    sandbox = rent()
    sandbox.write("src/main.py", "import os\nprint('needle')\n")
    sandbox.write("src/sub/deep.py", "needle = 1\n")
    sandbox.write("src/read me.txt", "nothing\n")
    rows = sandbox.ls_info("/workspace/src")
    assert [(row["name"], row["is_dir"]) for row in rows] == [
        ("sub", True),
        ("main.py", False),
        ("read me.txt", False),
    ]
    assert sandbox.read_bytes(rows[2]["path"]) == b"nothing\n"
    found = sandbox.glob_info("**/*.py", "/workspace/src")
    assert [row["path"] for row in found] == ["/workspace/src/main.py", "/workspace/src/sub/deep.py"]
    hits = sandbox.grep_raw("needle", "/workspace/src")
    assert sorted((hit["path"], hit["line_number"]) for hit in hits) == [
        ("/workspace/src/main.py", 2),
        ("/workspace/src/sub/deep.py", 1),
    ]
    assert sandbox.grep_raw("needle", "/workspace/src", glob="main*") == [
        {"path": "/workspace/src/main.py", "line_number": 2, "line": "print('needle')"}
    ]
    assert sandbox.grep_raw("no such word", "/workspace/src") == []


def test_a_pattern_is_never_a_command(rent):
    sandbox = rent()
    sandbox.write("quotes.txt", "don't\n")
    assert len(sandbox.grep_raw("don't", "/workspace")) == 1
    sandbox.grep_raw("'; touch /workspace/made; '", "/workspace")
    assert sandbox.grep_raw("-x", "/workspace") == []
    assert not sandbox.exists("made")


def test_a_second_instance_finds_the_file_after_stop(rent):
    first = rent()
    first.write("kept.txt", "still here")
    first.stop()
    assert not first.is_alive()
    second = rent(session_id=first.session_id, reuse=True)
    assert second.read("kept.txt") == "still here"
    assert second.execute("cat kept.txt").output == "still here"


def test_reuse_of_an_open_session_gives_the_same_sandbox(rent):
    first = rent()
    first.execute("sleep 600 & echo $! > /tmp/pid")
    second = rent(session_id=first.session_id, reuse=True)
    assert second.execute("kill -0 $(cat /tmp/pid) && echo running").output == "running\n"
    assert first.execute("echo and the first token works").exit_code == 0


def test_refusals_to_open_say_why(rent):
    taken = rent()
    taken.start()
    with pytest.raises(RuntimeError, match="HTTP 409"):
        rent(session_id=taken.session_id).start()
    with pytest.raises(RuntimeError, match="HTTP 400"):
        rent(runtime="no-such-runtime").start()
    with pytest.raises(RuntimeError, match="HTTP 401"):
        rent(token="not the token").start()


def test_one_session_does_not_see_another(rent):
    one, other = rent(), rent()
    one.execute("sleep 555 &")
    one.write("private.txt", "one's")
    seen = other.execute("ls -A /workspace; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 55[5]'")
    assert seen.output == "0\n"


def test_the_ceiling_of_commands_is_known(rent):
    sandbox = rent()
    sandbox.start()
    assert sandbox.server_timeout > 0


def test_a_purged_session_leaves_nothing(rent, archive):
    sandbox = rent()
    sandbox.write("gone.txt", "x")
    sandbox.stop(purge=True)
    with pytest.raises(WorkspaceArchiveError) as refusal:
        archive.ls(sandbox.session_id)
    assert refusal.value.status_code == 404
    assert rent(session_id=sandbox.session_id, reuse=True).ls_info("/workspace") == []


def test_the_archive_reads_a_stopped_session(rent, archive):
    sandbox = rent()
    sandbox.write("reports/first.md", "# one\ntwo\nthree\n")
    sandbox.write("picture.png", b"\x89PNG\r\n\x1a\n\x00\xff")
    sandbox.stop()
    rows = archive.ls(sandbox.session_id)
    assert [(row["name"], row["is_dir"], row["size"]) for row in rows] == [
        ("reports", True, None),
        ("picture.png", False, 10),
    ]
    assert archive.read(sandbox.session_id, "reports/first.md", offset=1) == "two\nthree"
    assert archive.read_bytes(sandbox.session_id, "picture.png") == b"\x89PNG\r\n\x1a\n\x00\xff"
    with pytest.raises(WorkspaceArchiveError) as refusal:
        archive.read(sandbox.session_id, "../../../etc/passwd")
    assert refusal.value.status_code == 400
    with pytest.raises(WorkspaceArchiveError) as refusal:
        archive.read(sandbox.session_id, "absent.md")
    assert refusal.value.status_code == 404
