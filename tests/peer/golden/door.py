"""What both eras are asked: transport, who may call, sessions, policy."""

from .probe import Probe

LONG_ID = "a" * 64


def ask(probe: Probe, era: str) -> None:
    transport(probe)
    opening(probe)
    looking(probe, reopening(probe, era))
    policy(probe)
    for session in ("probe-extra", LONG_ID, "probe-rs", "probe-er", "probe-1"):
        probe.send("cleanup", "DELETE", f"/sessions/{session}?purge=true")


def transport(probe: Probe) -> None:
    send = probe.send
    send("index", "GET", "/", token=None)
    send("healthz", "GET", "/healthz", token=None)
    send("healthz-head", "HEAD", "/healthz", token=None)
    send("healthz-post", "POST", "/healthz", token=None)
    send("unknown-route", "GET", "/nope", token=None)
    send("trailing-slash", "GET", "/sessions/")
    send("ui-off", "GET", "/ui", token=None)
    send("docs", "GET", "/docs", token=None)
    send("openapi", "GET", "/openapi.json", token=None)
    send("options", "OPTIONS", "/sessions", token=None)
    send("sessions-no-token", "GET", "/sessions", token=None)
    send("sessions-bad-token", "GET", "/sessions", token="x")
    send("sessions-empty-token", "GET", "/sessions", token="")


def opening(probe: Probe) -> None:
    def create(label: str, body: object = None, **more) -> None:
        probe.send(label, "POST", "/sessions", body, **more)

    create("create-no-token-bad-body", {"session_id": "../x"}, token=None)
    create("create-bad-token-bad-body", {"session_id": "../x"}, token="bad")
    create("create-bad-json", raw=b"{bad")
    create("create-bad-json-notoken", raw=b"{bad", token=None)
    create("create-empty-body")
    create("create-noctype", raw=b'{"session_id":"probe-noct"}', content_type=None)
    create("create-textctype", raw=b'{"session_id":"probe-tct"}', content_type="text/plain")
    create("create-formctype", raw=b'{"session_id":"probe-form"}', content_type="application/x-www-form-urlencoded")
    create("create-list", raw=b"[]")
    create("create-null", raw=b"null")
    create("create-string", raw=b'"x"')
    create("create-extra", {"session_id": "probe-extra", "zzz": 1})
    create("create-badid", {"session_id": "../x"})
    create("create-emptyid", {"session_id": ""})
    create("create-65", {"session_id": LONG_ID + "a"})
    create("create-64", {"session_id": LONG_ID})
    create("create-trailing-newline", {"session_id": "abc\n"})
    create("create-intid", {"session_id": 5})
    create("create-badtenant", {"tenant": "a b"})
    create("create-reuse-str", {"session_id": "probe-rs", "reuse": "true"})
    create("create-reuse-int", {"session_id": "probe-rs", "reuse": 1})
    create("create-reuse-bad", {"reuse": "maybe"})
    create("create-unknown-runtime", {"runtime": "evil"})
    create("create-empty-runtime", {"runtime": "", "session_id": "probe-er"})
    create("create-multi-err", {"session_id": "../", "tenant": "!", "reuse": "q"})
    create("create-ok", {"session_id": "probe-1", "tenant": "acme"})
    create("create-dup", {"session_id": "probe-1"})


def reopening(probe: Probe, era: str) -> str:
    token = probe.open("create-reuse", {"session_id": "probe-1", "reuse": True})

    def create(label: str, **body: object) -> None:
        probe.send(label, "POST", "/sessions", body)

    create("create-reuse-samert", session_id="probe-1", reuse=True, runtime="python")
    create("create-reuse-diffrt", session_id="probe-1", reuse=True, runtime="node")
    create("create-reuse-difftenant", session_id="probe-1", reuse=True, tenant="other")
    if era == "b":
        create("attach-noid", attach=True)
        create("attach-missing", attach=True, session_id="never-was")
        create("attach-open", attach=True, session_id="probe-1")
        create("attach-unknown-rt", attach=True, session_id="never", runtime="evil")
    return token


def looking(probe: Probe, token: str) -> None:
    def get(label: str, path: str, **more) -> None:
        probe.send(label, "GET", f"/sessions{path}", **more)

    get("get-svc", "/probe-1")
    get("get-sess", "/probe-1", token=token)
    get("get-other", "/probe-extra", token=token)
    get("get-unknown-svc", "/nope")
    get("get-unknown-sess", "/nope", token=token)
    get("get-unknown-notoken", "/nope", token=None)
    get("get-badid-notoken", "/..%2fx", token=None)
    get("get-badid-svc", "/a%20b")
    get("get-badid-badtok", "/a%20b", token="bad")
    get("get-badid-notok", "/a%20b", token=None)
    get("get-usage", "/probe-1?usage=true")
    get("get-usage-1", "/probe-1?usage=1")
    get("get-usage-bad", "/probe-1?usage=zz")
    get("get-usage-bad-notoken", "/probe-1?usage=zz", token=None)
    get("list", "?usage=true")
    get("events", "/probe-1/events")
    get("events-neg", "/probe-1/events?after=-1")
    get("events-bad", "/probe-1/events?after=x")
    probe.send("policy", "GET", "/policy")
    probe.send("policy-sess", "GET", "/policy", token=token)


def policy(probe: Probe) -> None:
    def put(label: str, **body: object) -> None:
        probe.send(label, "PUT", "/policy", body)

    put("policy-put-empty")
    put("policy-put-extra", network_mode="host", cpus=1)
    put("policy-put-neg", max_sessions=-1, cpus=0)
    put("policy-put-null", max_sessions=None)
    put("policy-put-nullexec", execute_timeout=None)
    put("policy-put-exec", execute_timeout=20)
    put("policy-put-rt-unknown", runtimes={"zzz": {"cpus": 1}})
    put("policy-put-rt-extra", runtimes={"python": {"image": "x"}})
    put("policy-put-rt", runtimes={"python": {"cpus": 1.5}}, mem_limit="512m")
    put("policy-put-def-unknown", default_runtime="zzz", mem_limit="2g")
    put("policy-put-def-null", default_runtime=None)
    probe.send("policy-get-after", "GET", "/policy")
    put("policy-restore", max_sessions=20, mem_limit="1g")
