"""Fuzzing led by coverage: `python benchmarks/fuzz/fuzz.py [TARGET …] [--inputs N] [--seconds S] [--seed N] [--keep]`
(see README.md).

Prints a row of a table for each target; findings go to standard error, with the input. Ends with 1 if there were any.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial

import guided
from targets import NEAR, TARGETS, tried


def main() -> int:
    parser = argparse.ArgumentParser(description="Guided fuzzing of the parsers of text from outside.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="left out: the 20 nearest to the network")
    parser.add_argument("--inputs", type=int, default=200_000, help="for each target")
    parser.add_argument("--seconds", type=float, default=1e9, help="of processor, for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", action="store_true", help="keep the inputs that are needed to come to every line")
    given = parser.parse_args()
    if unknown := [name for name in given.targets if name not in TARGETS]:
        parser.error(f"no such target: {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    corpora = guided.stored()
    found = 0
    print(
        "| target | inputs | seconds | lines | kept | slowest (ms) | findings |\n|---|---|---|---|---|---|---|",
        flush=True,
    )
    for name in given.targets or NEAR:
        target = partial(tried, TARGETS[name])
        done = guided.fuzz(
            target, list(guided.beginnings(name)), inputs=given.inputs, seconds=given.seconds, seed=given.seed
        )
        corpora[name] = guided.smallest(target, done.corpus)
        found += len(done.findings)
        row = (
            name,
            f"{done.inputs:,}",
            round(done.seconds),
            done.lines,
            len(corpora[name]),
            round(done.slowest * 1000),
            len(done.findings),
        )
        print(f"| {' | '.join(map(str, row))} |", flush=True)
        for what, data in done.findings.items():
            print(f"{name}: {what}\n  {data!r}", file=sys.stderr, flush=True)
        if given.keep:
            guided.store(corpora)
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
