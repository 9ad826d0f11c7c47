"""What a run takes as examples become many: memory, store, taking up again, reports.

    python benchmarks/scale.py [--n 1000 10000] [--bytes 1000] [--workers 32] [--folder DIR] [--browser]

For each n a real `context-bench run`: examples streamed from JSON lines, a system and an evaluator in Python in its
process (no network, so that what is seen is the program), `answer_quality` beside them, everything kept. Then the same
command again, where nothing is owed, and `context-bench show` as HTML and as CSV. Every command is a process of its
own. *Peak* is its largest resident set; that of the run is read twice, when all rows are in the store and at its end,
for the first is the engine and the second the statistics and the table; what it may grow by is printed below it: 20 MB,
and 8 bytes a row for its id and each of its scores, which statistics need all at once. A report's CPU a row is the
difference to the n before (resampling costs the same at any n), beside `json.loads` of the stored rows. Planning is the
time from the start of the second run until it says that the rows were in the store, less that of a run of one example;
beside it, `json.loads` of the same rows in this process. CPU is user + system. `--folder`: where data and stores go,
and stay. `--browser`: let Chromium open the HTML report (needs playwright).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from itertools import islice
from pathlib import Path

import scale_table

HERE = Path(__file__).parent
WORDS = [
    "signal",
    "bridge",
    "harbour",
    "station",
    "lantern",
    "meadow",
    "copper",
    "window",
    "garden",
    "letter",
    "river",
    "engine",
    "silver",
    "candle",
    "winter",
    "market",
]
SOME = 20_000  # rows, of which `json.loads` is measured
ALREADY = "were already in the store"


# --- what the commands run with
# --------------------------------------------------------------------------------------------------


class Answers:
    """A system that knows most answers, and answers a few at length."""

    name = "answers"

    async def aprocess(self, example: dict) -> dict:
        number = int(example["id"])
        text = example["answer"] if number % 4 else "the " + example["answer"].split()[0]
        return {**example, "response": text}


class Length:
    """An evaluator of one's own, with a score beyond [0, 1]: its interval has to be resampled."""

    name, version, quick, fields = "length", "1", True, ("words",)

    def score(self, original: dict, processed: dict) -> dict[str, float]:
        return {"words": float(len(processed["response"].split()))}


