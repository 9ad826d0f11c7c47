"""What running a program in the sandbox costs: milliseconds a run against a bare `python -c`, alternating in one run.

    python benchmarks/sandbox.py [--n 100] [--at-once 2]

2 cores under load (about 4), 2026-11-22, medians: one at a time 77 ms against 51; two at once 48 ms a run against 44.
On an idle core the sandbox takes 35 to 40 ms. A bare `python -c` starts with site packages, as the original did; the
sandbox starts without them, which pays for much of it. With `typing` imported by the program (as HumanEval's prompts
do) both take some 15 ms more.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time

from context_bench.evaluators import CodeExecution

EXAMPLE = {"context": "def add(a, b):\n", "test": "def check(f):\n    assert f(1, 2) == 3\n", "entry_point": "add"}
RESPONSE = "    return a + b"


async def bare() -> None:
    """The same program as plainly as can be."""
    program = f"{EXAMPLE['context']}{RESPONSE}\n\n{EXAMPLE['test']}\ncheck(add)"
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=pipe, stderr=pipe)
    await process.communicate()
    assert process.returncode == 0


async def measure(n: int, at_once: int) -> None:
    judge = CodeExecution(at_once=at_once)
    await judge.preflight()

    async def boxed() -> None:
        assert await judge.ascore(EXAMPLE, {"response": RESPONSE}) == {"pass_at_1": 1.0}

    took: dict[str, list[float]] = {"python -c": [], "sandbox": []}
    for _ in range(n):
        for name, one in (("python -c", bare), ("sandbox", boxed)):
            started = time.perf_counter()
            await asyncio.gather(*(one() for _ in range(at_once)))
            took[name].append((time.perf_counter() - started) * 1000 / at_once)
    for name, values in took.items():
        tenths = statistics.quantiles(values, n=10)
        print(
            f"{name:10} median {statistics.median(values):6.1f} ms a run   (10–90 %: {tenths[0]:.1f}–{tenths[-1]:.1f})"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=1)
    given = parser.parse_args()
    asyncio.run(measure(given.n, given.at_once))
