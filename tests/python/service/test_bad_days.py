"""What happens when something dies, is stopped, or is started twice."""

import os
import signal
import subprocess
import threading
import time
import uuid

import pytest
from client import Service
from processes import cgroups_of, descendants, guests, mounts_below, of, running, within

import backend
from daemon import BINARY, TOKEN, Daemon

GONE_SECONDS = 10


@pytest.fixture
def fresh(tmp_path):
    """A daemon that this test may do anything to."""
    with Daemon(tmp_path) as daemon:
        yield daemon


def busy(session, argv=("sleep", "600")) -> threading.Thread:
    """Starts a run that will not end by itself, and comes back when it is running."""
    marker = f"/tmp/{uuid.uuid4().hex}"

    def work() -> None:
        script = f'touch {marker}; exec "$@"'
        try:
            session.ask("sh", "-c", script, "sh", *argv)
        except Exception:  # noqa: BLE001 - the daemon is about to be ended under it
            pass

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    within(10, lambda: session.run("test", "-e", marker)["exit_code"] == 0, "the run begins")
    return thread


def test_after_kill_nine_nothing_keeps_running_and_the_next_start_cleans_up(fresh, tmp_path):
    service = Service(fresh.url)
    sessions = [service.open() for _ in range(3)]
    sessions[0].sh("echo kept > kept.txt")
    for session in sessions:
        busy(session)
        session.sh("setsid sleep 601 >/dev/null 2>&1 &")
    before = running(fresh)
    assert len(before) >= 3 * 3, before
    grouped = cgroups_of(before)
    assert grouped or os.geteuid() != 0, "as root every sandbox has cgroups"

    fresh.kill()
    within(GONE_SECONDS, lambda: not any(p.lives() for p in before), "everything of it ends")
    fresh.start()
    within(GONE_SECONDS, lambda: not any(g.exists() for g in grouped), f"{grouped} are removed")
    assert mounts_below(tmp_path) == []
    again = Service(fresh.url).open(session_id=sessions[0].id, reuse=True)
    assert again.sh("cat kept.txt") == "kept\n"


