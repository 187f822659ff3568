"""The HTTP API, as a test says it."""

import uuid

import httpx

from daemon import TOKEN


class Service:
    """Calls to one daemon with the service token."""

    def __init__(self, url: str, token: str = TOKEN) -> None:
        self.http = httpx.Client(base_url=url, headers={"X-Sandbox-Token": token}, timeout=90)

    def open(self, **body) -> "Session":
        answer = self.http.post("/sessions", json=body)
        assert answer.status_code == 200, answer.text
        return Session(self, answer.json()["session"]["session_id"])


class Session:
    """One open session."""

    def __init__(self, service: Service, session_id: str) -> None:
        self.service = service
        self.id = session_id

    def post(self, path: str, body: dict, **options) -> httpx.Response:
        return self.service.http.post(f"/sessions/{self.id}/{path}", json=body, **options)

    def run(self, *argv: str, **body) -> dict:
        answer = self.ask(*argv, **body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, *argv: str, **body) -> httpx.Response:
        body = {"argv": list(argv), "run_id": uuid.uuid4().hex} | body
        return self.post("run", body)

    def sh(self, script: str, **body) -> str:
        ran = self.run("sh", "-c", script, **body)
        assert ran["exit_code"] == 0, ran
        return ran["stdout"]

    def info(self) -> dict:
        return self.service.http.get(f"/sessions/{self.id}").json()

    def close(self, purge: bool = True) -> None:
        self.service.http.delete(f"/sessions/{self.id}", params={"purge": purge})
