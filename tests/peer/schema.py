"""Generated requests against the OpenAPI document that the binary serves: no 5xx, no undocumented status, type or field.

Twice: with an open session's id in every path, so that handlers are reached, and with ids as they are generated. What ends
the session or changes the ceilings for the rest is left to the second time.
"""

import json
import pathlib
import subprocess
import urllib.request
import xml.etree.ElementTree

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
SESSION = "generated"
SEED = 20261130
MINUTES = 6
CASES = 25

SETTLED = """\
[parameters]
"path.session_id" = "generated"
"""


def call(url: str, token: str, method: str, path: str, body: object = None) -> None:
    headers = {"X-Sandbox-Token": token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def run(python: pathlib.Path, url: str, token: str, folder: pathlib.Path) -> tuple[int, list[str]]:
    """How many operations passed, and what is wrong with the others."""
    call(url, token, "POST", "/sessions", {"session_id": SESSION})
    settled = folder / "settled.toml"
    settled.write_text(SETTLED)
    ending = ["--exclude-method", "DELETE", "--exclude-path", "/policy", "--exclude-path", "/sessions"]
    passed, complaints = generate(python, url, token, folder / "settled.xml", ["--config-file", str(settled)], ending)
    more, others = generate(python, url, token, folder / "any.xml", [], [])
    return passed + more, complaints + others


def generate(
    python: pathlib.Path, url: str, token: str, report: pathlib.Path, before: list[str], after: list[str]
) -> tuple[int, list[str]]:
    command = [
        python.with_name("schemathesis"), *before, "run", f"{url}/openapi.json", "--header", f"X-Sandbox-Token: {token}",
        "--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-examples", str(CASES), "--seed", str(SEED),
        "--request-timeout", "60", "--max-redirects", "0", "--suppress-health-check", "all", "--continue-on-failure",
        "--warnings", "off", "--report", "junit", "--report-junit-path", str(report), *after,
    ]
    log = report.with_suffix(".log")
    with log.open("wb") as out:
        ended = subprocess.run(
            command, cwd=report.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            timeout=MINUTES * 60, check=False,
        )
    if not report.is_file():
        return 0, [f"it ended with {ended.returncode}: {log.read_text(errors='replace')[-1500:]}"]
    passed, complaints = 0, []
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        wrong = [*case.iter("failure"), *case.iter("error")]
        passed += not wrong and case.find("skipped") is None
        complaints += [f"{case.get('name')}: {(one.text or str(one.get('message'))).strip()[:1200]}" for one in wrong]
    if ended.returncode != 0 and not complaints:
        complaints.append(f"it ended with {ended.returncode}: {log.read_text(errors='replace')[-1500:]}")
    return passed, complaints
