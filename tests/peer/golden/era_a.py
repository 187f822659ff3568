"""What only the older clients ask: one route per console tool, JSON in, JSON out."""

import base64

from .probe import Probe

BASE = "/sessions/ops"

COMMANDS = [
    ("exec", {"command": "echo hi; echo err >&2; pwd; id -u; exit 3"}),
    ("exec-env", {"command": "env | sort"}),
    ("exec-timeout-sent-1", {"command": "echo before; sleep 30; echo after", "timeout_seconds": 1}),
    ("exec-timeout-0", {"command": "echo zero; sleep 2; echo done", "timeout_seconds": 0}),
    ("exec-timeout-neg", {"command": "echo neg", "timeout_seconds": -1}),
    ("exec-timeout-float", {"command": "echo f", "timeout_seconds": 1.5}),
    ("exec-timeout-floatint", {"command": "echo f", "timeout_seconds": 2.0}),
    ("exec-timeout-str", {"command": "echo s", "timeout_seconds": "3"}),
    ("exec-empty", {"command": ""}),
    ("exec-missing", {}),
    ("exec-big", {"command": 'head -c 200000 /dev/zero | tr "\\0" a'}),
    ("exec-nonutf8", {"command": "printf '\\377\\376abc'"}),
    ("exec-ceiling", {"command": "echo start; sleep 100"}),
    ("exec-bg", {"command": "nohup sleep 50 >/dev/null 2>&1 & echo bg"}),
    ("exec-bg-open", {"command": "sleep 6 & echo bg2"}),
    ("exec-stdin", {"command": 'read x; echo "rc=$? [$x]"', "timeout_seconds": 5}),
]


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


WRITES = [
    ("write", "notes.txt", b64(b"l1\nl2\nl3\n")),
    ("write-abs", "/workspace/dir a/b.txt", b64(b"x")),
    ("write-empty", "empty.txt", ""),
    ("write-badb64", "x", "***"),
    ("write-badb64pad", "x", "abc"),
    ("write-nlb64", "x", "YWJj\n"),
    ("write-tmp", "/tmp/t.txt", b64(b"x")),
    ("write-relup", "../up.txt", b64(b"x")),
]

MAKE_ODD_FILES = (
    "printf '\\000\\001\\377\\376\\201\\202' > bin.dat; printf 'caf\\351\\n' > latin.txt; "
    "head -c 9000000 /dev/zero > big.bin; ln -s /etc/hostname link; ln -s nowhere dangling"
)

MAKE_TREE = (
    "mkdir -p sub/.hid .hidden && echo needle > sub/a.py && echo needle > sub/.hid/b.py && "
    'echo needle > .hidden/c.py && echo "needle: colon:x" > top.py'
)

