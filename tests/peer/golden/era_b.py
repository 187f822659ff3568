"""What only the newer clients ask: runs by argument list, files by native routes, the archive as a tree."""

import http.client
import json
import threading
import time
import urllib.parse

from .probe import Probe

BASE = "/sessions/ops"

RUNS = [
    ("run", "echo hi; echo err >&2; pwd; id -u; exit 3", {}),
    ("run-argv", ["printf", "%s", " a $x `b`"], {}),
    ("run-127", ["no-such-prog"], {}),
    ("run-126", ["/etc/passwd"], {}),
    ("run-env", 'echo "$A|$PATH|$NO_COLOR"', {"env": {"A": "1 2", "NO_COLOR": "zz"}}),
    ("run-envfull", "env | sort", {}),
    ("run-env-badkey", "env | grep -c .", {"env": {"A=B": "x"}}),
    ("run-stdin", 'read x; echo "rc=$?"; cat; echo end', {"timeout_seconds": 5}),
    ("run-timeout", "echo before; echo e >&2; sleep 30; echo after", {"timeout_seconds": 1}),
    ("run-timeout-0", "true", {"timeout_seconds": 0}),
    ("run-timeout-neg", "true", {"timeout_seconds": -1}),
    ("run-timeout-tiny", "echo x", {"timeout_seconds": 0.001}),
    ("run-timeout-str", "echo x", {"timeout_seconds": "2.5"}),
    ("run-timeout-nan", "echo x", {"timeout_seconds": "nan"}),
    ("run-timeout-inf", "echo x", {"timeout_seconds": "inf"}),
    ("run-timeout-huge", "echo x", {"timeout_seconds": 1e9}),
    ("run-ceiling", "echo start; sleep 100", {}),
    ("run-emptyargv", [], {}),
    ("run-emptystr", [""], {}),
    ("run-argvint", [1], {}),
]

STREAMS = [
    ("run-nonutf8", "printf '\\377\\376abc'; printf '\\200' >&2"),
    ("run-nul", "printf 'a\\000b'"),
    ("run-limit", 'head -c 12000000 /dev/zero | tr "\\0" a'),
    ("run-limit-both", 'head -c 6000000 /dev/zero | tr "\\0" a; head -c 6000000 /dev/zero | tr "\\0" b >&2'),
    ("run-9mb", 'head -c 9000000 /dev/zero | tr "\\0" a'),
    ("run-bg", "nohup sleep 55 >/dev/null 2>&1 & echo bg"),
    ("run-bg-open", "sleep 6 & echo bg2"),
    ("run-kill-self", "kill -9 $$"),
    ("run-kill-term", "kill -TERM $$"),
    ("run-124", "exit 124"),
    ("run-255", "exit 255"),
]

MIB = 1024 * 1024
WRITES = [
    ("w-rel", "rel.txt", b"x"),
    ("w-out", "/etc/x", b"x"),
    ("w-outtmp", "/tmp/x", b"x"),
    ("w-dotdot", "/workspace/../x", b"x"),
    ("w-dot", "/workspace/./x", b"x"),
    ("w-trailslash", "/workspace/ts/", b"x"),
    ("w-dslash", "/workspace//ds.txt", b"x"),
    ("w-dir", "/workspace", b"x"),
    ("w-dir2", "/workspace/a b", b"x"),
    ("w-under", "/workspace/notes.txt/x", b"x"),
    ("w-big", "/workspace/big2.bin", b"z" * (8 * MIB + 1)),
    ("w-max", "/workspace/max.bin", b"z" * (8 * MIB)),
    ("w-longname", "/workspace/" + "n" * 255, b"x"),
    ("w-longname240", "/workspace/" + "n" * 230, b"x"),
    ("w-toolong", "/workspace/" + "n" * 256, b"x"),
]

MAKE_ODD_FILES = (
    "printf '\\000\\001\\377\\376' > bin.dat; printf 'caf\\351\\n' > latin.txt; head -c 9000000 /dev/zero > big.bin; "
    "ln -s /etc/hostname link; ln -s notes.txt inlink; ln -s nowhere dangling; ln -s 'a b' dlink; mkfifo fifo; "
    "mkdir -p sub/.hid .hidden; echo n > sub/a.py; echo n > sub/.hid/b.py; chmod 755 notes.txt; ls -la; "
    "stat -c '%a %U %n' *"
)

