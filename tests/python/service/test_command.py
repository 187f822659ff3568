"""The command, as the README says it, as root and as an ordinary user."""

import os
import subprocess

import pytest

import backend
from daemon import BINARY


def command(begin: list[str], *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60} | options
    options.setdefault("env", backend.environment())
    return subprocess.run([*begin, *arguments], **options)


def test_the_first_command_of_the_readme():
    ran = command([BINARY], "run", "--", "python3", "-c", "print(1+1)")
    assert (ran.stdout, ran.returncode) == ("2\n", 0), ran.stderr


def test_the_first_command_as_an_ordinary_user(ordinary):
    ran = command(ordinary, "run", "--", "python3", "-c", "print(1+1)")
    assert (ran.stdout, ran.returncode) == ("2\n", 0), ran.stderr
    assert len(ran.stderr.splitlines()) <= 1, ran.stderr


def test_inside_is_not_the_users_home(ordinary):
    ran = command(ordinary, "run", "--", "sh", "-c", "for d in ~ /root /home; do ls -A $d; done; cat /etc/shadow; id -u")
    assert "root:" not in ran.stdout, ran.stdout
    assert ran.stdout.splitlines()[-1].isdigit()
    outside = set(os.listdir("/root")) | set(os.listdir("/home")) if os.geteuid() == 0 else set()
    assert not outside & set(ran.stdout.split()), ran.stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--", "sh", "-c", "exit 41"], 41),
        (["--", "no-such-program"], 127),
        (["--", "/etc"], 126),
        (["--timeout", "300ms", "--", "sleep", "30"], 124),
        (["--runtime", "no-such-runtime", "--", "true"], 125),
        (["--", "sh", "-c", "kill -TERM $$"], 143),
    ],
)
def test_exit_codes(arguments, code):
    ran = command([BINARY], "run", *arguments)
    assert ran.returncode == code, ran.stderr


def test_streams_are_bytes():
    content = bytes(range(256)) * 4096
    ran = subprocess.run([BINARY, "run", "--", "cat"], input=content, capture_output=True, timeout=60, env=backend.environment())
    assert ran.stdout == content


def test_doctor_speaks():
    ran = command([BINARY], "doctor")
    assert backend.NAME in ran.stdout, ran.stdout + ran.stderr


def test_doctor_speaks_to_an_ordinary_user(ordinary):
    ran = command(ordinary, "doctor")
    assert "namespaces" in ran.stdout, ran.stdout + ran.stderr
