"""How large a sandbox has to be: the same GROUP BY over the same CSV in three libraries, under ceilings that grow, and what
swap, `/tmp` in memory and CPU weights do. Run as root, since a ceiling of memory has to hold:

    python3 tests/python/sizing.py --binary target/release/sandboxd

The libraries (tests/python/sizing.txt) and the CSV are made once, below `.cache/sizing`. What is printed is what
docs/sizing.md says. Whether a program survives depends on its ceiling; how long it takes, on the machine's load too.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

HERE = pathlib.Path(__file__).resolve().parent
ROWS = 3_700_000
CEILINGS = [192, 256, 384, 512, 768, 1024, 1536, 2048]
ASKED = 384
SECONDS = 240

# Each runs on its own in a sandbox; DuckDB prints how far it is in between.
GROUPED = {
    "pandas": """
import pandas
rows = pandas.read_csv("rows.csv").groupby(["city", "product"])["amount"].agg(["sum", "count"])
n = len(rows); count = int(rows["count"].sum())
""",
    "pandas, in chunks": """
import pandas
parts = [
    part.groupby(["city", "product"])["amount"].agg(["sum", "count"])
    for part in pandas.read_csv("rows.csv", usecols=["city", "product", "amount"], chunksize=200_000)
]
rows = pandas.concat(parts).groupby(level=[0, 1]).sum()
n = len(rows); count = int(rows["count"].sum())
""",
    "Polars": """
import polars
amount = polars.col("amount")
rows = polars.read_csv("rows.csv").group_by("city", "product").agg(amount.sum(), amount.count().alias("count"))
n = rows.height; count = int(rows["count"].sum())
""",
    "Polars, streaming": """
import polars
amount = polars.col("amount")
lazy = polars.scan_csv("rows.csv").group_by("city", "product").agg(amount.sum(), amount.count().alias("count"))
rows = lazy.collect(engine="streaming")
n = rows.height; count = int(rows["count"].sum())
""",
    "DuckDB": """
import duckdb
query = "SELECT city, product, sum(amount), count(amount) FROM 'rows.csv' GROUP BY city, product"
rows = duckdb.connect().execute(query).fetchall()
n = len(rows); count = sum(row[3] for row in rows)
""",
    "DuckDB, told its ceiling": """
