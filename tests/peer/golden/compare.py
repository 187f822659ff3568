"""Compares what the binary answers with what the Python service answered, and holds the list of accepted differences.

Every difference is listed in `differences.toml` by label, with the fields that differ and the reason. An unlisted one fails,
and so does a listed one that is no longer there.
"""

import dataclasses
import itertools
import json
import pathlib
import sys
import tomllib
from collections.abc import Iterator

from . import door, era_a, era_b
from .probe import LONGEST_RECORDED, Probe

HERE = pathlib.Path(__file__).parent
COMPARED = ("status", "error", "type", "allow", "location")
# Bodies whose length depends on the digits of times.
TIMED = ("events-all",)
SHOWN = 160
DOCUMENT = HERE.parents[2] / "docs/compatibility.md"
MADE = "<!-- made by tests/peer/golden/compare.py from differences.toml -->\n", "<!-- end -->\n"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One field of one answer."""

    label: str
    field: str
    theirs: object
    ours: object

    def __str__(self) -> str:
        return f"{self.label}: {self.field}: {short(self.theirs)} became {short(self.ours)}"


@dataclasses.dataclass(frozen=True)
class Accepted:
    """One entry of the list."""

    labels: tuple[str, ...]
    fields: tuple[str, ...]
    status: int | None
    reason: str
    # Whether it is there depends on the moment: neither its presence nor its absence is wrong.
    sometimes: bool = False

    def covers(self, difference: Difference) -> bool:
        if difference.label not in self.labels:
            return False
        if difference.field == "status":
            return "status" in self.fields and difference.ours == self.status
        return any(within(difference.field, field) for field in self.fields)


def short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def within(field: str, outer: str) -> bool:
    return field == outer or (field.startswith(outer) and field[len(outer)] in ".[")


def ask(era: str, url: str, token: str) -> list[dict]:
    probe = Probe(url, token)
    door.ask(probe, era)
    (era_a if era == "a" else era_b).ask(probe)
    return probe.records


def recorded(era: str) -> list[dict]:
    with (HERE / f"era-{era}.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


def accepted(era: str, backend: str) -> list[Accepted]:
    """What is listed for this era on this backend."""
    found = []
    for entry in tomllib.loads((HERE / "differences.toml").read_text()).get("difference", []):
        unknown = entry.keys() - {"labels", "fields", "status", "reason", "era", "backend", "sometimes"}
        if unknown or not entry.get("reason") or not entry.get("fields"):
            raise SystemExit(f"differences.toml: {sorted(unknown)}: an entry has labels, fields and a reason")
        if ("status" in entry["fields"]) != ("status" in entry):
            raise SystemExit(f"differences.toml: {entry['labels']}: a status that differs is named: status = …")
        if entry.get("era", era) == era and entry.get("backend", backend) == backend:
            names, status = (tuple(entry["labels"]), tuple(entry["fields"])), entry.get("status")
            found.append(Accepted(*names, status, entry["reason"], entry.get("sometimes", False)))
    return found


def bodies(theirs: str, ours: str) -> tuple[object, object]:
    """Both as JSON where they are, else as texts, as far as they were recorded."""
    one, other = parsed(theirs), parsed(ours)
    if isinstance(one, str):
        return theirs, ours[:LONGEST_RECORDED]
    return one, other


def parsed(text: str) -> object:
    """JSON; of one that was cut, all up to its last whole element. What is neither is the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if len(text) == LONGEST_RECORDED and text[:1] in ("{", "["):
        whole = text.rpartition("},{")[0]
        for end in ("}]}", "}]"):
            try:
                return json.loads(whole + end)
            except ValueError:
                continue
    return text


