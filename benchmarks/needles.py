"""What `watch --needles` adds to a request: CPU time to plant needles in its tool results and to take them out again.

    python benchmarks/needles.py [--repeats 200]

Both taps are counted, the way between them is not. CPU time, the median and the least of all repeats: the least is what
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


def measure(body: bytes, repeats: int) -> tuple[list[float], list[float]]:
    """Milliseconds of CPU to plant and to take out."""
    needles, planting, removing = Needles(b"a key of sixteen"), [], []
    for _ in range(repeats):
        begun = time.process_time_ns()
        planted = needles.plant("anthropic", body)
        middle = time.process_time_ns()
        removed = needles.remove(planted.body)
        removing.append((time.process_time_ns() - middle) / 1e6)
        planting.append((middle - begun) / 1e6)
        assert removed.body == body
        assert len(removed.needles) == len(planted.needles) > 0
    return planting, removing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    repeats = parser.parse_args().repeats
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("results     kB  JSON of      plant  take out      both     least  (ms)")
    writers: tuple[tuple[str, Callable[[Any], bytes]], ...] = (
        ("JS, Rust", orjson.dumps),
        ("Python", lambda value: json.dumps(value).encode()),
    )
    for calls, size in ((10, 2_000), (48, 2_000), (180, 2_000), (18, 20_000)):
        for name, write in writers:
            body = write(request(calls, size))
            planting, removing = measure(body, repeats)
            both = [a + b for a, b in zip(planting, removing, strict=True)]
            times = [statistics.median(planting), statistics.median(removing), statistics.median(both), min(both)]
            told = " ".join(f"{value:9.2f}" for value in times)
            print(f"{calls:7} {len(body) / 1000:6.0f}  {name:8} {told}", flush=True)


if __name__ == "__main__":
    main()
