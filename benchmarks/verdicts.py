"""Statistics of many systems: every interval and verdict, from rows that are made as they are read.

    python benchmarks/verdicts.py [--systems 50] [--examples 10000] [--scores 12]

Target: 50 systems x 10,000 examples x 12 scores within 10 CPU-s and 300 MB. Half of the scores are 0 or 1, half are
anything between. What it takes to make the rows is measured apart and taken off.
"""

from __future__ import annotations

import argparse
import random
import resource
import time
from collections.abc import Iterator

from context_bench.core.records import EvalRow
from context_bench.engine.run_summary import summarise


def rows_of(system: str, examples: int, scores: int) -> Iterator[EvalRow]:
    """The rows of one system, the same each time."""
    drawn = random.Random(system)
    for example in range(examples):
        found = {f"s{k}": drawn.random() if k % 2 else float(drawn.random() < 0.6) for k in range(scores)}
        yield EvalRow(system, example, found, 100, 50, {}, 0.1, "made", 0, None, None, {}, {}, {})


def main() -> None:
    """Measure once and print a line."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--systems", type=int, default=50)
    asked.add_argument("--examples", type=int, default=10_000)
    asked.add_argument("--scores", type=int, default=12)
    given = asked.parse_args()
    systems = [f"system{n}" for n in range(given.systems)]
    begun = time.process_time()
    for system in systems:
        for _ in rows_of(system, given.examples, given.scores):
            pass
    making = time.process_time() - begun
    begun = time.process_time()
    found = summarise(
        lambda system: rows_of(system, given.examples, given.scores),
        systems,
        [],
        score_field="s1",
        baseline=systems[0],
    )
    taken = time.process_time() - begun - making
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    intervals = sum(map(len, found.estimates.values()))
    print(
        f"{given.systems} systems x {given.examples:,} examples x {given.scores} scores: {intervals} intervals, "
        f"{len(found.comparisons)} verdicts: {taken:.1f} CPU-s (and {making:.1f} to make the rows), peak {peak} MB"
    )


if __name__ == "__main__":
    main()