import duckdb
query = "SELECT city, product, sum(amount), count(amount) FROM 'rows.csv' GROUP BY city, product"
rows = duckdb.connect(config={"memory_limit": "%dMB" % (CEILING // 2), "threads": 2}).execute(query).fetchall()
n = len(rows); count = sum(row[3] for row in rows)
""",
}
ENDING = """
import resource
print("\\nresult", n, count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def install(cache: pathlib.Path) -> pathlib.Path:
    """The libraries, in a directory that sandboxes get a copy of."""
    wanted = (HERE / "sizing.txt").read_text()
    place, stamp = cache / "lib", cache / "installed.txt"
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(cache / "venv", ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
        pip = [cache / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-compile", "--target", place, "-r", HERE / "sizing.txt"], check=True)
        stamp.write_text(wanted)
    return place


def generate(cache: pathlib.Path) -> pathlib.Path:
    """The CSV: the same rows every time."""
    path = cache / "rows.csv"
    if path.is_file():
        return path
    dice = random.Random(190)
    cities = [f"city-{n:03}" for n in range(200)]
    products = [f"product-{n:04}" for n in range(500)]
    notes = ["paid by card", "paid on account", "returned", "second delivery"]
    with path.with_suffix(".part").open("w") as file:
        file.write("id,city,product,amount,quantity,note\n")
        for n in range(ROWS):
            amount = dice.randrange(1, 1_000_000)
            file.write(
                f"{n},{dice.choice(cities)},{dice.choice(products)},{amount / 100:.2f},{amount % 90},{notes[amount % 4]}\n"
            )
    path.with_suffix(".part").rename(path)
    return path


class Service:
    """One daemon with a runtime for every ceiling."""

    def __init__(self, binary: pathlib.Path, folder: pathlib.Path, runtimes: dict[str, str]) -> None:
        self.folder, self.workspaces = folder, folder / "workspaces"
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--state-dir", folder / "state"]
        listed = ",".join(f"{name}=host;{fields}" for name, fields in runtimes.items())
        env = {
            "PATH": os.environ["PATH"],
            "SANDBOXD_TOKEN": "token",
            "SANDBOXD_WORKSPACE_ROOT": str(self.workspaces),
            "SANDBOXD_RUNTIMES": listed,
            "SANDBOXD_DISK_LIMIT": "",
        }
        with (folder / "log.txt").open("wb") as log:
            self.process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        for line in self.process.stdout:
            if line.startswith("listening on "):
                self.url = line.removeprefix("listening on ").strip()
                return
        raise SystemExit((folder / "log.txt").read_text())

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)

    def ask(self, method: str, path: str, body: dict | None = None) -> dict:
        content = json.dumps(body).encode() if body is not None else None
        headers = {"X-Sandbox-Token": "token", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", content, headers, method=method)
        with urllib.request.urlopen(request, timeout=SECONDS + 60) as answer:
            return json.loads(answer.read() or b"null")

    def open(self, name: str, runtime: str) -> None:
        self.ask("POST", "/sessions", {"session_id": name, "runtime": runtime})

    def run(self, name: str, *argv: str, env: dict | None = None) -> dict:
        words = [*(["env", *(f"{key}={value}" for key, value in env.items())] if env else []), *argv]
        body = {"argv": words, "run_id": uuid.uuid4().hex, "timeout": SECONDS}
        return self.ask("POST", f"/sessions/{name}/run", body)

    def close(self, name: str) -> None:
        self.ask("DELETE", f"/sessions/{name}")


def group_by(service: Service, stored: pathlib.Path, ceilings: list[int], swap: bool, libraries: dict[str, str]) -> None:
    """Which survive under which ceiling. One workspace that every session gets in its turn."""
    print(f"\nCSV of {(stored / 'rows.csv').stat().st_size / 1e6:.0f} MB, {ROWS:,} rows; ceilings in MiB" + (", and as much swap" if swap else ""))
    for library, script in libraries.items():
        for ceiling in ceilings:
            prefix = "s" if swap else "m"
            service.open("sizing", f"{prefix}{ceiling}")
            text = f"CEILING = {ceiling}\n{script}{ENDING}"
            began = time.monotonic()
            env = {"PYTHONPATH": "/workspace/lib", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
            answer = service.run("sizing", "python3", "-c", text, env=env)
            took = time.monotonic() - began
            service.close("sizing")
            if answer["exit_code"] == 0:
                result = re.search(r"^result (\d+) (\d+) (\d+)", answer["stdout"], re.MULTILINE)
                assert result, answer
                n, count, peak = result.groups()
                assert int(count) == ROWS, answer
                print(f"{library:26} {ceiling:5} survives  {took:6.1f} s  peak {peak} MiB  {n} groups", flush=True)
                break
            why = answer.get("killed_for") or (answer["stderr"].strip().splitlines() or ["?"])[-1][:90]
            print(f"{library:26} {ceiling:5} ends by   {took:6.1f} s  exit {answer['exit_code']}, {why}", flush=True)
            if ceiling == ASKED and answer.get("killed_for"):
                told = {key: value for key, value in answer.items() if key not in ("stdout", "stderr")}
                print("   the agent is told:", json.dumps(told), flush=True)


def tmpfs(service: Service) -> None:
    """What /tmp in memory costs and is worth beside the workspace on disk."""
    print("\n/tmp in memory, beside the workspace on disk")
    service.open("tmp", "m384")
    script = """
import os, time
def write(path):
    began = time.monotonic()
    with open(path, "wb", buffering=0) as file:
        for _ in range(48): file.write(b"x" * (1 << 20))
        os.fsync(file.fileno())
    return time.monotonic() - began
times = {path: min(write(path) for _ in range(5)) for path in ("/tmp/a", "/workspace/a")}
print(" ".join(f"{path} {took * 1e3:.0f} ms" for path, took in times.items()))
"""
    print(service.run("tmp", "python3", "-c", script)["stdout"].strip(), "for 48 MiB and an fsync")
    usage = lambda: service.ask("GET", "/sessions/tmp?usage=true")["usage"]["memory_bytes"] / 2**20  # noqa: E731
    service.run("tmp", "rm", "/tmp/a", "/workspace/a")
    time.sleep(6)
    before = usage()
    service.run("tmp", "sh", "-c", "head -c 50331648 /dev/zero > /tmp/a")
    time.sleep(6)
    print(f"memory of the sandbox {before:.0f} MiB, with 48 MiB in /tmp {usage():.0f} MiB")
    full = service.run("tmp", "sh", "-c", "head -c 99614720 /dev/zero > /tmp/b")
    print("over its size:", full["exit_code"], full["stderr"].strip(), full.get("limits_reached"))
    service.close("tmp")


def weights(service: Service) -> None:
    """Two sandboxes that want all processors at once, one with a quarter of the other's weight."""
    print("\nCPU weights 1024 and 256, each with as many busy processes as there are processors")
    import threading

    loop = "import time, os\nn, until = 0, time.monotonic() + 12\nwhile time.monotonic() < until: n += 1\nprint(n)"
    script = f"for i in $(seq {os.cpu_count()}); do python3 -c '{loop}' & done; wait"
    done: dict[str, int] = {}

    def work(name: str) -> None:
        service.open(name, name)
        answer = service.run(name, "sh", "-c", script)
        done[name] = sum(map(int, answer["stdout"].split()))
        service.close(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("w1024", "w256")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"work done: {done['w1024']:,} and {done['w256']:,}, {done['w1024'] / done['w256']:.1f} to 1")


def engines(cache: pathlib.Path) -> None:
    """A container of `/bin/true` by two OCI runtimes, in turns: what one or the other is worth where containers are made."""
    tools = [tool for tool in ("runc", "crun") if shutil.which(tool)]
    if len(tools) < 2:
        print("\nrunc and crun are not both here: what crun is worth is not measured")
        return
    print("\nA container of /bin/true")
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        bundle = pathlib.Path(folder)
        (bundle / "rootfs").mkdir()
        subprocess.run(["runc", "spec", "--bundle", bundle], check=True)
        spec = json.loads((bundle / "config.json").read_text())
        spec["process"] |= {"args": ["/bin/true"], "terminal": False}
        spec["root"] = {"path": "rootfs", "readonly": True}
        spec["mounts"] += [
            {"destination": f"/{name}", "source": f"/{name}", "type": "bind", "options": ["rbind", "ro"]}
            for name in ("usr", "bin", "lib", "lib64")
            if pathlib.Path(f"/{name}").is_dir()
        ]
        for name in ("usr", "bin", "lib", "lib64"):
            (bundle / "rootfs" / name).mkdir()
        (bundle / "config.json").write_text(json.dumps(spec))
        for tool in list(tools):
            tried = subprocess.run(
                [tool, "run", "--bundle", bundle, f"sizing-{tool}-{os.getpid()}"], capture_output=True, text=True
            )
            if tried.returncode != 0:
                tools.remove(tool)
                print(f"{tool}: not here: {' '.join(tried.stderr.split())}")
        times: dict[str, list[float]] = {tool: [] for tool in tools}
        peaks: dict[str, int] = {}
        for n in range(20):
            for tool in tools:
                began = time.monotonic()
                process = subprocess.Popen([tool, "run", "--bundle", bundle, f"sizing-{tool}-{os.getpid()}-{n}"])
                _, status, used = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                assert process.returncode == 0, tool
                times[tool].append(time.monotonic() - began)
                peaks[tool] = used.ru_maxrss
        for tool in tools:
            middle = sorted(times[tool])[len(times[tool]) // 2]
            print(f"{tool}: {middle * 1e3:.0f} ms (median of {len(times[tool])}), at most {peaks[tool] / 1024:.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, default=HERE.parent.parent / ".cache/sizing")
    parser.add_argument("--library", help="of the GROUP BY only this one, and those whose names begin so")
    parser.add_argument("--only", choices=["group-by", "swap", "tmpfs", "weights", "engines"])
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("as an ordinary user ceilings may not hold: run this as root")
    chosen = {name: text for name, text in GROUPED.items() if name.startswith(arguments.library or "")}
    cache = arguments.cache
    cache.mkdir(parents=True, exist_ok=True)
    if arguments.only in (None, "engines"):
        engines(cache)
        if arguments.only:
            return
    libraries, rows = install(cache), generate(cache)
    has_swap = len(pathlib.Path("/proc/swaps").read_text().splitlines()) > 1
    runtimes = {f"m{ceiling}": f"mem_limit={ceiling}m" for ceiling in CEILINGS}
    runtimes |= {f"s{ceiling}": f"mem_limit={ceiling}m;memswap_limit={2 * ceiling}m" for ceiling in CEILINGS}
    runtimes |= {f"w{weight}": f"cpu_shares={weight}" for weight in (1024, 256)}
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        service = Service(arguments.binary.resolve(), pathlib.Path(folder), runtimes)
        try:
            stored = service.workspaces / "sizing/workspace"
            shutil.copytree(libraries, stored / "lib", symlinks=True)
            shutil.copy(rows, stored / "rows.csv")
            if arguments.only in (None, "group-by"):
                group_by(service, stored, CEILINGS, False, chosen)
            if arguments.only in (None, "swap"):
                if has_swap:
                    group_by(service, stored, [ASKED], True, chosen)
                else:
                    print("\nthis machine has no swap: what it is worth is not measured")
            if arguments.only in (None, "tmpfs"):
                tmpfs(service)
            if arguments.only in (None, "weights"):
                weights(service)
        finally:
            service.end()


if __name__ == "__main__":
    main()