READS = [
    ("read", "read", {"path": "notes.txt"}),
    ("read-slice", "read", {"path": "notes.txt", "offset": 1, "limit": 1}),
    ("read-past", "read", {"path": "notes.txt", "offset": 9}),
    ("read-missing", "read", {"path": "nope.txt"}),
    ("read-empty", "read", {"path": "empty.txt"}),
    ("read-dir", "read", {"path": "/workspace"}),
    ("read-neg", "read", {"path": "notes.txt", "offset": -1}),
    ("read-lim0", "read", {"path": "notes.txt", "limit": 0}),
    ("exec-bin", "exec", {"command": MAKE_ODD_FILES}),
    ("read-bin", "read", {"path": "bin.dat"}),
    ("read-latin", "read", {"path": "latin.txt"}),
    ("read-big", "read", {"path": "big.bin"}),
    ("read-link", "read", {"path": "link"}),
    ("rb", "read_bytes", {"path": "bin.dat"}),
    ("rb-missing", "read_bytes", {"path": "nope"}),
    ("rb-big", "read_bytes", {"path": "big.bin"}),
    ("rb-dir", "read_bytes", {"path": "/workspace"}),
    ("rb-link", "read_bytes", {"path": "link"}),
    ("edit", "edit", {"path": "notes.txt", "old_string": "l2", "new_string": "L2"}),
    ("edit-missing", "edit", {"path": "nope", "old_string": "a", "new_string": "b"}),
    ("edit-absent", "edit", {"path": "notes.txt", "old_string": "zzz", "new_string": "b"}),
    ("edit-multi", "edit", {"path": "notes.txt", "old_string": "l", "new_string": "b"}),
    ("edit-all", "edit", {"path": "notes.txt", "old_string": "l", "new_string": "b", "replace_all": True}),
    ("edit-emptyold", "edit", {"path": "notes.txt", "old_string": "", "new_string": "b"}),
    ("exists", "exists", {"path": "notes.txt"}),
    ("exists-dir", "exists", {"path": "/workspace"}),
    ("exists-link", "exists", {"path": "link"}),
    ("exists-dangling", "exists", {"path": "dangling"}),
    ("exists-no", "exists", {"path": "q"}),
    ("exec-mk", "exec", {"command": MAKE_TREE}),
    ("ls", "ls", {"path": "/workspace"}),
    ("ls-dot", "ls", {"path": "."}),
    ("ls-empty", "ls", {"path": ""}),
    ("ls-file", "ls", {"path": "notes.txt"}),
    ("ls-missing", "ls", {"path": "nope"}),
    ("ls-trailing", "ls", {"path": "sub/"}),
    ("glob", "glob", {"pattern": "*.py"}),
    ("glob-star2", "glob", {"pattern": "**/*.py", "path": "."}),
    ("glob-abs", "glob", {"pattern": "*.py", "path": "/workspace"}),
    ("glob-none", "glob", {"pattern": "*.zzz"}),
    ("glob-missingdir", "glob", {"pattern": "*", "path": "/nope"}),
    ("glob-nodefault", "glob", {}),
    ("grep", "grep", {"pattern": "needle"}),
    ("grep-path", "grep", {"pattern": "needle", "path": "/workspace"}),
    ("grep-hidden", "grep", {"pattern": "needle", "ignore_hidden": False}),
    ("grep-glob", "grep", {"pattern": "needle", "glob": "*.py"}),
    ("grep-none", "grep", {"pattern": "qqqq"}),
    ("grep-bad", "grep", {"pattern": "["}),
    ("grep-file", "grep", {"pattern": "needle", "path": "top.py"}),
    ("grep-missing", "grep", {"pattern": "needle", "path": "/nope"}),
    ("grep-dash", "grep", {"pattern": "-n"}),
    ("grep-quote", "grep", {"pattern": "don't"}),
    ("mkd", "exec", {"command": "mkdir dd; echo 1 > dd/one; echo 2 > dd/two"}),
    ("write-over-dir", "write", {"path": "dd", "content_b64": b64(b"x")}),
    ("write-underfile", "write", {"path": "notes.txt/x", "content_b64": b64(b"x")}),
    ("read-tmp", "read", {"path": "/tmp/t.txt"}),
    ("exec-tmp", "exec", {"command": "echo q > /tmp/q; ls /tmp"}),
    ("read-tmpq", "read", {"path": "/tmp/q"}),
]

LISTED = [
    ".", "/", "", "/workspace", "/workspace/", "sub", "./sub", "notes.txt", "nope", "..", "../..", "/etc/passwd", "link",
    ".hidden", "sub/../sub", "a/../../x",
]
STORED = [
    "notes.txt", "/workspace/notes.txt", "empty.txt", "bin.dat", "latin.txt", "big.bin", "link", "dangling", "sub", "../x",
    "nope", "/etc/passwd", "dir a/b.txt",
]


def ask(probe: Probe) -> None:
    token = probe.open("create", {"session_id": "ops", "tenant": "acme"})

    def operation(label: str, route: str, body: dict) -> None:
        probe.send(label, "POST", f"{BASE}/{route}", body, token=token)

    for label, body in COMMANDS:
        operation(label, "exec", body)
    for label, path, content in WRITES:
        operation(label, "write", {"path": path, "content_b64": content})
    for label, route, body in READS:
        operation(label, route, body)
    probe.send("events-all", "GET", f"{BASE}/events?after=0", token=token)
    archive(probe, token)
    probe.send("del", "DELETE", BASE, token=token)
    probe.send("del-again", "DELETE", BASE)
    probe.send("del-again-sess", "DELETE", BASE, token=token)
    probe.send("arch-after", "POST", "/workspaces/ops/ls", {"path": "sub"})
    probe.send("recreate", "POST", "/sessions", {"session_id": "ops"})
    probe.send("exec-recreated", "POST", f"{BASE}/exec", {"command": "ls; ls /tmp"})
    probe.send("purge", "DELETE", BASE + "?purge=true")
    probe.send("arch-after-purge", "POST", "/workspaces/ops/ls", {"path": "sub"})


def archive(probe: Probe, token: str) -> None:
    for path in LISTED:
        probe.send(f"arch-ls {path}", "POST", "/workspaces/ops/ls", {"path": path})
    probe.send("arch-ls-sess", "POST", "/workspaces/ops/ls", {"path": "."}, token=token)
    probe.send("arch-ls-nows", "POST", "/workspaces/zzz/ls", {"path": "."})
    probe.send("arch-ls-nopath", "POST", "/workspaces/ops/ls", {})
    probe.send("arch-badid", "POST", "/workspaces/a%20b/ls", {"path": "."}, token=None)
    for path in STORED:
        probe.send(f"arch-read {path}", "POST", "/workspaces/ops/read", {"path": path})
        probe.send(f"arch-rb {path}", "POST", "/workspaces/ops/read_bytes", {"path": path})