def test_sigterm_with_a_busy_run_ends_in_time_and_leaves_nothing(fresh, tmp_path):
    session = Service(fresh.url).open()
    busy(session)
    busy(session, ("sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    before = running(fresh)
    grouped = cgroups_of(before)
    took = fresh.terminate()
    assert took < 30
    assert fresh.process.returncode == 0, fresh.log()
    within(GONE_SECONDS, lambda: not any(p.lives() for p in before), "everything of it ends")
    within(GONE_SECONDS, lambda: not any(g.exists() for g in grouped), f"{grouped} are removed")
    assert mounts_below(tmp_path) == []


def test_an_idle_daemon_ends_at_once(fresh):
    Service(fresh.url).open().sh("true")
    assert fresh.terminate() < 5
    assert fresh.process.returncode == 0


def test_a_second_daemon_on_the_same_state_directory_refuses_in_one_line(fresh):
    environment = fresh.environment()
    second = subprocess.run(
        [BINARY, "serve", "--listen", "127.0.0.1:0", "--state-dir", str(fresh.state_dir)],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
    )
    assert second.returncode not in (0, None)
    lines = [line for line in second.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, second.stderr
    assert str(fresh.state_dir) in lines[0]
    assert Service(fresh.url).open().sh("echo the first goes on") == "the first goes on\n"


def test_a_guest_killed_from_outside_is_healed(fresh):
    if os.geteuid() != 0:
        pytest.skip("only root may end another user's process")
    service = Service(fresh.url)
    known = set(guests(fresh))
    neighbour = service.open()
    others = set(guests(fresh))
    session = service.open()
    session.sh("echo precious > file.txt; echo lost > /tmp/scratch.txt")
    (guest,) = set(guests(fresh)) - others - known
    os.kill(guest.pid, signal.SIGKILL)
    within(GONE_SECONDS, lambda: not guest.lives(), "the guest ends")
    # An engine says so later than the kernel; a run that was sent meanwhile may have begun, and answers 410.
    within(GONE_SECONDS, lambda: session.info()["alive"] is False, "its end is noticed")
    ran = session.run("cat", "file.txt")
    assert (ran["stdout"], ran["exit_code"]) == ("precious\n", 0)
    assert session.run("cat", "/tmp/scratch.txt")["exit_code"] == 1
    assert session.info()["alive"] is True
    assert neighbour.sh("echo unharmed") == "unharmed\n"


def test_a_guest_killed_under_a_run_ends_that_run_and_no_other(fresh):
    if os.geteuid() != 0:
        pytest.skip("only root may end another user's process")
    service = Service(fresh.url)
    session = service.open()
    answers = []
    (guest,) = guests(fresh)
    waiting = threading.Thread(target=lambda: answers.append(session.ask("sleep", "60")))
    waiting.start()
    within(10, lambda: len(descendants(guest.pid)) > 0, "the run begins")
    os.kill(guest.pid, signal.SIGKILL)
    waiting.join(20)
    assert not waiting.is_alive(), "the answer hangs"
    assert answers[0].status_code == 410, answers[0].text
    assert session.sh("echo healed") == "healed\n"


def test_opening_and_closing_many_times_leaves_nothing(fresh, tmp_path):
    service = Service(fresh.url)
    service.open().close()
    grouped = set()
    held = len(os.listdir(f"/proc/{fresh.pid}/fd")) if os.geteuid() == 0 else 0
    for _ in range(30):
        session = service.open()
        session.sh("true")
        grouped |= cgroups_of(guests(fresh))
        session.close()
    within(GONE_SECONDS, lambda: not guests(fresh), "every guest ends")
    within(GONE_SECONDS, lambda: not any(g.exists() for g in grouped), "every cgroup is removed")
    assert mounts_below(tmp_path) == []
    if os.geteuid() == 0:
        within(5, lambda: len(os.listdir(f"/proc/{fresh.pid}/fd")) <= held + 2, "descriptors are given back")


def test_a_client_that_hangs_up_neither_ends_nor_leaks_the_open(fresh):
    import socket

    body = b'{"session_id":"hung-up"}'
    host, port = fresh.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(
            b"POST /sessions HTTP/1.1\r\nHost: x\r\nX-Sandbox-Token: " + TOKEN.encode()
            + b"\r\nContent-Type: application/json\r\nContent-Length: " + str(len(body)).encode()
            + b"\r\n\r\n" + body
        )
    service = Service(fresh.url)

    def open_now() -> bool:
        return any(row["session_id"] == "hung-up" for row in service.http.get("/sessions").json()["sessions"])

    within(10, open_now, "the open is completed")
    assert service.open(session_id="hung-up", reuse=True).sh("echo mine") == "mine\n"


def test_kill_nine_of_run_leaves_nothing(tmp_path):
    process = subprocess.Popen(
        [BINARY, "run", "--state-dir", tmp_path, "--", "sh", "-c", "setsid sleep 602 & sleep 603"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=backend.environment(),
    )
    # The guest, the shell and its two.
    within(20, lambda: len(of(process.pid, tmp_path)) >= 4, "the program begins")
    before = of(process.pid, tmp_path)
    grouped = cgroups_of(before)
    process.kill()
    process.wait(10)
    within(GONE_SECONDS, lambda: not any(p.lives() for p in before), "everything of it ends")
    within(GONE_SECONDS, lambda: not any(g.exists() for g in grouped), f"{grouped} are removed")


def test_sixty_four_runs_at_once(fresh):
    """Sixty-four runs that sleep for a second take about a second, and each gets its own output."""
    service = Service(fresh.url)
    session = service.open()
    results: dict[int, dict] = {}

    def one(number: int) -> None:
        own = Service(fresh.url)
        answer = own.http.post(
            f"/sessions/{session.id}/run",
            json={"argv": ["sh", "-c", f"sleep 1; echo {number}"], "run_id": uuid.uuid4().hex},
        )
        results[number] = answer.json() if answer.status_code == 200 else {"status": answer.status_code}

    began = time.monotonic()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    took = time.monotonic() - began
    assert len(results) == 64
    assert {n: r.get("stdout") for n, r in results.items()} == {n: f"{n}\n" for n in range(64)}
    assert took < 30, took
