"""Equal compressors must come out as equal: 200 simulated runs of a system against itself, judged as a run over probes
is judged.

    python benchmarks/compression.py --runs 200

Each run draws sessions with a difficulty of their own and probes in them; full history and the system answer them with
the same chances, in draws of their own; `none` is the known-bad arm. Scores are as the offline grader gives them:
nothing, part, all. Counted: runs whose verdict is `non-inferior` (or `better`), whose interval of the difference covers
0, whose retention index covers 1, and whose lift over an equal truncation covers 0. Asked: 93 % for the first two
(compression.md §12, live check a).
"""

from __future__ import annotations

import argparse
import random
import time

from context_bench.stats.lift import Lift, lifts, retention_index
from context_bench.stats.verdict import compare


def scores(draw: random.Random, chances: list[float]) -> list[float]:
    """One answer each: right, half right, or wrong."""
    return [
        1.0 if (luck := draw.random()) < chance * 0.8 else 0.5 if luck < chance * 0.8 + 0.2 else 0.0
        for chance in chances
    ]


def one(seed: int, sessions: int, probes: int, margin: float) -> dict[str, bool]:
    """One simulated run."""
    draw = random.Random(seed)
    clusters, chances = [], []
    for session in range(sessions):
        hard = draw.uniform(-0.2, 0.2)
        for _ in range(probes):
            clusters.append(session)
            chances.append(min(1.0, max(0.0, 0.7 + hard + draw.uniform(-0.2, 0.2))))
    full, system, cut = (scores(draw, chances) for _ in range(3))
    none = scores(draw, [0.1 * chance for chance in chances])
    told = compare(
        system, full, clusters, margin=margin, system="same", baseline="full", known_bad={"none": none}, seed=seed
    )
    index = retention_index(system, full, none, clusters, seed=0, resamples=2_000)
    [lift] = lifts([Lift("same", "head_tail@same", system, cut, clusters, {"none": none})], margin=margin, seed=seed)
    return {
        "non-inferior": told.verdict in ("non-inferior", "better"),
        "inferior": told.verdict == "inferior",
        "difference covers 0": told.low is not None and told.high is not None and told.low <= 0 <= told.high,
        "retention index covers 1": index.low is not None and index.high is not None and index.low <= 1 <= index.high,
        "lift covers 0": lift.low is not None and lift.high is not None and lift.low <= 0 <= lift.high,
    }


def main() -> None:
    """Print the shares."""
    read = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    read.add_argument("--runs", type=int, default=200)
    read.add_argument("--sessions", type=int, nargs="+", default=[12, 60])
    read.add_argument("--probes", type=int, default=20)
    read.add_argument("--margin", type=float, nargs="+", default=[0.15, 0.1])
    given = read.parse_args()
    for sessions, margin in zip(given.sessions, given.margin, strict=True):
        started = time.process_time()
        found = [one(seed, sessions, given.probes, margin) for seed in range(given.runs)]
        shares = ", ".join(f"{name} {sum(each[name] for each in found) / len(found):.1%}" for name in found[0])
        spent = time.process_time() - started
        print(
            f"{given.runs} runs of {sessions} sessions × {given.probes} probes, margin {margin:g}: {shares} "
            f"({spent:.0f} CPU-s)",
            flush=True,
        )


if __name__ == "__main__":
    main()