def fields(label: str, theirs: object, ours: object, name: str, cut: bool) -> Iterator[Difference]:
    """Where two bodies differ, by path. Of what was cut only the common beginning is looked at."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in [*theirs, *(key for key in ours if key not in theirs)]:
            if key in theirs and key in ours:
                yield from fields(label, theirs[key], ours[key], f"{name}.{key}", cut)
            elif key in theirs or not cut:
                yield Difference(label, f"{name}.{key}", theirs.get(key, "(absent)"), ours.get(key, "(absent)"))
    elif are_entries(theirs) and are_entries(ours) and not cut:
        one, other = ({entry["path"]: entry for entry in entries} for entries in (theirs, ours))
        yield from fields(label, one, other, name, cut)
        if [path for path in one if path in other] != [path for path in other if path in one]:
            yield Difference(label, f"{name}.order", list(one), list(other))
    elif isinstance(theirs, list) and isinstance(ours, list) and (cut or len(theirs) == len(ours)):
        for at, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            yield from fields(label, one, other, f"{name}[{at}]", cut)
    elif theirs != ours:
        yield Difference(label, name, theirs, ours)


def are_entries(value: object) -> bool:
    """Rows of a listing, which are compared by path."""
    return isinstance(value, list) and all(isinstance(row, dict) and "path" in row for row in value)


def differences(theirs: list[dict], ours: list[dict]) -> Iterator[Difference]:
    if [record["label"] for record in theirs] != [record["label"] for record in ours]:
        raise RuntimeError("the requests are not the recorded ones")
    for one, other in zip(theirs, ours, strict=True):
        label = one["label"]
        for field in COMPARED:
            if one.get(field) != other.get(field):
                yield Difference(label, field, one.get(field), other.get(field))
        if one.get("body") is None:
            continue  # the recording holds no body: it was the Python framework's own page
        cut = one.get("length") is not None
        unlike = list(fields(label, *bodies(one["body"], other.get("body") or ""), "body", cut))
        yield from unlike
        if not unlike and one.get("length") != other.get("length") and label not in TIMED:
            yield Difference(label, "length", one.get("length"), other.get("length"))


def judge(found: list[Difference], listed: list[Accepted], labels: set[str]) -> list[str]:
    """What is wrong: differences that nobody listed, and listed ones that are not there."""
    complaints = [str(one) for one in found if not any(entry.covers(one) for entry in listed)]
    for entry in listed:
        for label in entry.labels:
            if label not in labels or entry.sometimes:
                continue
            for field in entry.fields:
                if not any(one.label == label and within(one.field, field) for one in found):
                    complaints.append(f"{label}: {field}: listed as different, and is not")
    return complaints


def run(era: str, backend: str, url: str, token: str, folder: pathlib.Path) -> tuple[int, list[str]]:
    """How many answers are as recorded or as listed, and what is wrong with the others."""
    theirs, ours = recorded(era), ask(era, url, token)
    with (folder / "answers.jsonl").open("w") as out:
        out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in ours)
    labels = {record["label"] for record in theirs}
    known = labels | {record["label"] for record in recorded("b" if era == "a" else "a")}
    listed = accepted(era, backend)
    found = list(differences(theirs, ours))
    complaints = judge(found, listed, labels)
    complaints += [f"{name}: listed, and no request" for row in listed for name in row.labels if name not in known]
    (folder / "differences.txt").write_text("".join(f"{one}\n" for one in found))
    wrong = {complaint.split(": ", 1)[0] for complaint in complaints}
    same = len(labels - {one.label for one in found})
    print(f"{len(theirs)} answers: {same} as recorded, {len(labels) - same} different", flush=True)
    return sum(label not in wrong for label in labels), complaints


def document() -> str:
    """The document for users, with the list of differences as it is now."""
    before, rest = DOCUMENT.read_text().split(MADE[0])
    _, after = rest.split(MADE[1])
    entries = tomllib.loads((HERE / "differences.toml").read_text())["difference"]
    rows = ["| why | requests |\n", "|---|---|\n"]
    for reason, same in itertools.groupby(entries, key=lambda entry: entry["reason"]):
        labels = []
        for entry in same:
            only = [f"era {entry['era'].upper()}"] if "era" in entry else []
            only += [f"backend {entry['backend']}"] if "backend" in entry else []
            where = f" ({', '.join(only)})" if only else ""
            labels += [f"`{label.strip()}`{where}" for label in entry["labels"]]
        rows.append(f"| {reason} | {', '.join(dict.fromkeys(labels))} |\n")
    return before + MADE[0] + "".join(rows) + MADE[1] + after


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        raise SystemExit("usage: python3 -m golden.compare --write, which brings docs/compatibility.md up to date")
    DOCUMENT.write_text(document())
