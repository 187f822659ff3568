"""Files over sleep: whatever puts a session to sleep, it wakes with the tree that it had, to the last mode and time."""

import time

import pytest
from client import Service, Session
from processes import kept_outside, within

from daemon import Daemon

CYCLES = 5

# What a tree is: kind, mode, owner, size, time of change of the content to the nanosecond, links, target, name.
TREE = r"""
cd "$1" && find . -printf '%y %m %U:%G %s %T@ %n %l %p\n' | sort -k 8 | sed 's/^\(d .* \)[0-9]* \([0-9.]* [0-9]* .*\)$/\1\2/'
find . -type f -size -1024k -exec sha256sum {} + | sort -k 2
"""

# What one cycle does to it. $1 is the place, $2 the number of the cycle.
WORK = r"""
set -e
cd "$1"; n=$2
mkdir -p dir/deep "with space"
echo "edit $n" >> edited
echo "new $n" > "dir/new$n"
printf 'no newline, no fsync' > "with space/file$n"
: > "empty$n"
truncate -s 1G "sparse$n"
printf x | dd of="sparse$n" bs=1 seek=1000000 conv=notrunc 2>/dev/null
ln -s "dir/new$n" "link$n"
ln -s /nowhere "dangling$n"
ln "dir/new$n" "hard$n"
[ "$n" -lt 2 ] || { p=$((n - 1)); rm "dir/new$p" "link$p" "sparse$p"; rmdir "gone$p"; }
mkdir "gone$n"
chmod 0751 "dir/deep"; chmod 0400 "dir/new$n"; chmod 2755 "with space"
touch -d '2001-02-03 04:05:06.789' "empty$n"
mkfifo "fifo$n"
"""

PACKAGE = r"""
set -e
mkdir -p /usr/local/lib/thing 2>/dev/null || mkdir -p /opt/thing
place=$([ -w /usr/local/lib/thing ] && echo /usr/local/lib/thing || echo /opt/thing)
echo "version $1" > $place/version
printf '#!/bin/sh\ncat %s/version\n' $place > /opt/thing-tool
chmod 755 /opt/thing-tool
"""


def by_call(session: Session) -> None:
    answer = session.post("hibernate", {})
    assert answer.status_code in (200, 204), answer.text


def by_time(session: Session) -> None:
    within(60, lambda: session.info()["state"] == "hibernated", "it falls asleep by itself")


def by_eviction(session: Session) -> None:
    other = session.service.open()
    within(30, lambda: session.info()["state"] == "hibernated", "it makes room")
    other.close()


WAYS = [
    (by_call, {}),
    (by_time, {"hibernate_after": "1", "cleanup_interval": "1"}),
    (by_eviction, {"max_sessions": "1", "evict_idle_after": "0"}),
]


@pytest.mark.parametrize("sleep, settings", WAYS, ids=[way.__name__ for way, _ in WAYS])
def test_five_cycles_of_sleep_change_nothing(tmp_path, sleep, settings):
    with Daemon(tmp_path, persist_containers="1", **settings) as daemon:
        session = Service(daemon.url).open(session_id="sleeper")
        token_before = session.service.open(session_id="sleeper", reuse=True)
        assert token_before.id == session.id
        for cycle in range(1, CYCLES + 1):
            session.sh(WORK_RUN, env={"WORK": WORK, "PLACE": "/workspace", "N": str(cycle)})
            session.sh(WORK_RUN, env={"WORK": PACKAGE, "PLACE": str(cycle), "N": ""})
            before = session.sh(TREE_RUN, env={"TREE": TREE})
            assert f"sparse{cycle}" in before and "751" in before, before
            sleep(session)
            assert session.info()["state"] == "hibernated"
            after = session.sh(TREE_RUN, env={"TREE": TREE})
            assert after == before
            assert session.sh("/opt/thing-tool") == f"version {cycle}\n"
            # The archive, which reads without a sandbox, has the same bytes.
            read = session.service.http.post(f"/workspaces/{session.id}/read", json={"path": "edited"})
            assert read.status_code == 200, read.text
            assert f"edit {cycle}" in read.json()["content"], read.text


WORK_RUN = 'eval "set -- \\"$PLACE\\" \\"$N\\""; eval "$WORK"'
TREE_RUN = 'set -- /workspace; eval "$TREE"'


def test_a_layer_past_its_time_is_reclaimed_and_the_files_stay(tmp_path):
    settings = {"persist_containers": "1", "container_ttl": "1", "cleanup_interval": "1"}
    with Daemon(tmp_path, **settings) as daemon:
        session = Service(daemon.url).open(session_id="sleeper")
        session.sh("mkdir -p /opt && echo installed > /opt/package && echo kept > file")
        by_call(session)
        within(60, lambda: not kept_outside(daemon), "its layer goes")
        assert session.info()["state"] == "hibernated"
        assert session.sh("cat file; cat /opt/package 2>/dev/null || echo gone") == "kept\ngone\n"


def test_what_is_outside_the_work_directory_wakes_and_what_is_inside_does_not(tmp_path):
    with Daemon(tmp_path) as daemon:
        session = Service(daemon.url).open(session_id="sleeper")
        session.sh("echo one > file")
        by_call(session)
        idle = session.info()["idle_seconds"]
        for _ in range(3):
            read = session.post("files/read", {"path": "/workspace/file"})
            assert read.status_code == 200 and read.content == b"one\n", read.text
            wrote = session.service.http.post(
                f"/sessions/{session.id}/files/write", params={"path": "/workspace/file"}, content=b"one\n"
            )
            assert wrote.status_code == 204, wrote.text
        assert session.info()["state"] == "hibernated"
        assert session.info()["idle_seconds"] <= idle + 1
        assert session.sh("ls /tmp > /dev/null; cat file") == "one\n"
        assert session.info()["state"] == "running"


def test_nothing_that_runs_is_put_to_sleep(tmp_path):
    import threading

    with Daemon(tmp_path, hibernate_after="1", cleanup_interval="1", max_sessions="1", evict_idle_after="0") as daemon:
        session = Service(daemon.url).open(session_id="busy")
        ran: list[str] = []
        thread = threading.Thread(target=lambda: ran.append(session.sh("sleep 5; echo done")))
        thread.start()
        within(10, lambda: "sleep" in session_processes(daemon), "the run begins")
        refused = session.post("hibernate", {})
        assert refused.status_code == 409, refused.text
        full = session.service.http.post("/sessions", json={})
        assert full.status_code == 429, full.text
        assert int(full.headers["retry-after"]) >= 1
        thread.join(30)
        assert ran == ["done\n"]


def session_processes(daemon: Daemon) -> str:
    import pathlib

    from processes import running

    names = []
    for process in running(daemon):
        try:
            names.append((pathlib.Path("/proc") / str(process.pid) / "comm").read_text().strip())
        except OSError:
            continue
    return " ".join(names)
