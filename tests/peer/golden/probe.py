"""Sends requests one after the other and writes down the answers, with what differs from run to run blotted out."""

import collections
import http.client
import json
import re
import urllib.parse

SECONDS = 90
# Longer bodies were cut when they were recorded; ours are kept as far as they may be compared.
LONGEST_RECORDED = 3000
LONGEST_KEPT = 200_000

BLOTS = [
    (re.compile(r'"token":"[^"]+"'), '"token":"<token>"'),
    (
        re.compile(
            r'"(created_at|last_activity|idle_seconds|at|duration_ms|memory_bytes|cpu_percent|pids)":[0-9.e+-]+'
        ),
        r'"\1":0',
    ),
    (re.compile(r'"modified_at":"[^"]+"'), '"modified_at":"<iso8601 utc>"'),
    (re.compile(r"HOSTNAME=[0-9a-f]{12}"), "HOSTNAME=<id>"),
    (re.compile(r"[0-9a-f]{64}"), "<64 hexadecimal digits>"),
    (re.compile(r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) [ 0-9]\d \d\d:\d\d"), "<date>"),
    (re.compile(r"https?://127\.0\.0\.1:\d+"), "<base>"),
]


def blotted(text: str) -> str:
    for what, by in BLOTS:
        text = what.sub(by, text)
    return text


class Probe:
    """One service under test. `records` is what was answered, in order; labels are unique."""

    def __init__(self, url: str, token: str) -> None:
        base = urllib.parse.urlsplit(url)
        self.host, self.port = base.hostname, base.port
        self.token = token
        self.records: list[dict] = []
        self.seen: collections.Counter[str] = collections.Counter()

    def record(self, label: str, answer: dict) -> None:
        self.seen[label] += 1
        times = self.seen[label]
        self.records.append({"label": label if times == 1 else f"{label} ({times})"} | answer)

    def send(
        self,
        label: str,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = "service",
        raw: bytes | None = None,
        chunks: list[bytes] | None = None,
        content_type: str | None = "application/json",
    ) -> tuple[int | None, bytes]:
        """`token` is "service" for the service's own, None for none, else the one to send."""
        headers = {}
        if token is not None:
            headers["X-Sandbox-Token"] = self.token if token == "service" else token
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        if data is not None and content_type:
            headers["Content-Type"] = content_type
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        try:
            if chunks is None:
                connection.request(method, path, body=data, headers=headers)
            else:
                headers["Transfer-Encoding"] = "chunked"
                connection.request(method, path, body=iter(chunks), headers=headers, encode_chunked=True)
            response = connection.getresponse()
            status, content = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            self.record(label, {"error": type(error).__name__})
            return None, b""
        finally:
            connection.close()
        text = blotted(content.decode("utf-8", "replace"))
        self.record(
            label,
            {
                "request": f"{method} {path[:160]}",
                "sent": body if raw is None else repr(raw[:40]),
                "status": status,
                "type": response.getheader("content-type"),
                "allow": response.getheader("allow"),
                "location": blotted(response.getheader("location") or "") or None,
                "length": len(content) if len(content) > LONGEST_RECORDED else None,
                "body": text[:LONGEST_KEPT],
            },
        )
        return status, content

    def open(self, label: str, body: dict) -> str:
        """Opens a session; its token, or nothing where that failed, so that the rest is still asked."""
        status, content = self.send(label, "POST", "/sessions", body)
        return json.loads(content)["token"] if status == 200 else "no-token"