def line(number: int, size: int) -> str:
    """One example: a context of about `size` bytes, a question, an answer of a few words."""
    chance = random.Random(number)
    context = f"{number} " + " ".join(chance.choices(WORDS, k=size // 7))
    answer = " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))
    return json.dumps({"id": number, "context": context, "question": "Which?", "answer": answer})


# --- measuring
# ------------------------------------------------------------------------


@dataclass
class Took:
    """What one command took. `stored`: peak MB, CPU s, wall s when all rows were stored; `said`: CPU s, wall s until it
    said so.
    """

    cpu: float
    wall: float
    peak: float
    stored: tuple[float, float, float] | None = None
    said: tuple[float, float] | None = None


def run(command: list[str], store: Path | None = None) -> Took:
    """Run a command to its end and look at it meanwhile; its failure ends the benchmark."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONUNBUFFERED": "",
    }
    began, stored, said, before = time.perf_counter(), None, None, 0.0
    with tempfile.TemporaryFile() as spoken:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=spoken, env=environment)
        while True:
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
            if ended:
                break
            if store is not None and stored is None:
                peak, cpu = _now(process.pid)
                if finished(store):
                    stored = before, cpu, time.perf_counter() - began
                before = peak  # surely of storing alone: statistics follow at once
            if said is None and ALREADY.encode() in os.pread(spoken.fileno(), 10_000, 0):
                said = (_now(process.pid)[1], time.perf_counter() - began)
            time.sleep(0.05 if time.perf_counter() - began < 60 else 0.5)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            spoken.seek(0)
            sys.exit(
                f"{' '.join(command)}\nended with {process.returncode}: "
                f"{spoken.read()[-2000:].decode(errors='replace')}"
            )
    return Took(used.ru_utime + used.ru_stime, time.perf_counter() - began, used.ru_maxrss / 1024, stored, said)


def finished(store: Path) -> bool:
    """Whether the store's run says that it is done."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=0.1)) as connection,
    ):
        return connection.execute("select status from runs").fetchall() == [("done",)]
    return False


def _now(pid: int) -> tuple[float, float]:
    """Largest resident set so far in MB, and CPU seconds."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    peak = next((int(each.split()[1]) / 1024 for each in status.splitlines() if each.startswith("VmHWM")), 0.0)
    return peak, (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Measured:
    """One size."""

    n: int
    first: Took
    again: Took
    html: Took
    csv: Took
    bytes_stored: int
    bytes_html: int
    rows_html: int
    parsed: float  # CPU s
    table: Took
    loaded: float = 0.0  # CPU s for `json.loads` of what reports read of a row
    opened: float | None = None


def measure(n: int, size: int, workers: int, folder: Path, browser: bool) -> Measured:
    """All commands with n examples."""
    data, store, page = folder / f"{n}.jsonl", folder / f"{n}.db", folder / f"{n}.html"
    with data.open("w", encoding="utf-8") as file:
        file.writelines(line(number, size) + "\n" for number in range(n))
    store.unlink(missing_ok=True)
    program = [sys.executable, "-m", "context_bench"]
    plugins = ["--system", "py:scale:Answers", "--evaluator", "py:scale:Length"]
    asked = [*program, "run", "--dataset", str(data), *plugins, "--max-workers", str(workers), "--run", "r", "--quiet"]
    asked += ["--store", str(store)]
    first = told(n, "run", run(asked, store))
    again = told(n, "again", run(asked))
    parsed = loads(data)
    stored = sum(each.stat().st_size for each in folder.glob(f"{store.name}*"))
    show = [*program, "show", "r", "--store", str(store), "--output"]
    html = told(n, "HTML", run([*show, "html", "--out", str(page)]))
    csv = told(n, "CSV", run([*show, "csv", "--out", str(folder / f"{n}.csv")]))
    shown = told(n, "table", run([*show, "table", "--out", str(folder / f"{n}.txt")]))
    found = Measured(n, first, again, html, csv, stored, page.stat().st_size, rows_in(page), parsed, shown)
    found.loaded = loads(stored_rows(store, SOME)) / min(n, SOME)
    if browser:
        found.opened = opened(page)
    return found


def loads(data: Path) -> float:
    """CPU s for `json.loads` of every row, and nothing else."""
    with data.open("rb") as file:
        began = time.process_time()
        for each in file:
            json.loads(each)
        return time.process_time() - began


def stored_rows(store: Path, n: int) -> Path:
    """What reports read of the first `n` rows, as JSON lines."""
    from context_bench.engine import open_store, rows

    out = store.with_suffix(".rows")
    with open_store(store) as opened, out.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(asdict(row)) + "\n" for row in islice(rows(opened, "r"), n))
    return out


def told(n: int, what: str, took: Took) -> Took:
    """Say at once what a command took: large sizes take long."""
    print(
        f"{time.strftime('%H:%M:%S')} n = {n:,} {what}: {took}; load {os.getloadavg()[0]:.1f}",
        file=sys.stderr,
        flush=True,
    )
    return took


class _Data(HTMLParser):
    """Reads the data blocks of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = False
        self.blocks: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag == "script" and ("type", "application/json") in attrs
        self.blocks += [""] * self.inside

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.blocks[-1] += data


def rows_in(page: Path) -> int:
    """Parse a report as its reader's browser would; how many rows it holds."""
    import base64
    import zlib

    reader = _Data()
    reader.feed(page.read_text(encoding="utf-8"))
    reader.close()
    for block in reader.blocks:
        told = json.loads(block)
        if "columns" in told:
            rows = told["rows"] if "rows" in told else json.loads(zlib.decompress(base64.b64decode(told["packed"])))
            assert all(len(row) == len(told["columns"]) for row in rows), "a row of the report lacks cells"
            return len(rows)
    raise AssertionError("the report has no rows")


def opened(page: Path) -> float:
    """Seconds until Chromium shows the page's rows."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as p:
        there = {"executable_path": "/usr/bin/chromium"} if Path("/usr/bin/chromium").exists() else {}
        window = p.chromium.launch(args=["--no-sandbox"], **there).new_page()
        began = time.perf_counter()
        window.goto(page.resolve().as_uri())
        window.wait_for_selector("#rows tbody tr", state="attached", timeout=60_000)
        return time.perf_counter() - began


# --- all of it
# ------------------------------------------------------------------------


def main() -> None:
    """Run every size and print the table."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--n", type=int, nargs="+", default=[1_000, 10_000])
    options.add_argument("--bytes", type=int, default=1000)
    options.add_argument("--workers", type=int, default=32)
    options.add_argument("--folder", type=Path)
    options.add_argument("--browser", action="store_true")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as own:
        folder = asked.folder or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        least = measure(1, asked.bytes, asked.workers, folder, False)
        found: list[Measured] = []
        for n in asked.n:
            found.append(measure(n, asked.bytes, asked.workers, folder, asked.browser))
        print(
            f"contexts of {asked.bytes:,} bytes, {asked.workers} in flight; one pass each, load "
            f"{os.getloadavg()[0]:.1f}"
        )
        print(scale_table.table(found, least))


if __name__ == "__main__":
    main()