LOOKED_AT = [
    "/workspace/notes.txt", "/workspace", "/workspace/a b", "/workspace/nope", "/workspace/notes.txt/x", "/workspace/link",
    "/workspace/inlink", "/workspace/dangling", "/workspace/fifo", "/workspace/big.bin", "/workspace/max.bin",
    "/workspace/empty.txt", "rel", "/etc/passwd", "/workspace/../etc/passwd", "/workspace/./notes.txt",
    "/workspace/notes.txt/", "/workspace//notes.txt", "", "/", "/workspace/dlink/c", "/workspace/nope/x", "/workspacex/a",
]
MADE = [
    "/workspace/mk1", "/workspace/mk1", "/workspace/mk2/deep/er", "/workspace/notes.txt", "/workspace/notes.txt/x",
    "/workspace/link", "/workspace", "rel", "/etc/q", "/workspace/dlink/new",
]
REMOVED = [
    "/workspace/mk1", "/workspace/mk1", "/workspace/mk2", "/workspace/link", "/workspace/nope", "/workspace",
    "/workspace/notes.txt/x", "/workspace/fifo", "rel", "/etc/passwd", "/workspace/dlink/c", "/workspace/empty.txt/",
]

LISTED = [
    ".", "/", "", "/workspace", "/workspace/", "sub", "./sub", "sub/", "notes.txt", "nope", "..", "../..", "/etc/passwd",
    "link", "dlink", ".hidden", "sub/../sub", "a/../../x", "//workspace/sub",
]
TREES = [
    {}, {"path": "sub"}, {"path": ".", "max_depth": 1}, {"max_entries": 3}, {"max_depth": 65}, {"max_depth": 0},
    {"max_entries": 100001}, {"path": "nope"}, {"path": ".."}, {"path": "dlink"}, {"path": "notes.txt"},
]
MANY_TREES = [
    {"sessions": ["ops", "zzz", "ops"], "max_depth": 1, "max_entries": 2}, {"sessions": []}, {"sessions": ["../x"]},
    {"sessions": ["a"] * 101}, {}, {"sessions": ["ops"], "path": ".."},
]
STORED = [
    "notes.txt", "/workspace/notes.txt", "empty.txt", "bin.dat", "latin.txt", "big.bin", "link", "inlink", "dangling", "sub",
    "../x", "nope", "/etc/passwd", "a b/c/d.txt", "fifo", "dlink/c/d.txt",
]


class Session:
    """The session that is asked; its runs are numbered."""

    def __init__(self, probe: Probe, token: str) -> None:
        self.probe = probe
        self.token = token
        self.runs = 0

    def run(self, label: str, argv: str | list, **fields: object) -> None:
        self.runs += 1
        body = {"argv": argv if isinstance(argv, list) else ["/bin/sh", "-c", argv], "run_id": f"{self.runs:032x}"}
        self.probe.send(label, "POST", f"{BASE}/run", body | fields, token=self.token)

    def post(self, label: str, path: str, body: object = None, **more) -> None:
        self.probe.send(label, "POST", f"{BASE}/{path}", body, **({"token": self.token} | more))

    def write(self, label: str, path: str, data: bytes) -> None:
        quoted = urllib.parse.quote(path)
        self.post(label, f"files/write?path={quoted}", raw=data, content_type="application/octet-stream")


def ask(probe: Probe) -> None:
    session = Session(probe, probe.open("create", {"session_id": "ops", "tenant": "acme"}))
    runs(session)
    stop(session)
    writes(session)
    files(session)
    probe.send("events-all", "GET", f"{BASE}/events?after=0", token=session.token)
    archive(session)
    probe.send("del", "DELETE", BASE, token=session.token)
    body = {"argv": ["true"], "run_id": f"{1:032x}"}
    session.post("run-after-del", "run", body)
    session.post("run-after-del-svc", "run", body, token="service")
    session.token = probe.open("attach-kept", {"session_id": "ops", "attach": True})
    session.run("run-attached", "ls")
    probe.send("purge", "DELETE", BASE + "?purge=true", token=session.token)
    probe.send("attach-purged", "POST", "/sessions", {"session_id": "ops", "attach": True})
    probe.send("arch-after-purge", "POST", "/workspaces/ops/ls", {"path": "sub"})


def runs(session: Session) -> None:
    for label, argv, fields in RUNS:
        session.run(label, argv, **fields)
    session.post("run-norunid", "run", {"argv": ["true"]})
    session.post("run-badrunid", "run", {"argv": ["true"], "run_id": "ABCDEF" * 6})
    session.post("run-upper", "run", {"argv": ["true"], "run_id": "A" * 32})
    for label, command in STREAMS:
        session.run(label, command)


