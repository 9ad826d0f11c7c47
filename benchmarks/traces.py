"""Scoring what agents read beside a plain loop that does as the original does, in one run; and many sessions, in
bounded memory.

python benchmarks/traces.py                 the plain loop against ours: a large file, ordinary runs
python benchmarks/traces.py --sessions 1000   sessions of 200 calls each, in a temporary folder, read and scored:
seconds, peak memory python benchmarks/traces.py --reading 60      such sessions read only, beside `json.loads` of every
line

The plain loop does the work that the original's `evaluate_instance` does: for the gold, for the final context (the
union of the steps) and for every step, the lines of the file are looked for byte by byte, once for each span, and its
definitions by a parse and a walk in Python; sets of bytes are compared by intervals. It leaves out what the original
prints. Both give the same coverage, which is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from context_bench.shell.repo import Snapshot
from context_bench.traces import score_trace, score_traces
from context_bench.traces.gold import Gold, GoldItem
from context_bench.traces.symbols import CodeFiles
from context_bench.transcripts.trace import Event, Trace
from context_bench.transcripts.traces import load_traces, transcripts

NODES = ("function_definition", "class_definition")


# The plain loop
# ------------------------------------------------------------------------


def line_starts(data: bytes) -> list[int]:
    starts = [0]
    for at in range(len(data)):
        if data[at] == 10:
            starts.append(at + 1)
    return starts


def byte_range(data: bytes, first: int, last: int) -> tuple[int, int]:
    starts = line_starts(data)
    end = starts[last] - 1 if last < len(starts) else len(data) - 1
    return starts[first - 1], end


def definitions(parser: Any, data: bytes) -> list[tuple[str, int, int]]:
    found, waiting = [], [parser.parse(data).root_node]
    while waiting:
        node = waiting.pop()
        if node.type in NODES:
            found.append((node.type, node.start_byte, node.end_byte))
        waiting += node.children
    return found


def union(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        else:
            out.append((first, last))
    return out


def shared(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> int:
    return sum(max(0, min(x[1], y[1]) - max(x[0], y[0]) + 1) for x in a for y in b)


def plain(parser: Any, files: dict[str, bytes], gold: Gold, trace: Trace) -> dict[str, list[float]]:
    """Coverage of bytes and definitions after every step; all is read, tabled and parsed again each time, as the
    original does.
    """

    def seen(
        items: list[tuple[str, int, int]],
    ) -> tuple[dict[str, list[tuple[int, int]]], set[tuple[str, str, int, int]]]:
        spans: dict[str, list[tuple[int, int]]] = {}
        touched = set()
        for path, first, last in items:
            spans.setdefault(path, []).append(byte_range(files[path], first, last))
        for path, ranges in spans.items():
            spans[path] = union(ranges)
            for kind, start, end in definitions(parser, files[path]):
                if any(not (end < first or start > last) for first, last in ranges):
                    touched.add((path, kind, start, end))
        return spans, touched

    wanted, defined = seen([(item.file, item.first, item.last) for item in gold.items])
    total = sum(last - first + 1 for ranges in wanted.values() for first, last in ranges)
    spans: dict[str, list[tuple[int, int]]] = {}
    touched: set[tuple[str, str, int, int]] = set()
    out: dict[str, list[float]] = {"span": [], "symbol": []}
    every = [
        (str(event.path), *pair) for event in trace.events for pair in event.ranges or () if not isinstance(pair, str)
    ]
    final, _ = seen(every)
    for event in trace.events:
        assert event.path is not None
        assert isinstance(event.ranges, tuple)
        more, symbols = seen([(event.path, first, last) for first, last in event.ranges])
        for path, ranges in more.items():
            spans[path] = union([*spans.get(path, []), *ranges])
        touched |= symbols
        out["span"].append(sum(shared(spans.get(path, []), ranges) for path, ranges in wanted.items()) / total)
        out["symbol"].append(len(touched & defined) / len(defined))
    assert final == spans
    return out


# Inputs
# ------------------------------------------------------------------------


def module(size: int, seed: int) -> str:
    """Python of about so many bytes."""
    rng, parts, made = random.Random(seed), list[str](), 0
    while made < size:
        name, number = f"f{rng.randrange(10**6)}", rng.randrange(1000)
        text = (
            f"class C{name}:\n    def {name}(self, x):\n        y = x * {number}\n        return [y + i for i "
            f"in range({number})]\n\n\n"
        )
        parts.append(text)
        made += len(text)
    return "".join(parts)


def case(sizes: list[int], steps: int, seed: int) -> tuple[dict[str, bytes], Gold, Trace]:
    rng = random.Random(seed)
    files = {f"pkg/m{number}.py": module(size, seed + number).encode() for number, size in enumerate(sizes)}
    lines = {path: data.count(b"\n") for path, data in files.items()}

    def place() -> tuple[str, int, int]:
        path = rng.choice(sorted(files))
        first = rng.randrange(1, lines[path] - 80)
        return path, first, first + rng.randrange(10, 80)

    gold = Gold("task", init=[GoldItem(*place()) for _ in range(5)])
    events = []
    for step in range(1, steps + 1):
        path, first, last = place()
        events.append(Event(step, f"c{step}", "read", "Read", path, ((first, last),), "structured", "shown"))
    return files, gold, Trace("task", "agent", events=events, steps=steps)


def against_plain() -> None:
    import tree_sitter_python
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_python.language()))
    files, gold, trace = case([4000] * 3, 3, 0)
    score_one(CodeFiles(Snapshot(files)), gold, trace)  # imports are no part of either
    print(f"{'case':34} {'plain s':>9} {'ours s':>9} {'ratio':>7}")
    for label, sizes, steps, runs in (
        ("30 steps over one file of 2.55 MB", [2_550_000], 30, 1),
        ("40 steps over 20 files of 20 kB", [20_000] * 20, 40, 1),
        ("4 runs of these", [20_000] * 20, 40, 4),
    ):
        files, gold, trace = case(sizes, steps, 7)
        began = time.process_time()
        for _ in range(runs):
            wanted = plain(parser, files, gold, trace)
        reference = time.process_time() - began
        began = time.process_time()
        known = CodeFiles(Snapshot(files))  # as `score_traces` keeps one for all runs on a repository
        for _ in range(runs):
            found = score_one(known, gold, trace)
        ours = time.process_time() - began
        for level, values in wanted.items():
            assert all(abs(one[level] - value) < 1e-9 for one, value in zip(found.steps, values, strict=True)), level
        print(f"{label:34} {reference:9.2f} {ours:9.3f} {reference / ours:6.0f}x")


def score_one(repo: CodeFiles, gold: Gold, trace: Trace) -> Any:
    row = score_trace(gold, trace, repo, "contextbench-v1")
    assert row.score is not None
    return row.score


# Many sessions
# ------------------------------------------------------------------------


def session(number: int, files: dict[str, list[str]], calls: int) -> str:
    """A session of Claude Code: reads with numbered output, windows of sed, searches, tests."""
    rng, names = random.Random(number), sorted(files)
    rows: list[Any] = [
        {"type": "system", "subtype": "init", "cwd": "/ws", "session_id": f"s{number}", "tools": ["Read"], "model": "m"}
    ]
    for call in range(calls):
        path = rng.choice(names)
        body, first, length = files[path], rng.randrange(1, 200), rng.randrange(10, 60)
        window = body[first - 1 : first - 1 + length]
        if call % 4 < 2:
            name, given = "Read", {"file_path": f"/ws/{path}", "offset": first, "limit": length}
            shown = "\n".join(f"{first + at}\t{text}" for at, text in enumerate(window))
        elif call % 4 == 2:
            name, given = "Bash", {"command": f"sed -n '{first},{first + length - 1}p' {path}"}
            shown = "\n".join(window)
        else:
            command, shown = rng.choice(
                [
                    (f"grep -n '{body[first - 1].strip()}' {path}", f"{first}:{body[first - 1]}"),
                    (f"head -n {length} {path}", "\n".join(body[:length])),
                    ("python -m pytest -q 2>&1 | tail -3", "3 passed in 0.1s"),
                ]
            )
            name, given = "Bash", {"command": command}
        use = {"type": "tool_use", "id": f"t{call}", "name": name, "input": given}
        usage = {"input_tokens": 1000 + call, "output_tokens": 50}
        rows.append(
            {"type": "assistant", "message": {"id": f"m{call}", "role": "assistant", "content": [use], "usage": usage}}
        )
        rows.append(
            {
                "type": "user",
                "message": {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": f"t{call}", "content": shown}],
                },
            }
        )
    return "".join(json.dumps({"session_id": f"s{number}", "parent_tool_use_id": None, **row}) + "\n" for row in rows)


def many(number: int, calls: int, workers: int) -> None:
    files = {
        f"src/p{at % 10}/m{at}.txt": [f"line {line} of {at} is {line * at % 97}" for line in range(300)]
        for at in range(60)
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "logs").mkdir()
        for at in range(number):
            (folder / "logs" / f"task-{at}.jsonl").write_text(session(at, files, calls))
        (folder / "repo.json").write_text(
            json.dumps({path: {"text": "\n".join(lines) + "\n"} for path, lines in files.items()})
        )
        item = {"file": "src/p0/m0.txt", "start_line": 10, "end_line": 60}
        rows = [json.dumps({"inst_id": f"task-{at}", "init_ctx": [item], "add_ctx": []}) for at in range(number)]
        (folder / "gold.jsonl").write_text("\n".join(rows) + "\n")
        size = sum(path.stat().st_size for path in (folder / "logs").iterdir())
        before = peak()
        began, used = time.perf_counter(), cpu()
        score_traces(folder / "gold.jsonl", folder / "logs", folder / "repo.json", out=folder / "out", workers=workers)
        seconds = time.perf_counter() - began
        print(
            f"{number} sessions of {calls} calls ({size / 1e6:.0f} MB), {workers} processes, load "
            f"{os.getloadavg()[0]:.0f}:"
        )
        spent = cpu() - used
        print(
            f"  {seconds:.1f} s, {spent:.1f} CPU-s, {spent / number * 1000:.0f} CPU-ms a session; peak memory "
            f"{before} -> {peak()} MB"
        )


def reading(number: int, calls: int) -> None:
    """MB a second: bare JSON, the calls with what they returned, and the events (every command and its output
    understood).
    """
    files = {f"src/m{at}.txt": [f"line {line} of {at} is {line * at % 97}" for line in range(300)] for at in range(60)}
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / f"task-{at}.jsonl" for at in range(number)]
        for at, path in enumerate(paths):
            path.write_text(session(at, files, calls))
        size = sum(path.stat().st_size for path in paths) / 1e6
        ways: dict[str, Callable[[Path], Any]] = {
            "json.loads": lambda path: [json.loads(line) for line in path.read_bytes().splitlines()],
            "calls": lambda path: list(transcripts(path)),
            "events": lambda path: list(load_traces(path)),
        }
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(3):
            for way, read in ways.items():
                read(paths[0])  # imports are no part of it
                began = time.process_time()
                for path in paths:
                    read(path)
                best[way] = min(best[way], time.process_time() - began)
        print(f"{number} sessions of {calls} calls ({size:.0f} MB), best of 3, load {os.getloadavg()[0]:.0f}:")
        for way, seconds in best.items():
            print(f"  {way:12} {size / seconds:7.1f} MB/s  {best['json.loads'] / seconds:5.2f} x json.loads")


def cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def peak() -> int:
    """Of the largest process, in MB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=0)
    parser.add_argument("--reading", type=int, default=0)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    if given.sessions:
        many(given.sessions, given.calls, given.workers)
    elif given.reading:
        reading(given.reading, given.calls)
    else:
        against_plain()


if __name__ == "__main__":
    main()
