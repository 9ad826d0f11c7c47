"""100,000 turns into the BM25 memory beside the same inserts made directly with sqlite3: seconds, ratio, peak memory,
size of the file.

    python benchmarks/memory_ingest.py [--turns 100000] [--batch 500] [--repeats 3]

All write a file with FTS5, the same tokenizer and columns, write-ahead log, synchronous=FULL, one transaction a batch,
and read their turns from the same text of JSON lines, which is how datasets hand a conversation over and is made before
anything is measured. Each measurement is a process of its own and they take turns, so that a busy machine is busy for
all. `through the bridge`: the whole set-up of a group as a run does it, to receipts and timings of every call.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from context_bench.memory.protocol import Item, iter_packed, packed
from context_bench.memory.systems.bm25_memory import _TOKENIZER, BM25
from context_bench.memory.systems.bridge import Bridge

_WORDS = """
    about after again always anything arrive autumn bakery balcony because before bicycle birthday bring brother camera chapter cinema
    coffee colour concert cousin cupboard dentist dinner doctor engine evening family finally flight forest friend garden guitar happen
    harbour holiday hospital insurance island kitchen language laptop library market medicine meeting minute morning mountain music
    neighbour november number office orange painting parents passport photo piano picture possible problem project question quiet really
    recipe remember restaurant river school sister station summer sunday swimming teacher ticket tomorrow train umbrella understand
    university village violin weather weekend window winter worried writing yesterday
""".split()  # noqa: E501, SIM905


def turns(number: int) -> Iterator[Item]:
    """Made-up turns of 12 to 40 words, a tenth of them names and numbers that occur once."""
    dice = random.Random(7)
    for i in range(number):
        words = dice.choices(_WORDS, k=dice.randint(11, 36))
        words += [f"{dice.choice(('Mara', 'Ivo', 'Tess'))}{i}", str(dice.randint(1000, 10**7))][: dice.randint(1, 2)]
        yield Item(
            f"D{i // 20}:{i}",
            " ".join(words),
            speaker=("Ann", "Bob")[i % 2],
            time=f"2023-{1 + i // 9000:02}-01",
            session=str(i // 20),
        )


def direct(path: Path, text: str, size: int) -> None:
    """What somebody would write who needs nothing but this table."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(
        "CREATE VIRTUAL TABLE notes USING fts5(text, whole UNINDEXED, source UNINDEXED, time UNINDEXED, "
        f"tokenize='{_TOKENIZER}')"
    )
    source = (json.loads(line[0]) for line in re.finditer(".+", text))
    while batch := list(islice(source, size)):
        db.execute("BEGIN")
        rows = [(f"{turn['speaker']}: {turn['text']}", None, turn["id"], turn["time"]) for turn in batch]
        db.executemany("INSERT INTO notes(text, whole, source, time) VALUES (?, ?, ?, ?)", rows)
        db.execute("COMMIT")
    db.close()


def ours(path: Path, text: str, size: int) -> None:
    """The memory, batch by batch."""
    memory = BM25(path)
    source = iter_packed(text)
    while batch := list(islice(source, size)):
        if any(receipt.error for receipt in memory.add(batch)):
            raise SystemExit("an item was not stored")
    memory.close()


def bridged(path: Path, text: str, size: int) -> None:
    """A group's set-up."""
    memory = BM25(path)
    memory.batch = size
    facts = asyncio.run(Bridge(memory).asetup({"id": 1, "items": text}))
    if facts["acknowledged"] != facts["items"]:
        raise SystemExit(f"{facts['failed']} items were not stored")
    memory.close()


WAYS = {"direct": direct, "ours": ours, "through the bridge": bridged}


def peak(*, anew: bool = False) -> int:
    """The most memory this process has had, in kB; `anew`: counted from now on (Linux)."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    told = Path("/proc/self/status").read_text()
    return int(told.partition("VmHWM:")[2].split()[0])


def child(way: str, number: int, size: int) -> dict[str, Any]:
    """Measure one way in this process."""
    with tempfile.TemporaryDirectory(prefix="context-bench-") as folder:
        path, text = Path(folder) / "memory.db", packed(turns(number))
        before = peak(anew=True)
        processor, wall = time.process_time(), time.perf_counter()
        WAYS[way](path, text, size)
        processor, wall = time.process_time() - processor, time.perf_counter() - wall
        return {"cpu": processor, "wall": wall, "grown": (peak() - before) / 1024, "file": path.stat().st_size / 2**20}


def measured(way: str, number: int, size: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--child", way, "--turns", str(number), "--batch", str(size)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child, args.turns, args.batch)))
        return
    rounds = [{way: measured(way, args.turns, args.batch) for way in WAYS} for _ in range(args.repeats)]
    best = {way: {what: min(each[way][what] for each in rounds) for what in rounds[0][way]} for way in WAYS}
    print(f"{args.turns} turns, batches of {args.batch}, best of {args.repeats}")
    print(
        "| way | CPU s | wall s | × direct (CPU) | × direct (wall) | peak memory grew by MB | file MB "
        "|\n|---|---|---|---|---|---|---|"
    )
    for way, found in best.items():
        cpu, wall = (found[what] / best["direct"][what] for what in ("cpu", "wall"))
        print(
            f"| {way} | {found['cpu']:.2f} | {found['wall']:.2f} | {cpu:.2f} | {wall:.2f} | {found['grown']:.0f} | "
            f"{found['file']:.1f} |"
        )
    for way in ("ours", "through the bridge"):
        small = measured(way, args.turns // 10, args.batch)
        print(
            f"{way}: by {small['grown']:.0f} MB with a tenth of the turns, by {best[way]['grown']:.0f} MB with all of "
            "them"
        )


if __name__ == "__main__":
    main()
