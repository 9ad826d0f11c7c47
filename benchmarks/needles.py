"""What `watch --needles` adds to a request: CPU time to plant needles in its tool results and to take them out again.

    python benchmarks/needles.py [--repeats 200]

Both taps are counted, the way between them is not: of a request that nothing is known of, and of the next turn of a
conversation, whose beginning was planted in before. CPU time, the median of all repeats, and their least, which is what
a machine takes that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import orjson

from context_bench.wire.needles import Needles

#: As code, listings and logs have them, with quotes, escapes and tags; and what one result in ten has.
WORDS = ["return", "value:", "error", "line", "42", "127.0.0.1", '"quoted"', "a\\b", "<tag>", "&", "{x}", "(y)"]
FOREIGN = [*WORDS, "naïve", "–"]


def text(rng: random.Random, size: int, words: list[str]) -> str:
    """Lines of words."""
    lines, length = [], 0
    while length < size:
        lines.append(" ".join(rng.choices(words, k=rng.randint(4, 14))))
        length += len(lines[-1]) + 1
    return "\n".join(lines)


def request(calls: int, size: int) -> dict[str, Any]:
    """An agent's request with the results of so many calls, of about `size` characters each."""
    rng, steps = random.Random(1), []
    for number in range(calls):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "read", "input": {}}
        content = text(rng, size, WORDS if number % 10 else FOREIGN)
        result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": content}
        steps += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return {"model": "m", "messages": [{"role": "user", "content": "look"}, *steps]}


def measure(before: bytes, body: bytes, repeats: int) -> list[list[float]]:
    """Milliseconds of CPU to plant in a request that nothing is known of, in one that goes on from the request
    `before`, and to take out.
    """
    times: list[list[float]] = []
    for _ in range(repeats):
        needles, marks = Needles(b"a key of sixteen"), [time.process_time_ns()]
        needles.plant("anthropic", body)
        marks.append(time.process_time_ns())
        needles = Needles(b"a key of sixteen")
        needles.plant("anthropic", before)
        marks.append(time.process_time_ns())
        planted = needles.plant("anthropic", body)
        marks.append(time.process_time_ns())
        removed = needles.remove(planted.body)
        marks.append(time.process_time_ns())
        took = [(after - first) / 1e6 for first, after in pairwise(marks)]
        times.append([took[0], *took[2:]])
        assert removed.body == body
        assert len(removed.needles) == len(planted.needles) > 0
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; a turn: plant as the next turn, and take out  (ms)")
    print("results     kB  JSON of   plant at first  as the next turn  take out      turn  its least")
    writers: tuple[tuple[str, Callable[[Any], bytes]], ...] = (
        ("JS, Rust", orjson.dumps),
        ("Python", lambda value: json.dumps(value).encode()),
    )
    for calls, size in ((10, 2_000), (48, 2_000), (180, 2_000), (18, 20_000)):
        for name, write in writers:
            body = write(request(calls, size))
            times = measure(write(request(calls - 1, size)), body, repeats)
            first, after, out = (statistics.median(column) for column in zip(*times, strict=True))
            turns = [planting + removing for _, planting, removing in times]
            told = f"{first:14.2f} {after:17.2f} {out:9.2f} {statistics.median(turns):9.2f} {min(turns):10.2f}"
            print(f"{calls:7} {len(body) / 1000:6.0f}  {name:8} {told}", flush=True)


if __name__ == "__main__":
    main()