def stop(session: Session) -> None:
    """Stops a run that another connection waits for."""
    probe = session.probe
    answers: list[dict] = []

    def long() -> None:
        argv = ["sh", "-c", "echo a; (sleep 40 & sleep 41); echo z"]
        headers = {"X-Sandbox-Token": session.token, "Content-Type": "application/json"}
        connection = http.client.HTTPConnection(probe.host, probe.port, timeout=60)
        try:
            connection.request("POST", f"{BASE}/run", json.dumps({"argv": argv, "run_id": "f" * 32}), headers)
            response = connection.getresponse()
            answers.append({"status": response.status, "body": response.read().decode()})
        except (OSError, http.client.HTTPException) as error:
            answers.append({"error": type(error).__name__})
        finally:
            connection.close()

    waiting = threading.Thread(target=long)
    waiting.start()
    time.sleep(2)
    session.post("stop-running", f"runs/{'f' * 32}/stop")
    waiting.join()
    probe.record("stopped-run-result", answers[0])
    unknown = f"runs/{'e' * 32}/stop"
    session.post("stop-unknown", unknown)
    session.post("stop-bad", "runs/xyz/stop")
    session.post("stop-body", unknown, {"x": 1})
    probe.send("stop-get", "GET", f"{BASE}/{unknown}", token=session.token)
    probe.send("stop-nosess", "POST", f"/sessions/nope/{unknown}")
    body = {"argv": ["true"], "run_id": f"{1:032x}"}
    session.post("run-notok", "run", body, token=None)
    session.post("run-notok-badbody", "run", {}, token=None)
    probe.send("run-nosess", "POST", "/sessions/nope/run", body)


def writes(session: Session) -> None:
    session.write("w", "/workspace/notes.txt", b"l1\nl2\nl3\n")
    session.write("w-nested", "/workspace/a b/c/d.txt", b"x")
    session.write("w-empty", "/workspace/empty.txt", b"")
    octets = {"content_type": "application/octet-stream"}
    session.post("w-nopath", "files/write", raw=b"x", **octets)
    session.post("w-nopath-notok", "files/write", raw=b"x", token=None, **octets)
    session.post("w-emptypath", "files/write?path=", raw=b"x", **octets)
    session.post("w-noctype", "files/write?path=/workspace/nc.txt", raw=b'{"a":1}', content_type=None)
    session.post("w-json", "files/write?path=/workspace/j.json", raw=b'{"a":1}')
    session.post("w-badjson", "files/write?path=/workspace/bj.json", raw=b"{bad")
    session.post("w-chunked", "files/write?path=/workspace/ch.txt", chunks=[b"ab", b"cd"])
    for label, path, data in WRITES:
        session.write(label, path, data)
    session.run("mk", MAKE_ODD_FILES)
    session.write("w-mode", "/workspace/notes.txt", b"new\n")
    session.write("w-link", "/workspace/inlink", b"x")
    session.write("w-linkdir", "/workspace/dlink/q", b"x")
    session.write("w-fifo", "/workspace/fifo", b"x")
    session.run("stat-mode", "stat -c '%a %n' notes.txt 'a b' empty.txt")


def files(session: Session) -> None:
    for path in LOOKED_AT:
        for route in ("read", "stat", "list", "realpath"):
            session.post(f"{route} {path}", f"files/{route}", {"path": path})
    for path in MADE:
        session.post(f"mkdir {path}", "files/mkdir", {"path": path})
    for path in REMOVED:
        session.post(f"remove {path}", "files/remove", {"path": path})
    notes = {"path": "/workspace/notes.txt"}
    session.post("read-svc", "files/read", notes, token="service")
    session.post("read-notok", "files/read", notes, token=None)
    session.post("read-nobody", "files/read")
    session.post("read-extra", "files/read", notes | {"x": 1})
    session.probe.send("read-get", "GET", f"{BASE}/files/read?path=/workspace/notes.txt", token=session.token)
    session.probe.send("read-nosess", "POST", "/sessions/nope/files/read", {"path": "/workspace/x"})


def archive(session: Session) -> None:
    send = session.probe.send
    for path in LISTED:
        send(f"arch-ls {path}", "POST", "/workspaces/ops/ls", {"path": path})
    for body in TREES:
        send("arch-tree", "POST", "/workspaces/ops/tree", body)
    send("arch-tree-nobody", "POST", "/workspaces/ops/tree")
    for body in MANY_TREES:
        send("arch-trees", "POST", "/workspaces/trees", body)
    send("arch-trees-notok", "POST", "/workspaces/trees", {"sessions": ["ops"]}, token=None)
    send("arch-trees-sesstok", "POST", "/workspaces/trees", {"sessions": ["ops"]}, token=session.token)
    for path in STORED:
        send(f"arch-read {path}", "POST", "/workspaces/ops/read", {"path": path})
        send(f"arch-rb {path}", "POST", "/workspaces/ops/read_bytes", {"path": path})
    send("arch-read-slice", "POST", "/workspaces/ops/read", {"path": "j.json", "offset": 5})
    send("arch-read-lim", "POST", "/workspaces/ops/read", {"path": "notes.txt", "limit": 0})
